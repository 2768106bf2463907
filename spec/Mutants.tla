------------------------------ MODULE Mutants ------------------------------
(***************************************************************************)
(* The protocol with one protection broken: a configuration overrides one  *)
(* operator of `Cutlock` by one of these.                                  *)
(***************************************************************************)
EXTENDS MC

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

(* Ownership. *)

\* The seeds' own text: the ledger record goes at some later moment, outside every slot.
AfterCommitLate == "late"
ForgetLate ==
    \E p \in Prompts :
        /\ up = "running"
        /\ task[p] = "late"
        /\ task' = [task EXCEPT ![p] = "none"]
        /\ led' = [led EXCEPT ![p] = "none"]
        /\ UNCHANGED <<up, pos, epoch, raising, pool, idx, wt, gate, cursor, buffer, train, save,
                       ghosts>>

ForgetNothing(p) == {}
TakeForgetsNothing(S) == {}
NotSubtracted(l, ix) == l
AdmittedOneByOne == {{p} : p \in Reserved}
NothingCredited == 0
ShortfallNotSaved == [s \in Steps |-> 0]
RowsLeftBehind(p) == {}

(* Restore. *)
NothingToLaunch == {}
LaunchesAfterAdmission == Reserved = {}

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
NothingDeferred(S) == {}
SavesOverlap == sv \in {"none", "files"}
NothingPruned(R) == R
KeysPruned(R) == {r \in R : r[1] \in disk.index \/ r[1] \notin disk.keys}
WeightsOfTheWrite == Weights
ComputesWhatIsMissing(S) == S \ derived
=============================================================================
