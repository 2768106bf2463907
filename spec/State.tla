------------------------------- MODULE State -------------------------------
(***************************************************************************)
(* What a run is configured with, what its state is, and the words in      *)
(* which the other modules speak of it.                                    *)
(*                                                                         *)
(* A prompt stands for one occurrence: <<batch, member>>, batches counted  *)
(* over all epochs.                                                        *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, Sequences

(* The configuration of a run.  Nothing here bounds a model: see MCCutlock. *)
CONSTANTS
    Batches,        \* batches of the dataloader over all epochs
    PerEpoch,       \* batches per epoch
    Member,         \* the prompts of a batch, as many as a training step has
    Window,         \* gate window
    Sampler,        \* "in_order", "ready_first", "weight_fifo" or "windowed"
    SpareMark,      \* low-water mark of the spare pool, 0 for none
    Capacity,       \* places of the buffer; the protocol waits for a free one
    Units,          \* storage units of the plane; every group has rows in each
    Narrow          \* save mode: TRUE, the cut is one step and rows are saved while the pumps go
                    \* on; FALSE, all of it is saved inside a window

(* Where a start stands. *)
VARIABLES
    up              \* "down", "running", or how far the start has come

(* Who owns a prompt between the dataloader and the buffer. *)
VARIABLES
    pos,            \* batches that the loader has handed out
    epoch,          \* the loader's epoch counter
    raising,        \* the loader's slot is open: the epoch is still to be raised in it
    pool,           \* spare pool
    led,            \* ledger: prompt -> "none", "RESERVED", "ADMITTED"
    idx,            \* prompt -> dispatch index of its batch, -1 for none
    wt,             \* prompt -> start weight, -1 for none
    task,           \* prompt -> "none", "gen", "committing", "put", "failed"
    gate,           \* the gate was found open for the RESERVED batch
    cursor          \* the sampler's dispatch index

position == <<pos, epoch, raising>>
records  == <<led, idx, wt>>
dispatch == <<gate, cursor>>
rollout  == <<position, pool, records, task, dispatch>>

(* Finished groups, and their rows in the plane. *)
VARIABLES
    index,          \* finished groups
    order,          \* the same in the order of their commits
    rows,           \* <<group, unit>> whose data is in the plane
    derived,        \* groups whose rows carry advantages
    deferred,       \* groups whose clear waits for the snapshot of their rows
    claimed         \* groups of the open training step

ready    == <<index, order>>
plane    == <<rows, derived, deferred>>
buffer   == <<ready, plane, claimed>>

(* The trainer. *)
VARIABLES
    version,        \* trainer version
    short,          \* step -> groups it goes without
    tp,             \* train pump
    computed        \* groups of the open step whose advantages were computed in it

progress == <<version, short, computed>>
train    == <<tp, progress>>

(* The save and the published bundle. *)
VARIABLES
    sv,             \* save
    door,           \* "open", "closing" (a cut waits), "shut" (a cut is open)
    cap,            \* what the open save has captured
    disk,           \* the published bundle
    saved           \* version of the last bundle, NoBundle, or StartDue

stored == <<disk, saved>>
save   == <<sv, door, cap, stored>>

(* What has happened so far; the protocol does not look at it. *)
VARIABLES
    trained,        \* prompt -> times trained in the surviving history
    dropped,        \* prompts dropped on purpose in the surviving history
    failures,       \* failed rollouts, failed commits and failed saves, together
    crashes

surviving == <<trained, dropped>>
history   == <<surviving, failures, crashes>>

vars == <<up, rollout, buffer, train, save, history>>

----------------------------------------------------------------------------
(* Vocabulary *)

Size == Cardinality(Member)
Prompts == (1..Batches) \X Member
Members(b) == {p \in Prompts : p[1] = b}
\* Training steps.
Steps == Nat
Min(a, b) == IF a < b THEN a ELSE b
MaxOf(a, b) == IF a > b THEN a ELSE b

NoBundle == -1
\* A run that starts from nothing saves before it trains.
StartDue == -2

With(f, S, v) == [p \in Prompts |-> IF p \in S THEN v ELSE f[p]]

Reserved == {p \in Prompts : led[p] = "RESERVED"}
Admitted == {p \in Prompts : led[p] = "ADMITTED"}
Owned    == {p \in Prompts : led[p] # "none"}
Running  == {p \in Prompts : task[p] # "none"}

\* Of two prompts, the one that the loader handed out first.
Earlier(p, q) == p[1] < q[1] \/ (p[1] = q[1] /\ p[2] < q[2])

Artifacts == {"cursor", "loader", "pool", "index", "ledger", "rows"}
\* All that is on disk was written by one save.
OfOneSave == \A a, b \in Artifacts : disk.of[a] = disk.of[b]
AllFiles == {"policy", "sidecars", "manifest"} \cup Units
Published == disk.files # {}

Exhausted == pos = Batches
\* Nothing more will be committed.
Settled == Exhausted /\ pool = {} /\ Owned = {}
Finished == Settled /\ deferred = {} /\ index = {} /\ tp = "idle" /\ sv = "none" /\ ~raising

\* Places of the buffer: a group has one from its launch until it is selected or gone.
Held == Cardinality(index) + Cardinality(Running)

RowsOf(S) == S \X Units
\* The groups that the plane lists.
KeysOf(R) == {r[1] : r \in R}

\* Where the loader's epoch counter stands between two slots.
EpochOf(n) == n \div PerEpoch

----------------------------------------------------------------------------
(* The state of a run that has nothing behind it *)

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
=============================================================================
