------------------------------ MODULE LockBond ------------------------------
(* The lock's behaviours with the action of each step, and its arguments, in *)
(* a variable: for counterexamples and graphs.                               *)
EXTENDS LockMutants, TLC

VARIABLE act

View == vars

Of(name, p) == act' = [name |-> name, who |-> p]

BondInit == Init /\ act = [name |-> "Init"]

BondNext == \E p \in People :
    \/ Enter(p) /\ Of("Enter", p)
    \/ Wait(p) /\ Of("Wait", p)
    \/ Resume(p) /\ Of("Resume", p)
    \/ Release(p) /\ Of("Release", p)
    \/ Cancel(p) /\ Of("Cancel", p)
    \/ Notice(p) /\ Of("Notice", p)

BondSpec == BondInit /\ [][BondNext]_<<vars, act>> /\ Fairness

\* Printed for each step of a graph.
Prints == PrintT(ToString(act'))
=============================================================================
