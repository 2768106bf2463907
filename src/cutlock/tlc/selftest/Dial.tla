-------------------------------- MODULE Dial --------------------------------
(* A dial that is turned up step by step and then set back.                  *)
EXTENDS Naturals

VARIABLE dial

Init == dial = 0

Up == dial < 3 /\ dial' = dial + 1

Reset == dial = 3 /\ dial' = 0

\* A fault: the dial slips back before it is at its end.
Slip == dial = 1 /\ dial' = 0

Spec == Init /\ [][Up \/ Reset]_dial
FairSpec == Spec /\ WF_dial(Up \/ Reset)
StuckSpec == Init /\ [][Up]_dial
SlipSpec == Init /\ [][Up \/ Reset \/ Slip]_dial /\ WF_dial(Up \/ Reset \/ Slip)

InRange == dial \in 0..3
NeverAtEnd == dial # 3
ReachesEnd == dial = 0 ~> dial = 3

Counter == INSTANCE Wheel WITH at <- dial
TurnsLikeWheel == Counter!Spec
=============================================================================
