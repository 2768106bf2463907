------------------------------- MODULE LockLog ------------------------------
(* The step that an event of a log stands for.                               *)
EXTENDS Lock

Step(e) ==
    \/ e.name = "Enter" /\ Enter(e.who)
    \/ e.name = "Wait" /\ Wait(e.who)
    \/ e.name = "Resume" /\ Resume(e.who)
    \/ e.name = "Release" /\ Release(e.who)
    \/ e.name = "Cancel" /\ Cancel(e.who)
    \/ e.name = "Notice" /\ Notice(e.who)

\* What is shown of the state when an event is refused.
Shown == [owner |-> owner, queue |-> queue, at |-> at]
=============================================================================
