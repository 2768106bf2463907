----------------------------- MODULE TankGraph ------------------------------
(* Prints the action of every transition, in the order of the dumped edges.  *)
EXTENDS Tank, TLC

PrintAct == PrintT(ToString(act'))
=============================================================================
