------------------------------ MODULE TankLog -------------------------------
(* The steps that events stand for, for holding logs against the tank.       *)
EXTENDS Tank

Step(event) ==
    CASE event.name = "Fill" -> Fill(event.units)
      [] event.name = "Drain" -> Drain
      \* Of an unnamed change, the log does not say which it was.
      [] event.name = "Change" -> Next

NoInit == level = 0 /\ level = 1 /\ used = {} /\ act = [name |-> "Init"]

Show == [level |-> level]
=============================================================================
