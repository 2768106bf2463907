----------------------------- MODULE Invariants -----------------------------
(***************************************************************************)
(* One named predicate per promise of the design, or part of one.          *)
(***************************************************************************)
EXTENDS Cutlock

TypeOK ==
    /\ pos \in 0..Batches
    /\ epoch \in 0..EpochOf(Batches)
    /\ pool \subseteq Prompts
    /\ led \in [Prompts -> {"none", "RESERVED", "ADMITTED"}]
    /\ \A p \in Prompts : idx[p] + 1 \in Steps /\ wt[p] + 1 \in Steps
    /\ task \in [Prompts -> {"none", "gen", "committing", "put", "failed", "late"}]
    /\ saved \in {NoBundle, StartDue} \cup Steps
    \* `order` has every group of `index` once, or nothing in a model that leaves choices open.
    /\ index \subseteq Prompts
    /\ Len(order) \in {0, Cardinality(index)}
    /\ {order[i] : i \in 1..Len(order)} \in {{}, index}
    /\ rows \subseteq Prompts \X Units /\ claimed \subseteq Prompts
    /\ door \in {"open", "closing", "shut"}

\* How many owners a prompt has.
Owners(p, thePool, theLed, theIndex, theClaim, theTrained, theDropped) ==
    Cardinality({o \in 1..6 :
        \/ o = 1 /\ p \in thePool
        \/ o = 2 /\ theLed[p] # "none"
        \/ o = 3 /\ p \in theIndex
        \/ o = 4 /\ p \in theClaim
        \/ o = 5 /\ theTrained[p] > 0
        \/ o = 6 /\ p \in theDropped})

\* A claimed group is owned by its step until its rows are cleared, trained or not.
OpenClaim == IF tp \in {"advantages", "train"} THEN claimed ELSE {}

\* P2, live: a prompt that the loader has handed out has one owner, every other has none.
OneOwner ==
    up = "running" => \A p \in Prompts :
        Owners(p, pool, led, index, OpenClaim, trained, dropped) = (IF p[1] <= pos THEN 1 ELSE 0)

\* P1 and P2, on disk.
DiskOneOwner ==
    \A p \in Prompts :
        Owners(p, disk.pool, disk.led, disk.index, {}, disk.trained, disk.dropped)
            = (IF p[1] <= disk.pos THEN 1 ELSE 0)

\* P3: no owned prompt was stamped above the saved cursor; the cursor is within the window.
DiskCursor ==
    /\ \A p \in Prompts :
        (p \in disk.index \/ disk.led[p] = "ADMITTED") => disk.idx[p] <= disk.cursor
    /\ Gated => disk.cursor <= disk.version + Window
    /\ \A p \in Prompts : disk.led[p] = "RESERVED" => disk.idx[p] = -1

\* P3: a stamp is given once: no more groups of one stamp are owned than a step takes.
DiskStamps ==
    Stamping => \A s \in Steps :
        Cardinality({p \in Prompts : (p \in disk.index \/ disk.led[p] = "ADMITTED")
                                     /\ disk.idx[p] = s}) <= Size

\* P3: a batch is admitted whole, by one admission.
OneAdmission ==
    SpareMark = 0 => \A p \in index \cup Admitted, q \in index \cup Owned :
        p[1] = q[1] => idx[p] = idx[q]

\* P3: loader position and epoch belong together.
DiskEpoch == disk.epoch = EpochOf(disk.pos)

\* P4: every row of the saved index is in the saved store, and listed.  Where no put can be in
\* progress (full window) there is no other row.
DiskRows ==
    /\ RowsOf(disk.index) \subseteq disk.rows
    /\ disk.index \subseteq disk.keys
    /\ NarrowCut \/ disk.rows = RowsOf(disk.index)

\* The same where a resume changes the way of cutting: only the saving run knows which one it used.
SavedRows == sv = "published" => DiskRows

\* P4, live between slots, and at the inventory check of the save.
LiveRows ==
    up = "running" /\ Holders = {} /\ tp # "clear" =>
        rows = RowsOf(index \cup claimed \cup deferred)
Inventory == up = "running" /\ sv = "plane" => InventoryHolds

\* Advantages that train were computed in the step that trains them.
FreshAdvantages == tp = "train" => computed = claimed

\* P5.
NoTwice == \A p \in Prompts : trained[p] < 2
NoLoss == up = "running" /\ Finished => \A p \in Prompts : trained[p] = 1 \/ p \in dropped

\* P6 and P8: what is published can be restored.
NoRefusal == up # "refused"
Complete == Published => disk.files = AllFiles
RestoresOneSave == up \in {"verified", "loaded", "connected", "restored"} => OfOneSave

\* P1: an open cut excludes slots that last.
CutExcludes == door = "shut" => Holders = {} /\ ~raising

\* The gate bounds how far dispatch runs ahead.
GateBound == Gated /\ up = "running" => cursor <= version + Window

----------------------------------------------------------------------------
(* P7, under `FairSpec`. *)

\* A requested cut is taken in the end, unless its save fails or the process dies.
CutIsTaken == (sv = "requested") ~> (sv # "requested")

\* A clear that a save keeps waiting happens in the end.
DeferredEnds == (deferred # {}) ~> (deferred = {})

\* Every admitted group ends trained or dropped; one that a crash takes back is admitted again.
AdmittedEnds == \A p \in Prompts : (led[p] = "ADMITTED") ~> (p \in dropped \/ trained[p] = 1)

\* A restore reaches running pumps, and the run its end.
RestoreEnds == (up = "down") ~> (up = "running")
RunEnds == <>[](up = "running" /\ Finished)
=============================================================================
