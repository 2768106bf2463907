-------------------------- MODULE LabelledBarrier --------------------------
(***************************************************************************)
(* The barrier's behaviours with the action of each step in `act`, for     *)
(* counterexamples; see `LabelledCutlock`.                                 *)
(***************************************************************************)
EXTENDS MutantBarrier

VARIABLE act

View == vars

Of(name, p) == act' = [name |-> name, who |-> p]

LabelledInit == Init /\ act = [name |-> "Init"]

LabelledNext == \E p \in Everyone :
    \/ EnterFast(p) /\ Of("EnterFast", p)
    \/ Wait(p) /\ Of("Wait", p)
    \/ Resume(p) /\ Of("Resume", p)
    \/ Leave(p) /\ Of("Leave", p)
    \/ CancelWaiting(p) /\ Of("CancelWaiting", p)
    \/ CancelGranted(p) /\ Of("CancelGranted", p)

LabelledSpec == LabelledInit /\ [][LabelledNext]_<<vars, act>> /\ Fairness
=============================================================================
