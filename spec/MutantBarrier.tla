--------------------------- MODULE MutantBarrier ----------------------------
(* The barrier with one protection broken, by overriding one operator.      *)
EXTENDS Barrier

\* Slots enter while a cut waits.
DoorLetsSlotsIn(p) == p \in Writers \/ queue = <<>>

\* A cut opens while a slot is held.
DoesNotDrain(n) == TRUE

\* A cut overtakes the slots that wait.
CutsFirst(q, p) ==
    IF p \in Savers THEN <<p>> \o q ELSE Append(q, p)

\* A cancelled waiter leaves the door as it was.
LeavesDoorShut == FALSE

\* A waiter that is cancelled in the turn of its hand-over keeps its place.
KeepsPlace == FALSE

\* A waiter that is cancelled stays in the queue.
StaysQueued(q, p) == q

\* A cut that ends is counted as a slot that ends.
CountsAnyone(p) == slots - 1
=============================================================================
