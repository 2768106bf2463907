----------------------------- MODULE LockMutants -----------------------------
(* The lock with one protection broken: a configuration overrides an         *)
(* operator of `Lock` by one of these.                                       *)
EXTENDS Lock

\* A task that is cancelled in the turn of its hand-over simply leaves.
JustGoes == FALSE

\* Who comes queues behind those who were cancelled, too.
NobodyQueued == owner = "nobody" /\ queue = <<>>

\* Who comes takes it from who has it.
NobodyWaits == Waiting(queue) = <<>>

\* A lock that nobody waits for is left to somebody who does not exist.
Stranger == "stranger"

\* The last who came gets it first.
LastFirst(q) ==
    LET waiting == Waiting(q)
    IN  [i \in 1..Len(waiting) |-> waiting[Len(waiting) + 1 - i]]
=============================================================================
