-------------------------------- MODULE Pair --------------------------------
(* Two switches; a specification with one variable.                           *)
EXTENDS Integers

VARIABLE on

Init == on = [s \in {"left", "right"} |-> FALSE]

Flip(s) == on' = [on EXCEPT ![s] = ~@]

Next == \E s \in {"left", "right"} : Flip(s)

NeverBoth == ~(on["left"] /\ on["right"])
=============================================================================
