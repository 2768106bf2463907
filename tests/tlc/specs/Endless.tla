------------------------------ MODULE Endless -------------------------------
(* Has no last state, and a recursion without an end.                        *)
EXTENDS Integers

VARIABLE x

RECURSIVE Fall(_)
Fall(n) == Fall(n + 1)

Init == x = 0
Next == x' = x + 1
Fallen == Fall(x) = 0
=============================================================================
