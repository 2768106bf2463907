-------------------------------- MODULE MC --------------------------------
(* Bounds and symmetry for the configurations of model_check/.              *)
EXTENDS Invariants, TLC

\* The members of a batch are alike; one permutation for all batches.
MemberSymmetry == Permutations(Member)
=============================================================================
