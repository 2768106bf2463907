------------------------------ MODULE DialLog -------------------------------
(* The step that an event of a log stands for.                               *)
EXTENDS Dial

Step(event) ==
    CASE event.name = "Up" -> Up
      [] event.name = "Reset" -> Reset
=============================================================================
