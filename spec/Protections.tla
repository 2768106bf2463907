---------------------------- MODULE Protections ----------------------------
(***************************************************************************)
(* What the protocol assumes of its environment, and what protects it.     *)
(* Each is an operator of its own, so that a mutant overrides exactly one. *)
(***************************************************************************)
EXTENDS Samplers

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

\* A rollout, a commit or a save can fail, and the process die, at any time.
MayFail == TRUE
MayCrash == TRUE

----------------------------------------------------------------------------
(* Slots and cuts *)

\* Who holds a slot across an await: commits, and the loader while it raises the epoch.
HoldingTasks == {"committing", "put"}
Holders == {p \in Prompts : task[p] \in HoldingTasks}

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

----------------------------------------------------------------------------
(* Dispatch *)

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

----------------------------------------------------------------------------
(* Ownership *)

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

\* The shortfall is part of the cut.
SavedShort == short

\* Advantages are recomputed, whatever the rows carry.
Computes(S) == S

----------------------------------------------------------------------------
(* Publication and restore *)

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

\* The restore brings back what the captured index owns: no other key, and no data without one.
Pruned(R) == {r \in R : r[1] \in disk.index}

\* The restored cursor is not below a stamp.
CursorHolds == \A p \in index \cup Admitted : idx[p] <= disk.cursor

----------------------------------------------------------------------------
(* The narrow cut *)

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

\* The train pump waits between two steps until the cut is taken, and its policy copied.
PumpAwaitsCut == TRUE
PumpAwaitsCopy == TRUE

\* The cut is over in the step that takes it.
DoorAfterCut == "open"

\* Version and weights are those of the cut, however late they are written.
WeightsOfTheCut == cap.ledger.v.weights
=============================================================================
