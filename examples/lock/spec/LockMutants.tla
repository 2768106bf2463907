----------------------------- MODULE LockMutants -----------------------------
(* The lock with one protection broken: a configuration overrides an         *)
(* operator of `Lock` by one of these.                                       *)
EXTENDS Lock

\* A task that is cancelled in the turn of its hand-over just goes.
JustGoes == FALSE

\* Who comes queues behind those who were cancelled, too.
NobodyQueued == owner = "nobody" /\ queue = <<>>

\* The last who came gets it first.
LastFirst(q) ==
    LET waiting == Waiting(q)
    IN  [i \in 1..Len(waiting) |-> waiting[Len(waiting) + 1 - i]]
=============================================================================
