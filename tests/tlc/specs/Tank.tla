-------------------------------- MODULE Tank --------------------------------
(* A tank that is filled by one or two units and drained by one: small, with *)
(* a cycle, parallel ways into a state, and a history variable.              *)
EXTENDS Integers

CONSTANTS Max, hose

VARIABLES level, used, act

vars == <<level, used, act>>

Init ==
    /\ level = 0
    /\ used = {}
    /\ act = [name |-> "Init"]

Fill(units) ==
    /\ level + units <= Max
    /\ level' = level + units
    /\ used' = used \cup {hose}
    /\ act' = [name |-> "Fill", units |-> units]

Drain ==
    /\ level > 0
    /\ level' = level - 1
    /\ UNCHANGED used
    /\ act' = [name |-> "Drain"]

\* Cannot happen.
Overflow ==
    /\ level > Max
    /\ level' = Max
    /\ UNCHANGED used
    /\ act' = [name |-> "Overflow"]

Next ==
    \/ \E units \in 1..2 : Fill(units)
    \/ Drain
    \/ Overflow

Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ WF_vars(Next)

FillOnly == \E units \in 1..2 : Fill(units)
NoDrainSpec == Init /\ [][FillOnly]_vars

\* Without the history variable: checking needs fewer states.
View == <<level, used>>

NeverFull == level < Max
NotEmpty == level # 0
Bounded == level \in 0..Max
NeverDrains == [][level' >= level]_vars
FillsUp == level = 0 ~> level = Max
Leaves == level = 0 ~> level # 0

\* Evaluated at level 2, it fails.
Crooked == level = 2 => level \in "two"
=============================================================================
