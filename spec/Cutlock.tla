------------------------------ MODULE Cutlock ------------------------------
(***************************************************************************)
(* The protocol: rollout pump, admission, commit, train pump, save, crash  *)
(* and restore.                                                            *)
(*                                                                         *)
(* An action here has the name that it has in `cutlock.alphabet`, in the   *)
(* event log and in traces.  What Python does between two awaits is one    *)
(* action.                                                                 *)
(***************************************************************************)
EXTENDS Protections

----------------------------------------------------------------------------
(* Rollout pump: from the loader to the ledger *)

PoolLow == cursor >= 0 /\ Cardinality(pool) < SpareMark

\* Places that are taken or that admitted groups wait for.
Wanted == Held + Cardinality(Unlaunched)

\* No earlier batch is left: RESERVED prompts are admitted, ADMITTED ones have places.
PumpFree == Reserved = {} /\ Wanted <= Places /\ ~raising

Advance ==
    /\ up = "running"
    /\ PumpFree
    /\ ~Exhausted
    /\ SlotOpen("loader_advance")
    /\ pos' = pos + 1
    /\ raising' = ((pos + 1) % PerEpoch = 0)
    /\ UNCHANGED <<up, epoch, idx, wt, task, dispatch, buffer, train, save, history>>

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
    /\ UNCHANGED <<up, pos, pool, records, task, dispatch, buffer, train, save, history>>

\* The data has ended and every launched group has settled: spares become a batch.
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
    /\ UNCHANGED <<up, position, idx, wt, task, dispatch, buffer, train, save, history>>

\* The wait at the gate ends, outside every slot, once the first group has a place.
OpenGate ==
    /\ up = "running"
    /\ ~raising
    /\ Reserved # {}
    /\ Wanted < Places
    /\ ~gate
    /\ GateOpen
    /\ gate' = TRUE
    /\ UNCHANGED <<up, position, pool, records, task, cursor, buffer, train, save, history>>

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
    /\ UNCHANGED <<up, position, pool, task, buffer, version, computed, tp, save, history>>

----------------------------------------------------------------------------
(* Rollout pump: from the ledger to the buffer *)

SetTask(p, t) == task' = [task EXCEPT ![p] = t]

\* Generation starts; after a restore it starts again for what was ADMITTED.
LaunchGroup(p) ==
    /\ up = "running"
    /\ led[p] = "ADMITTED"
    /\ task[p] \in {"none", "failed"}
    /\ task[p] = "none" => Held + Cardinality(Before(p)) < Places
    /\ MayLaunch
    /\ SetTask(p, "gen")
    /\ UNCHANGED <<up, position, pool, records, dispatch, buffer, train, save, history>>

\* A finished rollout enters the slot of its commit.
BeginCommit(p) ==
    /\ up = "running"
    /\ task[p] = "gen"
    /\ SlotOpen("group_commit")
    /\ SetTask(p, "committing")
    /\ UNCHANGED <<up, position, pool, records, dispatch, buffer, train, save, history>>

\* One unit of the plane stores its part of a group; a put can be torn across units.
StoreRow(p, u) ==
    /\ up = "running"
    /\ PutIsTorn
    /\ Storing(p)
    /\ <<p, u>> \notin rows
    /\ rows' = rows \cup {<<p, u>>}
    /\ UNCHANGED <<up, rollout, ready, derived, deferred, claimed, train, save, history>>

\* The plane has stored all rows of the group.
PutRows(p) ==
    /\ up = "running"
    /\ task[p] = "committing"
    /\ PutIsTorn => RowsOf({p}) \subseteq rows
    /\ rows' = rows \cup RowsOf({p})
    /\ SetTask(p, "put")
    /\ UNCHANGED <<up, position, pool, records, dispatch, ready, derived, deferred, claimed,
                   train, save, history>>

\* The group is ready and its ledger record gone, in one step; the slot ends.
CommitGroup(p) ==
    /\ up = "running"
    /\ task[p] = "put"
    /\ index' = index \cup {p}
    /\ order' = Recorded(p)
    /\ led' = With(led, ForgetOnCommit(p), "none")
    /\ SetTask(p, AfterCommit)
    /\ UNCHANGED <<up, position, pool, idx, wt, dispatch, plane, claimed, train, save, history>>

\* The commit fails or is cancelled: its rows are cleared before the slot ends.
RollbackGroup(p) ==
    /\ up = "running"
    /\ task[p] \in {"committing", "put"}
    /\ MayFail
    /\ failures' = failures + 1
    /\ rows' = rows \ RowsOf(ClearedOnRollback(p))
    /\ SetTask(p, "failed")
    /\ UNCHANGED <<up, position, pool, records, dispatch, ready, derived, deferred, claimed,
                   train, save, surviving, crashes>>

\* Generation fails.
FailGroup(p) ==
    /\ up = "running"
    /\ task[p] = "gen"
    /\ MayFail
    /\ failures' = failures + 1
    /\ SetTask(p, "failed")
    /\ UNCHANGED <<up, position, pool, records, dispatch, buffer, train, save, surviving, crashes>>

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
    /\ UNCHANGED <<up, position, pool, dispatch, buffer, version, computed, tp, save, trained,
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
    /\ UNCHANGED <<up, position, dispatch, buffer, train, save, trained, failures, crashes>>

\* Watchdog: a rollout that can never train any more, in one slot.
AbortStale(p) ==
    /\ up = "running"
    /\ tp = "sync"
    /\ Sampler = "windowed"
    /\ {p} \in NextStale
    /\ SlotOpen("stale_abort")
    /\ led' = [led EXCEPT ![p] = "none"]
    /\ idx' = [idx EXCEPT ![p] = -1]
    /\ wt' = [wt EXCEPT ![p] = -1]
    /\ dropped' = dropped \cup {p}
    /\ SetTask(p, "none")
    /\ UNCHANGED <<up, position, pool, dispatch, buffer, train, save, trained, failures, crashes>>

----------------------------------------------------------------------------
(* Train pump *)

\* Rows are cleared; those of pinned groups are cleared later.
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
    /\ UNCHANGED <<up, position, pool, task, dispatch, claimed, train, save, trained, failures,
                   crashes>>

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
    /\ UNCHANGED <<up, position, pool, task, dispatch, plane, version, computed, save, history>>

\* Advantages are recomputed and written onto the claimed rows.
WriteAdvantages ==
    /\ up = "running"
    /\ tp = "advantages"
    /\ computed' = Computes(claimed)
    /\ derived' = derived \cup claimed
    /\ tp' = "train"
    /\ UNCHANGED <<up, rollout, ready, rows, deferred, claimed, version, short, save, history>>

\* The optimizer steps.
TrainStep ==
    /\ up = "running"
    /\ tp = "train"
    /\ trained' = [p \in Prompts |-> IF p \in claimed THEN Min(2, trained[p] + 1) ELSE trained[p]]
    /\ tp' = "clear"
    /\ UNCHANGED <<up, rollout, buffer, progress, save, dropped, failures, crashes>>

\* Delete the rows of the step and end its claim, in one slot.
ClearRows ==
    /\ up = "running"
    /\ tp = "clear"
    /\ SlotOpen("clear")
    /\ Clear(claimed)
    /\ claimed' = {}
    /\ computed' = {}
    /\ tp' = "raise"
    /\ UNCHANGED <<up, rollout, ready, version, short, save, history>>

\* The version moves, and with it the gate.
RaiseVersion ==
    /\ up = "running"
    /\ tp = "raise"
    /\ version' = version + 1
    /\ tp' = "sync"
    /\ UNCHANGED <<up, rollout, buffer, short, computed, save, history>>

\* Generators load the new weights once stale rollouts are aborted.  The first time, this starts
\* the pumps.
SyncWeights ==
    /\ \/ up = "started"
       \/ /\ up = "running"
          /\ tp = "sync"
          /\ Sampler = "windowed" => Stale = {}
    /\ up' = "running"
    /\ tp' = "idle"
    /\ UNCHANGED <<rollout, buffer, progress, save, history>>

----------------------------------------------------------------------------
(* Save: runs in the train pump's task; a version is published once at most *)

Capture(field, v) ==
    cap' = [cap EXCEPT ![field] = Set(v), !.order = IF field = "index" THEN order ELSE @]

\* The trainer's state: its version and what it has trained on.
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
    /\ UNCHANGED <<up, rollout, buffer, progress, cap, stored, history>>

\* Full window: the last slot has ended, the window begins.
OpenCut ==
    /\ up = "running"
    /\ ~NarrowCut
    /\ sv = "requested"
    /\ MayOpen
    /\ sv' = "cursor"
    /\ door' = "shut"
    /\ UNCHANGED <<up, rollout, buffer, train, cap, stored, history>>

\* A read.  Reads follow one another inside the window; an early one needs only an idle pump.
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
    /\ UNCHANGED <<up, rollout, buffer, progress, door, stored, history>>

\* Inside the window, an artifact that was read too early is skipped.
PassOver(what, then) ==
    /\ up = "running"
    /\ Early(what)
    /\ sv = what
    /\ sv' = then
    /\ UNCHANGED <<up, rollout, buffer, train, door, cap, stored, history>>

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

\* Narrow cut: one step reads all that is in memory, and opens the door.
TakeCut ==
    /\ up = "running"
    /\ NarrowCut
    /\ sv = "requested"
    /\ MayOpen
    /\ cap' = [cap EXCEPT !.cursor = Now("cursor", cursor),
                          !.pool = Now("pool", pool),
                          !.index = Now("index", index),
                          !.order = IF Early("index") THEN @ ELSE order,
                          !.ledger = Now("ledger", LedgerWithout(index)),
                          !.loader = Now("loader", [pos |-> pos, epoch |-> epoch])]
    /\ sv' = "copy"
    /\ door' = DoorAfterCut
    /\ tp' = IF PumpAwaitsCopy THEN tp ELSE "idle"
    /\ UNCHANGED <<up, rollout, buffer, progress, stored, history>>

\* Narrow cut: the trainer copies its state; then the train pump goes on.
CopyPolicy ==
    /\ up = "running"
    /\ sv = "copy"
    /\ cap' = [cap EXCEPT !.ledger.v.weights.trained = trained]
    /\ sv' = "plane"
    /\ tp' = IF tp = "saving" THEN "idle" ELSE tp
    /\ UNCHANGED <<up, rollout, buffer, progress, door, stored, history>>

\* The rows are those of the index; under the narrow cut there may be those of a put in progress.
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
    /\ UNCHANGED <<up, rollout, buffer, train, door, stored, history>>

\* The window ends.
CloseCut ==
    /\ up = "running"
    /\ sv = "close"
    /\ door' = "open"
    /\ sv' = "files"
    /\ UNCHANGED <<up, rollout, buffer, train, cap, stored, history>>

\* Narrow cut: one unit writes the rows that it has now.
SaveUnit(u) ==
    /\ up = "running"
    /\ NarrowCut
    /\ UnitsMaySave
    /\ u \notin cap.files
    /\ \E S \in UnitFiles(u) :
        cap' = [cap EXCEPT !.rows = @ \cup S,
                           !.derived = @ \cup {p \in derived : <<p, u>> \in S},
                           !.files = @ \cup {u}]
    /\ UNCHANGED <<up, rollout, buffer, train, sv, door, stored, history>>

\* Narrow cut: the clears that waited for the units, or for a save that has failed, are done.
FlushDeferred ==
    /\ up = "running"
    /\ deferred # {}
    /\ MayFlush
    /\ rows' = rows \ RowsOf(deferred)
    /\ derived' = derived \ deferred
    /\ deferred' = {}
    /\ UNCHANGED <<up, rollout, ready, claimed, train, save, history>>

Write(file, after) ==
    /\ up = "running"
    /\ sv = "files"
    /\ file \notin cap.files
    /\ after \subseteq cap.files
    /\ cap' = [cap EXCEPT !.files = @ \cup {file}]
    /\ UNCHANGED <<up, rollout, buffer, train, sv, door, stored, history>>

WritePolicy == Write("policy", {})
\* The sidecars name all files of trainer and plane.  Clears that waited for the units come first.
WriteSidecars == deferred = {} /\ Write("sidecars", {"policy"} \cup Units)
WriteManifest == Write("manifest", {"policy", "sidecars"} \cup Units)

\* The bundle that the rename publishes.
Bundle ==
    [version |-> WeightsOfTheCut.version, cursor |-> cap.cursor.v, pos |-> cap.loader.v.pos,
     epoch |-> cap.loader.v.epoch, pool |-> cap.pool.v, index |-> cap.index.v,
     order |-> cap.order, led |-> cap.ledger.v.led, idx |-> cap.ledger.v.idx,
     wt |-> cap.ledger.v.wt, short |-> cap.ledger.v.short, keys |-> cap.keys,
     rows |-> cap.rows, derived |-> cap.derived, trained |-> WeightsOfTheCut.trained,
     dropped |-> cap.ledger.v.dropped, files |-> cap.files,
     of |-> [a \in Artifacts |-> WeightsOfTheCut.version]]

\* The rename publishes files of this save only.
Renamed == Bundle

\* One rename publishes the bundle, after everything is durable.
PublishBundle ==
    /\ up = "running"
    /\ sv = "files"
    /\ PublishNeeds \subseteq cap.files
    /\ disk' = Renamed
    /\ saved' = Renamed.version
    /\ cap' = NoCapture
    /\ sv' = "published"
    /\ UNCHANGED <<up, rollout, buffer, train, door, history>>

\* Old bundles are removed once the new one is durable; the train pump goes on.
PruneBundles ==
    /\ up = "running"
    /\ sv = "published"
    /\ sv' = "none"
    /\ tp' = IF NarrowCut THEN tp ELSE "idle"
    /\ UNCHANGED <<up, rollout, buffer, progress, door, cap, stored, history>>

\* The save fails: the door opens, rows are no longer pinned, the last bundle stays, and the run
\* goes on.  While the cut waits for slots, nothing of the save has begun that could fail.
FailSave ==
    /\ up = "running"
    /\ sv \notin {"none", "published"}
    /\ sv = "requested" => MayOpen
    /\ MayFail
    /\ failures' = failures + 1
    /\ door' = "open"
    /\ cap' = NoCapture
    /\ sv' = "none"
    /\ tp' = IF tp = "saving" THEN "idle" ELSE tp
    /\ saved' = MaxOf(saved, NoBundle)
    /\ deferred' = DeferredOnFailure
    /\ UNCHANGED <<up, rollout, ready, rows, derived, claimed, progress, disk, surviving,
                   crashes>>

----------------------------------------------------------------------------
(* Start, crash and restore *)

\* A controller starts; it resumes if there is a bundle.
BeginRun ==
    /\ up = "down"
    /\ up' = "begun"
    /\ UNCHANGED <<rollout, buffer, train, save, history>>

\* Everything but the disk is gone; the surviving history is that of the bundle.
Crash ==
    /\ up # "down"
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

\* The stages of the restore follow one another.
Stage(from, to) ==
    /\ up = from
    /\ up' = to

\* The bundle is complete, of one save, and fits into the buffer.
VerifyBundle ==
    /\ Published
    /\ Stage("begun", IF disk.files = AllFiles /\ Bound /\ Fits
                     THEN "verified" ELSE "refused")
    /\ UNCHANGED <<rollout, buffer, train, save, history>>

\* The bootstrap client brings rows back, into a plane that nobody has used.
LoadPlane ==
    /\ Stage("verified", IF Untouched THEN "loaded" ELSE "refused")
    /\ rows' = Pruned(disk.rows)
    /\ derived' = disk.derived \cap KeysOf(rows')
    /\ UNCHANGED <<rollout, ready, deferred, claimed, train, save, history>>

\* The controller's own client checks that the plane holds the rows of the index, and no others.
ConnectPlane ==
    /\ Stage("loaded", IF disk.index \subseteq disk.keys /\ rows = RowsOf(disk.index)
                       THEN "connected" ELSE "refused")
    /\ UNCHANGED <<rollout, buffer, train, save, history>>

RestoreIndex ==
    /\ Stage("connected", "indexed")
    /\ index' = disk.index
    /\ order' = disk.order
    /\ idx' = [p \in Prompts |-> IF p \in disk.index THEN disk.idx[p] ELSE -1]
    /\ wt' = [p \in Prompts |-> IF p \in disk.index THEN disk.wt[p] ELSE -1]
    /\ UNCHANGED <<position, pool, led, task, dispatch, plane, claimed, train, save, history>>

RestoreSparePool ==
    /\ Stage("indexed", "pooled")
    /\ pool' = disk.pool
    /\ UNCHANGED <<position, records, task, dispatch, buffer, train, save, history>>

RestoreLedger ==
    /\ Stage("pooled", "owned")
    /\ led' = SubtractedAgain(disk.led, disk.index)
    /\ idx' = disk.idx
    /\ wt' = disk.wt
    /\ short' = disk.short
    /\ UNCHANGED <<position, pool, task, dispatch, buffer, version, computed, tp, save, history>>

\* Cursor, loader and version; the cursor must not be below a stamp.
RestoreCursor ==
    /\ Stage("owned", IF CursorHolds
                      THEN "restored" ELSE "refused")
    /\ cursor' = disk.cursor
    /\ pos' = disk.pos
    /\ epoch' = disk.epoch
    /\ version' = disk.version
    /\ UNCHANGED <<raising, pool, records, task, gate, buffer, short, computed, tp, save, history>>

\* The controller is complete.
StartPumps ==
    /\ up = "restored" \/ (up = "begun" /\ ~Published)
    /\ up' = "started"
    /\ saved' = IF Published THEN version ELSE StartDue
    /\ UNCHANGED <<rollout, buffer, train, sv, door, cap, disk, history>>

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

\* A run is finite, so one fairness condition is enough: what can go on does.
Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ WF_vars(Progress)
=============================================================================
