------------------------------ MODULE Cutlock ------------------------------
(***************************************************************************)
(* The protocol: rollout pump, admission, commit, train pump, save, crash  *)
(* and restore, and who owns every prompt meanwhile.                       *)
(*                                                                         *)
(* An action here has the name that it has in `cutlock.alphabet`, in the   *)
(* event log and in traces.  What Python does between two awaits is one    *)
(* action.  Each protection of the protocol is an operator of its own in   *)
(* the section "Protections", so that a mutant overrides one operator.     *)
(*                                                                         *)
(* A prompt stands for one occurrence: <<batch, member>>, batches counted  *)
(* over all epochs.                                                        *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, Sequences

CONSTANTS
    Batches,        \* batches of the dataloader over all epochs
    PerEpoch,       \* batches per epoch
    Member,         \* the prompts of a batch, as many as a training step has
    Window,         \* gate window
    Sampler,        \* "in_order", "ready_first", "weight_fifo" or "windowed"
    SpareMark,      \* low-water mark of the spare pool, 0 for none
    MaxFailures,    \* failed rollouts, failed commits and failed saves, together
    MaxCrashes,
    CrashAnywhere,  \* FALSE: only right after a publication; the restored state is the same
    Capacity,       \* places of the buffer
    Ordered,        \* TRUE: choices that the code makes by order are made so; FALSE: left open
    Units,          \* storage units of the plane; every group has rows in each
    Narrow          \* save mode: TRUE, the cut is one step and rows are saved while the pumps go
                    \* on; FALSE, all of it is saved inside a window

VARIABLES
    up,             \* "down", "running", or how far the start has come
    pos,            \* batches that the loader has handed out
    epoch,          \* the loader's epoch counter
    raising,        \* the loader's slot is open: the epoch is still to be raised in it
    pool,           \* spare pool
    led,            \* ledger: prompt -> "none", "RESERVED", "ADMITTED"
    idx,            \* prompt -> dispatch index of its batch, -1 for none
    wt,             \* prompt -> start weight, -1 for none
    task,           \* prompt -> "none", "gen", "committing", "put", "failed"
    gate,           \* the gate was found open for the RESERVED batch
    cursor,         \* the sampler's dispatch index
    index,          \* finished groups
    order,          \* the same in the order of their commits, if Ordered, else empty
    rows,           \* <<group, unit>> whose data is in the plane
    derived,        \* groups whose rows carry advantages
    deferred,       \* groups whose clear waits for the snapshot of their rows
    claimed,        \* groups of the open training step
    version,        \* trainer version
    short,          \* step -> groups it goes without
    tp,             \* train pump
    computed,       \* groups of the open step whose advantages were computed in it
    sv,             \* save
    door,           \* "open", "closing" (a cut waits), "shut" (a cut is open)
    cap,            \* what the open save has captured
    disk,           \* the published bundle
    saved,          \* version of the last bundle, NoBundle, or StartDue
    trained,        \* prompt -> times trained in the surviving history
    dropped,        \* prompts dropped on purpose in the surviving history
    failures,
    crashes

rollout == <<pos, epoch, raising, pool, led, idx, wt, task, gate, cursor>>
buffer  == <<index, order, rows, derived, deferred, claimed>>
finished == <<index, order>>
plane   == <<rows, derived, deferred>>
train   == <<version, short, tp, computed>>
save    == <<sv, door, cap, disk, saved>>
ghosts  == <<trained, dropped, failures, crashes>>
vars    == <<up, rollout, buffer, train, save, ghosts>>

----------------------------------------------------------------------------
(* Vocabulary *)

Size == Cardinality(Member)
Prompts == (1..Batches) \X Member
Members(b) == {p \in Prompts : p[1] = b}
Steps == 0..(Batches * Size + MaxFailures + 1)
Min(a, b) == IF a < b THEN a ELSE b
MaxOf(a, b) == IF a > b THEN a ELSE b

NoBundle == -1
\* A run that starts from nothing saves before it trains.
StartDue == -2

With(f, S, v) == [p \in Prompts |-> IF p \in S THEN v ELSE f[p]]

Reserved == {p \in Prompts : led[p] = "RESERVED"}
Admitted == {p \in Prompts : led[p] = "ADMITTED"}
Owned    == {p \in Prompts : led[p] # "none"}
Trained  == {p \in Prompts : trained[p] > 0}
Running  == {p \in Prompts : task[p] # "none"}

\* Who holds a slot across an await: commits, and the loader while it raises the epoch.
HoldingTasks == {"committing", "put"}
Holders == {p \in Prompts : task[p] \in HoldingTasks}

Artifacts == {"cursor", "loader", "pool", "index", "ledger", "rows"}
\* All that is on disk was written by one save.
OfOneSave == \A a, b \in Artifacts : disk.of[a] = disk.of[b]
AllFiles == {"policy", "sidecars", "manifest"} \cup Units

Gated == Sampler # "windowed"
Stamping == Sampler = "in_order"
Credits == Sampler \in {"in_order", "ready_first"}
\* The start weight is only kept where the choice of groups looks at it.
Weight == IF Sampler \in {"weight_fifo", "windowed"} THEN version ELSE -1

Exhausted == pos = Batches
\* Nothing more will be committed.
Settled == Exhausted /\ pool = {} /\ Owned = {}
Finished == Settled /\ deferred = {} /\ index = {} /\ tp = "idle" /\ sv = "none" /\ ~raising

\* The step whose groups have not been selected yet.
NextSelection == IF tp \in {"idle", "saving", "sync"} THEN version ELSE version + 1

\* Places of the buffer: a group has one from its launch until it is selected or gone.
Held == Cardinality(index) + Cardinality(Running)

RowsOf(S) == S \X Units
\* The groups that the plane lists.
KeysOf(R) == {r[1] : r \in R}

\* Where the loader's epoch counter stands between two slots.
EpochOf(n) == n \div PerEpoch

----------------------------------------------------------------------------
(* Choice of groups *)

InWindow(p) == wt[p] >= version - Window

\* Finished groups that can never be selected any more.
Evictable ==
    CASE Sampler = "in_order"    -> {p \in index : idx[p] < version}
      [] Sampler = "ready_first" -> {}
      [] OTHER                   -> {p \in index : ~InWindow(p)}

\* Groups that are owed to the trainer: finished or admitted.
Live == index \cup Admitted

OldestWeight ==
    LET Ws == {wt[p] : p \in {q \in Live : InWindow(q)}}
    IN  IF Ws = {} THEN -1 ELSE CHOOSE w \in Ws : \A x \in Ws : w <= x

\* All that the gate let in has been lost: only an empty step opens it again.
EmptyStepDue == cursor >= version + Window

\* Groups that step `version` trains.
Need ==
    CASE Credits -> MaxOf(0, Size - short[version])
      [] Sampler = "weight_fifo" ->
            LET n == Cardinality({p \in Live : wt[p] = OldestWeight})
            IN  IF OldestWeight # -1 \/ EmptyStepDue THEN Min(Size, n) ELSE Size
      [] OTHER -> Size

Candidates ==
    CASE Stamping -> {p \in index : idx[p] = version}
      [] Sampler = "ready_first" -> index
      [] Sampler = "weight_fifo" -> {p \in index : wt[p] = OldestWeight}
      [] OTHER -> {p \in index : InWindow(p)}

\* The shortfall with `n` more groups from step `s` on; a step goes without all of them at most.
RECURSIVE Credited(_, _)
Credited(s, n) ==
    IF n = 0 THEN short
    ELSE LET part == Min(n, Size - short[s])
         IN  [Credited(s + 1, n - part) EXCEPT ![s] = @ + part]

\* The first `n` of the finished groups in `C`.
FirstFinished(C, n) ==
    LET s == SelectSeq(order, LAMBDA p : p \in C)
    IN  {s[i] : i \in 1..n}

\* The sets of groups that may be trained now.
Selections ==
    LET n == IF Settled THEN Min(Need, Cardinality(index)) ELSE Need
    IN  CASE Settled /\ index = {} -> {}
          [] Cardinality(Candidates) < n -> {}
          [] Ordered -> {FirstFinished(Candidates, n)}
          [] OTHER -> {S \in SUBSET Candidates : Cardinality(S) = n}

\* Of two prompts, the one that the loader handed out first.
Earlier(p, q) == p[1] < q[1] \/ (p[1] = q[1] /\ p[2] < q[2])

\* The sets of `n` spares that may be taken.
Spares(n) ==
    IF Ordered
    THEN {{p \in pool : Cardinality({q \in pool : Earlier(q, p)}) < n}}
    ELSE {S \in SUBSET pool : Cardinality(S) = n}

\* Rollouts that can never train any more, and which of them goes first.
Stale == {p \in Prompts : task[p] = "gen" /\ ~InWindow(p)}
StaleFirst ==
    IF Ordered
    THEN {p \in Stale : \A q \in Stale :
            p = q \/ idx[p] < idx[q] \/ (idx[p] = idx[q] /\ Earlier(p, q))}
    ELSE Stale

----------------------------------------------------------------------------
(* The environment *)

\* Places of the buffer; a resume may come with another capacity.
Places == Capacity

\* How cuts are made; a resume may come with the other way.
NarrowCut == Narrow

\* A put reaches the units one by one.
PutIsTorn == NarrowCut

\* A unit writes its rows at one point in time: what its file may hold.
UnitFiles(u) == {{r \in rows : r[2] = u}}

\* The key map is written before any unit: the keys that it may hold.  A put lists its keys before
\* any unit has stored.
KeyMaps == {KeysOf(rows) \cup {p \in Prompts : PutIsTorn /\ task[p] = "committing"}}

\* Somebody else has used the plane that a restore finds.
OthersUsePlane == FALSE

----------------------------------------------------------------------------
(* Protections: what mutants override *)

\* Kinds of slots whose effects span an await.  The effects of the others are one step at the
\* end, so a cut that is one step itself need not wait for them, nor keep them out.
Spanning == {"loader_advance"}

\* A slot of this kind may be entered.
SlotOpen(kind) == door = "open" \/ (NarrowCut /\ kind \notin Spanning)

\* The slots that are held across an await.
SlotHeld == Holders # {} \/ raising

\* The cut waits for them; a cut of one step only for those whose effects span an await.
MayOpen == IF NarrowCut THEN ~raising ELSE ~SlotHeld

\* The door closes when a cut is requested.
DoorOnRequest == "closing"

\* Whether an artifact is read before the cut.
Early(what) == FALSE

\* The gate.
GateOpen == ~Gated \/ cursor < version + Window

\* ADMITTED is launched before RESERVED is admitted: it may be what opens the gate.
MayLaunch == TRUE

\* Admitted groups get their places in the order of their admission.
Unlaunched == {p \in Admitted : task[p] = "none"}
Before(p) == {q \in Unlaunched : idx[q] < idx[p]}

\* The RESERVED prompts that one admission admits.
AdmittedTogether == {Reserved}

\* Cursor and phase move in one step, inside the slot too.
CursorOnAdmission == cursor + 1

\* The ledger's owner changes in the step that makes the group ready.
ForgetOnCommit(p) == {p}

\* Nothing is left to do for the task of a committed group.
AfterCommit == "none"
Late == FALSE

\* Selection and eviction discard what they take.
ForgetOnTake(S) == S

\* The save leaves the groups of the index out of the ledger.
Subtracted(l, ix) == With(l, ix, "none")

\* So does the restore.
SubtractedAgain(l, ix) == With(l, ix, "none")

\* Rows of a failed commit are cleared before its slot ends.
ClearedOnRollback(p) == {p}

\* A lost group is credited to its step, in the slot that drops it.
CreditOnDrop == 1

\* What a publication needs.
PublishNeeds == AllFiles

\* The bundle's manifest binds all its artifacts to one save.
Bound == OfOneSave

\* Finished groups of the bundle leave places for what is still to be finished.
Fits ==
    LET unfinished == \E p \in Prompts : disk.led[p] = "ADMITTED"
        reserve == IF disk.index # {} /\ unfinished /\ Places < Capacity THEN Size ELSE 0
    IN  Cardinality(disk.index) + reserve <= Places

\* The plane that is restored into was used by nobody.
Untouched == ~OthersUsePlane

\* The restored cursor is not below a stamp.
CursorHolds == \A p \in index \cup Admitted : idx[p] <= disk.cursor

(* Protections of the narrow cut. *)

\* When units may be saved: after the index has been read.
UnitsMaySave == sv = "files"

\* A put goes on only as long as its slot: it is never cancelled.
Storing(p) == task[p] = "committing"

\* Groups that the open save has captured and whose rows are not all written yet.
Pinned == IF cap.index.set /\ ~(Units \subseteq cap.files) THEN cap.index.v ELSE {}

\* A clear of pinned rows waits until the units are saved.
Defers(S) == S \cap Pinned

\* A clear that has waited is done once its rows are pinned no more, whatever became of the save.
MayFlush == deferred \cap Pinned = {}

\* When a save fails, what it has kept from being cleared still waits for it.
DeferredOnFailure == deferred

\* A save waits for the last one to publish, or to fail and to clear what waited for it.
MayRequest == sv = "none" /\ deferred = {}

\* The restore brings back what the captured index owns: no other key, and no data without one.
Pruned(R) == {r \in R : r[1] \in disk.index}

\* The train pump stands between two steps until the cut is taken, and its policy copied.
PumpAwaitsCut == TRUE
PumpAwaitsCopy == TRUE

\* The cut is over in the step that takes it.
DoorAfterCut == "open"

\* Version and weights are those of the cut, however late they are written.
WeightsOfTheCut == cap.ledger.v.weights

\* Advantages are computed anew, whatever the rows carry.
Computes(S) == S

\* Shortfall on disk.
SavedShort == short

----------------------------------------------------------------------------
(* Start *)

Unset == [set |-> FALSE]
Set(v) == [set |-> TRUE, v |-> v]

NoCapture == [cursor |-> Unset, loader |-> Unset, pool |-> Unset, index |-> Unset,
              ledger |-> Unset, order |-> <<>>, keys |-> {}, rows |-> {}, derived |-> {},
              files |-> {}]

AllNone == [p \in Prompts |-> "none"]
AllMinus == [p \in Prompts |-> -1]

\* What a run without a bundle starts from.
Nothing == [version |-> 0, cursor |-> -1, pos |-> 0, epoch |-> 0, pool |-> {},
            index |-> {}, order |-> <<>>, led |-> AllNone, idx |-> AllMinus, wt |-> AllMinus,
            short |-> [s \in Steps |-> 0], keys |-> {}, rows |-> {}, derived |-> {},
            trained |-> [p \in Prompts |-> 0], dropped |-> {}, files |-> {},
            of |-> [a \in Artifacts |-> -1]]

Published == disk.files # {}

Init ==
    /\ up = "down"
    /\ pos = 0 /\ epoch = 0 /\ raising = FALSE
    /\ pool = {}
    /\ led = AllNone /\ idx = AllMinus /\ wt = AllMinus /\ task = AllNone
    /\ gate = FALSE /\ cursor = -1
    /\ index = {} /\ order = <<>>
    /\ rows = {} /\ derived = {} /\ deferred = {} /\ claimed = {}
    /\ version = 0 /\ short = Nothing.short /\ tp = "idle" /\ computed = {}
    /\ sv = "none" /\ door = "open" /\ cap = NoCapture /\ disk = Nothing
    /\ saved = NoBundle
    /\ trained = Nothing.trained /\ dropped = {} /\ failures = 0 /\ crashes = 0

----------------------------------------------------------------------------
(* Rollout pump: from the loader to the ledger *)

PoolLow == cursor >= 0 /\ Cardinality(pool) < SpareMark

\* Places that are taken, and those that admitted groups wait for.
Wanted == Held + Cardinality(Unlaunched)

\* The pump has nothing left from before: ADMITTED has places, RESERVED is admitted.
PumpFree == Reserved = {} /\ Wanted <= Places /\ ~raising

Advance ==
    /\ up = "running"
    /\ PumpFree
    /\ ~Exhausted
    /\ SlotOpen("loader_advance")
    /\ pos' = pos + 1
    /\ raising' = ((pos + 1) % PerEpoch = 0)
    /\ UNCHANGED <<up, epoch, idx, wt, task, gate, cursor, buffer, train, save, ghosts>>

\* Take the next batch from the loader and reserve it, in one slot.
ReserveBatch ==
    /\ ~PoolLow
    /\ led' = With(led, Members(pos + 1), "RESERVED")
    /\ UNCHANGED pool
    /\ Advance

\* Take the next batch from the loader and hold it back.
FillSparePool ==
    /\ PoolLow
    /\ pool' = pool \cup Members(pos + 1)
    /\ UNCHANGED led
    /\ Advance

\* The batch was the last of its epoch: raise the counter, in the same slot.
RaiseEpoch ==
    /\ up = "running"
    /\ raising
    /\ epoch' = epoch + 1
    /\ raising' = FALSE
    /\ UNCHANGED <<up, pos, pool, led, idx, wt, task, gate, cursor, buffer, train, save, ghosts>>

\* At the end of the data, when all that was launched has settled: spares become a batch.
DrainSparePool ==
    /\ up = "running"
    /\ PumpFree
    /\ Exhausted
    /\ Owned = {}
    /\ pool # {}
    /\ SlotOpen("spare_drain")
    /\ \E S \in Spares(Min(Size, Cardinality(pool))) :
        /\ led' = With(led, S, "RESERVED")
        /\ pool' = pool \ S
    /\ UNCHANGED <<up, pos, epoch, raising, idx, wt, task, gate, cursor, buffer, train, save,
                   ghosts>>

\* The wait at the gate ends; outside every slot, with the first place in hand.
OpenGate ==
    /\ up = "running"
    /\ ~raising
    /\ Reserved # {}
    /\ Wanted < Places
    /\ ~gate
    /\ GateOpen
    /\ gate' = TRUE
    /\ UNCHANGED <<up, pos, epoch, raising, pool, led, idx, wt, task, cursor, buffer, train, save,
                   ghosts>>

\* Raise the cursor, stamp the batch, mark it ADMITTED, in one slot.
CommitAdmission ==
    /\ up = "running"
    /\ gate
    /\ SlotOpen("admission")
    /\ \E S \in AdmittedTogether :
        /\ led' = With(led, S, "ADMITTED")
        /\ idx' = With(idx, S, cursor + 1)
        /\ wt' = With(wt, S, Weight)
        /\ short' = IF Credits /\ Cardinality(S) < Size
                    THEN Credited(MaxOf(cursor + 1, NextSelection), Size - Cardinality(S))
                    ELSE short
    /\ cursor' = CursorOnAdmission
    /\ gate' = FALSE
    /\ UNCHANGED <<up, pos, epoch, raising, pool, task, buffer, version, tp, computed, save, ghosts>>

----------------------------------------------------------------------------
(* Rollout pump: from the ledger to the buffer *)

SetTask(p, t) == task' = [task EXCEPT ![p] = t]

\* Generation starts; after a restore too, for what was ADMITTED.
LaunchGroup(p) ==
    /\ up = "running"
    /\ led[p] = "ADMITTED"
    /\ task[p] \in {"none", "failed"}
    /\ task[p] = "none" => Held + Cardinality(Before(p)) < Places
    /\ MayLaunch
    /\ SetTask(p, "gen")
    /\ UNCHANGED <<up, pos, epoch, raising, pool, led, idx, wt, gate, cursor, buffer, train, save,
                   ghosts>>

\* A finished rollout enters the slot of its commit.
BeginCommit(p) ==
    /\ up = "running"
    /\ task[p] = "gen"
    /\ SlotOpen("group_commit")
    /\ SetTask(p, "committing")
    /\ UNCHANGED <<up, pos, epoch, raising, pool, led, idx, wt, gate, cursor, buffer, train, save,
                   ghosts>>

\* One unit of the plane stores its part of a group; a put can be torn across units.
StoreRow(p, u) ==
    /\ up = "running"
    /\ PutIsTorn
    /\ Storing(p)
    /\ <<p, u>> \notin rows
    /\ rows' = rows \cup {<<p, u>>}
    /\ UNCHANGED <<up, rollout, finished, derived, deferred, claimed, train, save, ghosts>>

\* The plane has taken the rows, all of them.
PutRows(p) ==
    /\ up = "running"
    /\ task[p] = "committing"
    /\ PutIsTorn => RowsOf({p}) \subseteq rows
    /\ rows' = rows \cup RowsOf({p})
    /\ SetTask(p, "put")
    /\ UNCHANGED <<up, pos, epoch, raising, pool, led, idx, wt, gate, cursor, finished, derived,
                   deferred, claimed, train, save, ghosts>>

\* The group is ready and its ledger record gone, in one step; the slot ends.
CommitGroup(p) ==
    /\ up = "running"
    /\ task[p] = "put"
    /\ index' = index \cup {p}
    /\ order' = IF Ordered THEN Append(order, p) ELSE order
    /\ led' = With(led, ForgetOnCommit(p), "none")
    /\ SetTask(p, AfterCommit)
    /\ UNCHANGED <<up, pos, epoch, raising, pool, idx, wt, gate, cursor, plane, claimed, train,
                   save, ghosts>>

\* The commit fails or is cancelled: its rows are cleared before the slot ends.
RollbackGroup(p) ==
    /\ up = "running"
    /\ task[p] \in {"committing", "put"}
    /\ failures < MaxFailures
    /\ failures' = failures + 1
    /\ rows' = rows \ RowsOf(ClearedOnRollback(p))
    /\ SetTask(p, "failed")
    /\ UNCHANGED <<up, pos, epoch, raising, pool, led, idx, wt, gate, cursor, finished, derived,
                   deferred, claimed, train, save, trained, dropped, crashes>>

\* Generation fails.
FailGroup(p) ==
    /\ up = "running"
    /\ task[p] = "gen"
    /\ failures < MaxFailures
    /\ failures' = failures + 1
    /\ SetTask(p, "failed")
    /\ UNCHANGED <<up, pos, epoch, raising, pool, led, idx, wt, gate, cursor, buffer, train, save,
                   trained, dropped, crashes>>

\* A lost group goes without a substitute: its step is closed one short, in the same slot.
DropGroup(p) ==
    /\ up = "running"
    /\ task[p] = "failed"
    /\ pool = {}
    /\ SlotOpen("drop")
    /\ led' = [led EXCEPT ![p] = "none"]
    /\ idx' = [idx EXCEPT ![p] = -1]
    /\ wt' = [wt EXCEPT ![p] = -1]
    /\ short' = IF Credits
                THEN Credited(MaxOf(idx[p], NextSelection), CreditOnDrop)
                ELSE short
    /\ dropped' = dropped \cup {p}
    /\ SetTask(p, "none")
    /\ UNCHANGED <<up, pos, epoch, raising, pool, gate, cursor, buffer, version, tp, computed, save, trained,
                   failures, crashes>>

\* A lost group is replaced by a spare: old owner out, new owner in, in one slot.
SubstituteGroup(p, q) ==
    /\ up = "running"
    /\ task[p] = "failed"
    /\ {q} \in Spares(1)
    /\ SlotOpen("drop")
    /\ led' = [led EXCEPT ![p] = "none", ![q] = "ADMITTED"]
    /\ idx' = [idx EXCEPT ![p] = -1, ![q] = idx[p]]
    /\ wt' = [wt EXCEPT ![p] = -1, ![q] = IF Sampler = "windowed" THEN version ELSE wt[p]]
    /\ pool' = pool \ {q}
    /\ dropped' = dropped \cup {p}
    /\ SetTask(p, "none")
    /\ UNCHANGED <<up, pos, epoch, raising, gate, cursor, buffer, train, save, trained, failures,
                   crashes>>

\* Watchdog: a rollout that can never train any more, in one slot.
AbortStale(p) ==
    /\ up = "running"
    /\ tp = "sync"
    /\ Sampler = "windowed"
    /\ p \in StaleFirst
    /\ SlotOpen("stale_abort")
    /\ led' = [led EXCEPT ![p] = "none"]
    /\ idx' = [idx EXCEPT ![p] = -1]
    /\ wt' = [wt EXCEPT ![p] = -1]
    /\ dropped' = dropped \cup {p}
    /\ SetTask(p, "none")
    /\ UNCHANGED <<up, pos, epoch, raising, pool, gate, cursor, buffer, train, save, trained,
                   failures, crashes>>

----------------------------------------------------------------------------
(* Train pump *)

\* Rows go, those of pinned groups later.
Clear(S) ==
    /\ rows' = rows \ RowsOf(S \ Defers(S))
    /\ derived' = derived \ (S \ Defers(S))
    /\ deferred' = deferred \cup Defers(S)

\* Groups leave the index.
Leave(S) ==
    /\ index' = index \ S
    /\ order' = SelectSeq(order, LAMBDA p : p \notin S)

\* Drop finished groups that can never train: entries and rows, in one slot.
EvictGroups ==
    /\ up = "running"
    /\ tp = "idle"
    /\ Evictable # {}
    /\ SlotOpen("evict")
    /\ saved # StartDue
    /\ Leave(Evictable)
    /\ Clear(Evictable)
    /\ led' = With(led, ForgetOnTake(Evictable), "none")
    /\ idx' = With(idx, {p \in Evictable : led'[p] = "none"}, -1)
    /\ wt' = With(wt, {p \in Evictable : led'[p] = "none"}, -1)
    /\ dropped' = dropped \cup Evictable
    /\ UNCHANGED <<up, pos, epoch, raising, pool, task, gate, cursor, claimed, train, save,
                   trained, failures, crashes>>

\* Claim the groups of the next step: they leave the index, their rows stay.
SelectGroups(S) ==
    /\ up = "running"
    /\ tp = "idle"
    /\ Evictable = {}
    /\ saved # StartDue
    /\ S \in Selections
    /\ SlotOpen("select")
    /\ Leave(S)
    /\ claimed' = S
    /\ led' = With(led, ForgetOnTake(S), "none")
    /\ idx' = With(idx, {p \in S : led'[p] = "none"}, -1)
    /\ wt' = With(wt, {p \in S : led'[p] = "none"}, -1)
    /\ short' = [s \in Steps |-> IF s < version THEN 0 ELSE short[s]]
    /\ tp' = IF S = {} THEN "raise" ELSE "advantages"
    /\ UNCHANGED <<up, pos, epoch, raising, pool, task, gate, cursor, plane, version, computed,
                   save, ghosts>>

\* Advantages are computed anew and written onto the claimed rows.
WriteAdvantages ==
    /\ up = "running"
    /\ tp = "advantages"
    /\ computed' = Computes(claimed)
    /\ derived' = derived \cup claimed
    /\ tp' = "train"
    /\ UNCHANGED <<up, rollout, finished, rows, deferred, claimed, version, short, save, ghosts>>

\* The optimizer steps.
TrainStep ==
    /\ up = "running"
    /\ tp = "train"
    /\ trained' = [p \in Prompts |-> IF p \in claimed THEN Min(2, trained[p] + 1) ELSE trained[p]]
    /\ tp' = "clear"
    /\ UNCHANGED <<up, rollout, buffer, version, short, computed, save, dropped, failures, crashes>>

\* Delete the rows of the step and end its claim, in one slot.
ClearRows ==
    /\ up = "running"
    /\ tp = "clear"
    /\ SlotOpen("clear")
    /\ Clear(claimed)
    /\ claimed' = {}
    /\ computed' = {}
    /\ tp' = "raise"
    /\ UNCHANGED <<up, rollout, finished, version, short, save, ghosts>>

\* The version moves, and with it the gate.
RaiseVersion ==
    /\ up = "running"
    /\ tp = "raise"
    /\ version' = version + 1
    /\ tp' = "sync"
    /\ UNCHANGED <<up, rollout, buffer, short, computed, save, ghosts>>

\* Generators take the new weights, after stale rollouts were aborted; the first time before
\* the pumps run.
SyncWeights ==
    /\ \/ up = "started"
       \/ /\ up = "running"
          /\ tp = "sync"
          /\ Sampler = "windowed" => Stale = {}
    /\ up' = "running"
    /\ tp' = "idle"
    /\ UNCHANGED <<rollout, buffer, version, short, computed, save, ghosts>>

----------------------------------------------------------------------------
(* Save: runs in the train pump's task; a version is published once at most *)

Capture(field, v) ==
    cap' = [cap EXCEPT ![field] = Set(v), !.order = IF field = "index" THEN order ELSE @]

\* What the trainer is: its version and what it was trained on.
Weights == [version |-> version, trained |-> trained]

\* Artifacts that a mutant reads before it asks for the cut.
EarlyDone == \A f \in {"cursor", "loader", "pool", "index", "ledger"} : Early(f) => cap[f].set

\* Close the door and wait.
RequestCut ==
    /\ up = "running"
    /\ tp \in {"idle", "saving"}
    /\ MayRequest
    /\ saved < version
    /\ EarlyDone
    /\ sv' = "requested"
    /\ tp' = IF PumpAwaitsCut THEN "saving" ELSE "idle"
    /\ door' = DoorOnRequest
    /\ UNCHANGED <<up, rollout, buffer, version, short, computed, cap, disk, saved, ghosts>>

\* Full window: the last slot has ended, the window begins.
OpenCut ==
    /\ up = "running"
    /\ ~NarrowCut
    /\ sv = "requested"
    /\ MayOpen
    /\ sv' = "cursor"
    /\ door' = "shut"
    /\ UNCHANGED <<up, rollout, buffer, train, cap, disk, saved, ghosts>>

\* A read: inside the window one after the other; an early one as soon as the pump is idle.
Read(what, then, v) ==
    /\ up = "running"
    /\ ~cap[what].set
    /\ Capture(what, v)
    /\ IF Early(what)
       THEN /\ tp \in {"idle", "saving"} /\ sv = "none" /\ saved < version
            /\ tp' = "saving"
            /\ UNCHANGED sv
       ELSE /\ sv = what
            /\ sv' = then
            /\ UNCHANGED tp
    /\ UNCHANGED <<up, rollout, buffer, version, short, computed, door, disk, saved, ghosts>>

\* Inside the window, an artifact that was read too early is passed over.
PassOver(what, then) ==
    /\ up = "running"
    /\ Early(what)
    /\ sv = what
    /\ sv' = then
    /\ UNCHANGED <<up, rollout, buffer, train, door, cap, disk, saved, ghosts>>

ReadCursor == Read("cursor", "loader", cursor) \/ PassOver("cursor", "loader")
ReadLoader ==
    Read("loader", "pool", [pos |-> pos, epoch |-> epoch]) \/ PassOver("loader", "pool")
ReadSparePool == Read("pool", "index", pool) \/ PassOver("pool", "index")
ReadIndex == Read("index", "ledger", index) \/ PassOver("index", "ledger")
LedgerWithout(ix) ==
    [led |-> Subtracted(led, ix), idx |-> idx, wt |-> wt, short |-> SavedShort,
     dropped |-> dropped, weights |-> Weights]
ReadLedger ==
    \/ Read("ledger", "plane", LedgerWithout(IF cap.index.set THEN cap.index.v ELSE {}))
    \/ PassOver("ledger", "plane")

\* What is read in the step of a narrow cut.
Now(what, v) == IF Early(what) THEN cap[what] ELSE Set(v)

\* Narrow cut: all that is in memory, in one step; the door opens in it.
TakeCut ==
    /\ up = "running"
    /\ NarrowCut
    /\ sv = "requested"
    /\ MayOpen
    /\ cap' = [cap EXCEPT !.cursor = Now("cursor", cursor),
                          !.loader = Now("loader", [pos |-> pos, epoch |-> epoch]),
                          !.pool = Now("pool", pool),
                          !.index = Now("index", index),
                          !.order = IF Early("index") THEN @ ELSE order,
                          !.ledger = Now("ledger", LedgerWithout(index))]
    /\ sv' = "copy"
    /\ door' = DoorAfterCut
    /\ tp' = IF PumpAwaitsCopy THEN tp ELSE "idle"
    /\ UNCHANGED <<up, rollout, buffer, version, short, computed, disk, saved, ghosts>>

\* Narrow cut: the trainer copies what it is; then the train pump goes on.
CopyPolicy ==
    /\ up = "running"
    /\ sv = "copy"
    /\ cap' = [cap EXCEPT !.ledger.v.weights.trained = trained]
    /\ sv' = "plane"
    /\ tp' = IF tp = "saving" THEN "idle" ELSE tp
    /\ UNCHANGED <<up, rollout, buffer, version, short, computed, door, disk, saved, ghosts>>

\* The rows are those of the index; under the narrow cut a put may be under way as well.
InventoryHolds ==
    /\ RowsOf(cap.index.v) \subseteq rows
    /\ NarrowCut \/ rows = RowsOf(cap.index.v)

\* The plane writes its key map, and in the full window its rows as well, inside the window.
SavePlane ==
    /\ up = "running"
    /\ sv = "plane"
    /\ InventoryHolds
    /\ \E K \in KeyMaps :
        cap' = IF NarrowCut
               THEN [cap EXCEPT !.keys = K]
               ELSE [cap EXCEPT !.keys = K, !.rows = rows, !.derived = derived, !.files = Units]
    /\ sv' = IF NarrowCut THEN "files" ELSE "close"
    /\ UNCHANGED <<up, rollout, buffer, train, door, disk, saved, ghosts>>

\* The window ends.
CloseCut ==
    /\ up = "running"
    /\ sv = "close"
    /\ door' = "open"
    /\ sv' = "files"
    /\ UNCHANGED <<up, rollout, buffer, train, cap, disk, saved, ghosts>>

\* Narrow cut: one unit writes its rows, as they are by now.
SaveUnit(u) ==
    /\ up = "running"
    /\ NarrowCut
    /\ UnitsMaySave
    /\ u \notin cap.files
    /\ \E S \in UnitFiles(u) :
        cap' = [cap EXCEPT !.rows = @ \cup S,
                           !.derived = @ \cup {p \in derived : <<p, u>> \in S},
                           !.files = @ \cup {u}]
    /\ UNCHANGED <<up, rollout, buffer, train, sv, door, disk, saved, ghosts>>

\* Narrow cut: clears that waited for the units, or for a save that has failed since.
FlushDeferred ==
    /\ up = "running"
    /\ deferred # {}
    /\ MayFlush
    /\ rows' = rows \ RowsOf(deferred)
    /\ derived' = derived \ deferred
    /\ deferred' = {}
    /\ UNCHANGED <<up, rollout, finished, claimed, train, save, ghosts>>

Write(file, after) ==
    /\ up = "running"
    /\ sv = "files"
    /\ file \notin cap.files
    /\ after \subseteq cap.files
    /\ cap' = [cap EXCEPT !.files = @ \cup {file}]
    /\ UNCHANGED <<up, rollout, buffer, train, sv, door, disk, saved, ghosts>>

WritePolicy == Write("policy", {})
\* The sidecars name all files of trainer and plane; clears that waited for the units go first.
WriteSidecars == deferred = {} /\ Write("sidecars", {"policy"} \cup Units)
WriteManifest == Write("manifest", {"policy", "sidecars"} \cup Units)

\* What the rename makes resolvable.
Bundle ==
    [version |-> WeightsOfTheCut.version, cursor |-> cap.cursor.v, pos |-> cap.loader.v.pos,
     epoch |-> cap.loader.v.epoch, pool |-> cap.pool.v, index |-> cap.index.v,
     order |-> cap.order, led |-> cap.ledger.v.led, idx |-> cap.ledger.v.idx, wt |-> cap.ledger.v.wt,
     short |-> cap.ledger.v.short, keys |-> cap.keys, rows |-> cap.rows,
     derived |-> cap.derived, trained |-> WeightsOfTheCut.trained,
     dropped |-> cap.ledger.v.dropped, files |-> cap.files,
     of |-> [a \in Artifacts |-> WeightsOfTheCut.version]]

\* The files that the rename makes resolvable are all of this save.
Renamed == Bundle

\* One rename, after everything is durable.
PublishBundle ==
    /\ up = "running"
    /\ sv = "files"
    /\ PublishNeeds \subseteq cap.files
    /\ disk' = Renamed
    /\ saved' = Renamed.version
    /\ cap' = NoCapture
    /\ sv' = "published"
    /\ UNCHANGED <<up, rollout, buffer, train, door, ghosts>>

\* Old bundles go, after the new one is durable; the train pump goes on.
PruneBundles ==
    /\ up = "running"
    /\ sv = "published"
    /\ sv' = "none"
    /\ tp' = IF NarrowCut THEN tp ELSE "idle"
    /\ UNCHANGED <<up, rollout, buffer, version, short, computed, door, cap, disk, saved, ghosts>>

\* The save fails: the door opens, nothing is pinned any more, the last bundle stays, the run
\* goes on.  While the cut waits for slots there is nothing of the save that can fail.
FailSave ==
    /\ up = "running"
    /\ sv \notin {"none", "published"}
    /\ sv = "requested" => MayOpen
    /\ failures < MaxFailures
    /\ failures' = failures + 1
    /\ door' = "open"
    /\ cap' = NoCapture
    /\ sv' = "none"
    /\ tp' = IF tp = "saving" THEN "idle" ELSE tp
    /\ saved' = MaxOf(saved, NoBundle)
    /\ deferred' = DeferredOnFailure
    /\ UNCHANGED <<up, rollout, finished, rows, derived, claimed, version, short, computed, disk,
                   trained, dropped, crashes>>

----------------------------------------------------------------------------
(* Start, crash and restore *)

\* A controller starts; it resumes if there is a bundle.
BeginRun ==
    /\ up = "down"
    /\ up' = "begun"
    /\ UNCHANGED <<rollout, buffer, train, save, ghosts>>

MayCrash ==
    /\ crashes < MaxCrashes
    /\ up # "down"
    /\ CrashAnywhere \/ sv = "published"

\* Everything but the disk is gone; the surviving history is that of the bundle.
Crash ==
    /\ MayCrash
    /\ crashes' = crashes + 1
    /\ up' = "down"
    /\ pos' = 0 /\ epoch' = 0 /\ raising' = FALSE /\ pool' = {}
    /\ led' = AllNone /\ idx' = AllMinus /\ wt' = AllMinus /\ task' = AllNone
    /\ gate' = FALSE /\ cursor' = -1
    /\ index' = {} /\ order' = <<>>
    /\ rows' = {} /\ derived' = {} /\ deferred' = {} /\ claimed' = {}
    /\ computed' = {}
    /\ version' = 0 /\ short' = Nothing.short /\ tp' = "idle"
    /\ sv' = "none" /\ door' = "open" /\ cap' = NoCapture /\ saved' = NoBundle
    /\ trained' = disk.trained /\ dropped' = disk.dropped
    /\ UNCHANGED <<disk, failures>>

\* One stage of the restore after the other.
Stage(from, to) ==
    /\ up = from
    /\ up' = to

\* The bundle is whole, of one save, and fits.
VerifyBundle ==
    /\ Published
    /\ Stage("begun", IF disk.files = AllFiles /\ Bound /\ Fits
                     THEN "verified" ELSE "refused")
    /\ UNCHANGED <<rollout, buffer, train, save, ghosts>>

\* The bootstrap client brings rows back, into a plane that nobody has used.
LoadPlane ==
    /\ Stage("verified", IF Untouched THEN "loaded" ELSE "refused")
    /\ rows' = Pruned(disk.rows)
    /\ derived' = disk.derived \cap KeysOf(rows')
    /\ UNCHANGED <<rollout, finished, deferred, claimed, train, save, ghosts>>

\* The controller's own client: the plane holds the rows of the index, and no others.
ConnectPlane ==
    /\ Stage("loaded", IF disk.index \subseteq disk.keys /\ rows = RowsOf(disk.index)
                       THEN "connected" ELSE "refused")
    /\ UNCHANGED <<rollout, buffer, train, save, ghosts>>

RestoreIndex ==
    /\ Stage("connected", "indexed")
    /\ index' = disk.index
    /\ order' = disk.order
    /\ idx' = [p \in Prompts |-> IF p \in disk.index THEN disk.idx[p] ELSE -1]
    /\ wt' = [p \in Prompts |-> IF p \in disk.index THEN disk.wt[p] ELSE -1]
    /\ UNCHANGED <<pos, epoch, raising, pool, led, task, gate, cursor, plane, claimed, train, save,
                   ghosts>>

RestoreSparePool ==
    /\ Stage("indexed", "pooled")
    /\ pool' = disk.pool
    /\ UNCHANGED <<pos, epoch, raising, led, idx, wt, task, gate, cursor, buffer, train, save,
                   ghosts>>

RestoreLedger ==
    /\ Stage("pooled", "owned")
    /\ led' = SubtractedAgain(disk.led, disk.index)
    /\ idx' = disk.idx
    /\ wt' = disk.wt
    /\ short' = disk.short
    /\ UNCHANGED <<pos, epoch, raising, pool, task, gate, cursor, buffer, version, tp, computed, save,
                   ghosts>>

\* Cursor, loader and version; the cursor must not be below a stamp.
RestoreCursor ==
    /\ Stage("owned", IF CursorHolds
                      THEN "restored" ELSE "refused")
    /\ cursor' = disk.cursor
    /\ pos' = disk.pos
    /\ epoch' = disk.epoch
    /\ version' = disk.version
    /\ UNCHANGED <<raising, pool, led, idx, wt, task, gate, buffer, short, tp, computed, save,
                   ghosts>>

\* The controller is complete.
StartPumps ==
    /\ up = "restored" \/ (up = "begun" /\ ~Published)
    /\ up' = "started"
    /\ saved' = IF Published THEN version ELSE StartDue
    /\ UNCHANGED <<rollout, buffer, train, sv, door, cap, disk, ghosts>>

\* The run has served everything and saved it, or the restore has refused.
EndRun ==
    /\ \/ up = "running" /\ Finished /\ saved = version
       \/ up = "refused"
    /\ UNCHANGED vars

----------------------------------------------------------------------------
(* What goes on by itself. *)
Progress ==
    \/ ReserveBatch \/ FillSparePool \/ RaiseEpoch \/ DrainSparePool \/ OpenGate
    \/ CommitAdmission
    \/ \E p \in Prompts :
        \/ LaunchGroup(p) \/ BeginCommit(p) \/ PutRows(p) \/ CommitGroup(p) \/ DropGroup(p)
        \/ AbortStale(p)
    \/ \E p, q \in Prompts : SubstituteGroup(p, q)
    \/ \E p \in Prompts, u \in Units : StoreRow(p, u)
    \/ \E u \in Units : SaveUnit(u)
    \/ FlushDeferred
    \/ EvictGroups
    \/ \E S \in Selections : SelectGroups(S)
    \/ WriteAdvantages \/ TrainStep \/ ClearRows \/ RaiseVersion \/ SyncWeights
    \/ RequestCut \/ OpenCut \/ ReadCursor \/ ReadLoader \/ ReadSparePool \/ ReadIndex
    \/ ReadLedger \/ TakeCut \/ CopyPolicy \/ SavePlane \/ CloseCut
    \/ WritePolicy \/ WriteSidecars \/ WriteManifest
    \/ PublishBundle \/ PruneBundles
    \/ BeginRun \/ VerifyBundle \/ LoadPlane \/ ConnectPlane \/ RestoreIndex \/ RestoreSparePool
    \/ RestoreLedger \/ RestoreCursor \/ StartPumps
    \/ Late

(* What may happen to it. *)
Trouble ==
    \/ \E p \in Prompts : RollbackGroup(p) \/ FailGroup(p)
    \/ FailSave
    \/ Crash

Next == Progress \/ Trouble \/ EndRun

\* A run is finite, so it is enough that something that can go on does.
Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ WF_vars(Progress)
=============================================================================
