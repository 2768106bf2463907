--------------------------- MODULE MutantCutlock ---------------------------
(***************************************************************************)
(* The protocol with one protection broken: a configuration overrides one  *)
(* operator of the protocol by one of these.                               *)
(***************************************************************************)
EXTENDS MCCutlock

(* Artifacts read before the window. *)
EarlyCursor(what) == what = "cursor"
EarlyLoader(what) == what = "loader"
EarlyPool(what) == what = "pool"
EarlyIndex(what) == what = "index"
EarlyLedger(what) == what = "ledger"

(* One kind of change without a slot. *)
CommitUnslotted(kind) == door = "open" \/ kind = "group_commit"
AdmissionUnslotted(kind) == door = "open" \/ kind = "admission"
LoaderUnslotted(kind) == door = "open" \/ kind = "loader_advance"
DropUnslotted(kind) == door = "open" \/ kind = "drop"
StaleUnslotted(kind) == door = "open" \/ kind = "stale_abort"
DrainUnslotted(kind) == door = "open" \/ kind = "spare_drain"
TakeUnslotted(kind) == door = "open" \/ kind \in {"evict", "select", "clear"}

(* The cut. *)
OpensUndrained == TRUE
DoorStaysOpen == "open"

(* A slot that ends too early or too late. *)
EpochInAnotherSlot == Holders # {}
AdmissionHoldsTheGate == Holders # {} \/ raising \/ (Reserved # {} /\ ~gate)

\* A custom sampler's admit() waits in a slot and gives way as soon as a cut is asked for.
AdmissionGivesWay == Holders # {} \/ raising \/ (Reserved # {} /\ ~gate /\ sv # "requested")

\* The slot of a commit ends while its put still runs in a thread.
SlotEndsBeforePut == {"put"}

(* Ownership. *)

\* The ledger record goes at some later moment, outside every slot.
AfterCommitLate == "late"
ForgetLate ==
    \E p \in Prompts :
        /\ up = "running"
        /\ task[p] = "late"
        /\ task' = [task EXCEPT ![p] = "none"]
        /\ led' = [led EXCEPT ![p] = "none"]
        /\ UNCHANGED <<up, pos, epoch, raising, pool, idx, wt, gate, cursor, buffer, train, save,
                       history>>

ForgetNothing(p) == {}
TakeForgetsNothing(S) == {}
NotSubtracted(l, ix) == l
AdmittedOneByOne == {{p} : p \in Reserved}
NothingCredited == 0
ShortfallNotSaved == [s \in Steps |-> 0]
RowsLeftBehind(p) == {}

(* Restore. *)
NothingToLaunch == {}
LaunchesAfterAdmission ==
    crashes = 0 \/ \A p \in Reserved : disk.led[p] # "RESERVED"
LaunchesInAnyOrder(p) == {}

\* A resume with as few places as a step has prompts.
FewerPlaces == IF crashes > 0 THEN Size ELSE Capacity

NoEmptyStep == FALSE

\* A digest that binds index and ledger alone; some files are of the save before.
IndexAndLedgerBound == disk.of["index"] = disk.of["ledger"]
OfTheSaveBefore == {"cursor", "loader", "pool"}
Mixed ==
    [Bundle EXCEPT !.cursor = disk.cursor, !.pos = disk.pos, !.epoch = disk.epoch,
                   !.pool = disk.pool,
                   !.of = [a \in Artifacts |-> IF a \in OfTheSaveBefore
                                               THEN disk.of[a] ELSE @[a]]]

\* Somebody else puts rows into the plane of a resumed run.
Used == TRUE
NotAsked == TRUE
ForeignPut ==
    /\ up = "running"
    /\ crashes > 0
    /\ rows' = rows \cup ({<<0, CHOOSE m \in Member : TRUE>>} \X Units)
    /\ UNCHANGED <<up, rollout, ready, derived, deferred, claimed, train, save, history>>

(* Gate and publication. *)
GateAlwaysOpen == TRUE
PublishesWithoutManifest == {"policy", "sidecars"}
PublishesWithoutSidecars == {"policy"}

(* One file of the bundle is that of the save before. *)
StaleLoader == [Bundle EXCEPT !.pos = disk.pos, !.epoch = disk.epoch]
StaleCursor == [Bundle EXCEPT !.cursor = disk.cursor]
StalePool == [Bundle EXCEPT !.pool = disk.pool]
StaleIndex == [Bundle EXCEPT !.index = disk.index]
StaleLedger == [Bundle EXCEPT !.led = disk.led]
StaleRows == [Bundle EXCEPT !.rows = disk.rows]

(* The narrow cut. *)
PumpGoesOn == FALSE
DoorStaysClosed == "closing"
NothingDeferred(S) == {}
NothingWaits == {}

\* Clears that waited for a failed save wait for the next save, which waits for them.
FlushesInASave == sv = "files" /\ deferred \cap Pinned = {}

\* Rows are pinned when they are about to be written, instead of in the step of the cut.
PinnedLate ==
    IF sv = "files" /\ cap.index.set /\ ~(Units \subseteq cap.files) THEN cap.index.v ELSE {}

\* Rows are pinned until one unit has written them, not all.
PinnedForOneUnit ==
    IF cap.index.set /\ Units \cap cap.files = {} THEN cap.index.v ELSE {}

\* The slot of an admission raises the cursor in a later step than it stamps and marks.
CursorNotYet == cursor
RaisesCursorLate ==
    /\ up = "running"
    /\ \E p \in Admitted : idx[p] > cursor
    /\ cursor' = cursor + 1
    /\ UNCHANGED <<up, position, pool, records, task, gate, buffer, train, save, history>>

SavesOverlap == sv \in {"none", "files"}
NothingPruned(R) == R
KeysPruned(R) == {r \in R : r[1] \in disk.index \/ r[1] \notin disk.keys}
WeightsOfTheWrite == Weights
ComputesWhatIsMissing(S) == S \ derived

\* Units are saved before the index is read.
UnitsSaveEarly == sv \in {"requested", "files"}

\* A unit takes a while: its file may or may not have the rows that come or go meanwhile.
UnitTakesAWhile(u) ==
    LET own == {r \in rows : r[2] = u}
    IN  {S \in SUBSET own : {r \in own : r[1] \in cap.index.v} \subseteq S}

\* The key map and the units are written in any order: it may or may not have the keys of puts in
\* progress.
KeysInAnyOrder ==
    {K \in SUBSET (KeysOf(rows) \cup {p \in Prompts : task[p] = "committing"}) :
        cap.index.v \subseteq K}

\* A cancelled put goes on after its rows were cleared.
PutOutlivesItsSlot(p) == task[p] \in {"committing", "failed"}

\* A failure is that of a commit, so that there is a put that can go on.
OnlyCommitsFail == \A p \in Prompts : task[p] = "gen" => task'[p] # "failed"

\* A field of a pinned row is overwritten: the row is incomplete until the put has ended.
Overwrites ==
    \E p \in index \cap Pinned :
        /\ up = "running"
        /\ rows' = IF RowsOf({p}) \subseteq rows THEN rows \ RowsOf({p})
                   ELSE rows \cup RowsOf({p})
        /\ UNCHANGED <<up, rollout, ready, derived, deferred, claimed, train, save, history>>

\* The clear of a failed attempt comes late, and a later attempt has used the same keys.
ClearsLate ==
    \E p \in index :
        /\ up = "running"
        /\ failures > 0
        /\ rows' = rows \ RowsOf({p})
        /\ UNCHANGED <<up, rollout, ready, derived, deferred, claimed, train, save, history>>
=============================================================================
