------------------------------ MODULE Endless -------------------------------
(* Never done, and in need of more memory at every step.                     *)
EXTENDS Integers, Sequences

VARIABLE x

Init == x = <<0>>
Next == x' = x \o x
=============================================================================
