---------------------------- MODULE PairSymmetry ----------------------------
(* What TLC warns of: symmetry together with a temporal property.            *)
EXTENDS TLC

CONSTANTS left, right

VARIABLE on

Switches == {left, right}
Alike == Permutations(Switches)

Init == on = [s \in Switches |-> FALSE]
Flip(s) == on' = [on EXCEPT ![s] = ~@]
Next == \E s \in Switches : Flip(s)
Spec == Init /\ [][Next]_on /\ WF_on(Next)

Moves == []<>(\E s \in Switches : on[s])
=============================================================================
