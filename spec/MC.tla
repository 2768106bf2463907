-------------------------------- MODULE MC --------------------------------
(* Bounds and symmetry for the configurations of model_check/.              *)
EXTENDS Invariants, TLC

\* The members of a batch are alike; one permutation for all batches.
MemberSymmetry == Permutations(Member)

\* For the configuration to put in place of `NarrowCut`: a resume cuts in the other way.
CutChanged == IF crashes = 0 THEN Narrow ELSE ~Narrow
=============================================================================
