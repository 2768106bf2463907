-------------------------------- MODULE Pair --------------------------------
(* Two switches; `Tank` style bookkeeping is left out: one variable only.    *)
EXTENDS Integers

VARIABLE on

Init == on = [s \in {"left", "right"} |-> FALSE]

Flip(s) == on' = [on EXCEPT ![s] = ~@]

Next == \E s \in {"left", "right"} : Flip(s)

NeverBoth == ~(on["left"] /\ on["right"])
=============================================================================
