----------------------------- MODULE MCCutlock -----------------------------
(***************************************************************************)
(* Bounds and abstractions for model checking; `Cutlock` itself has none.  *)
(* A configuration puts `MCName` in place of the protocol's `Name`.        *)
(***************************************************************************)
EXTENDS Invariants, TLC

CONSTANTS
    MaxFailures,
    MaxCrashes,
    CrashAnywhere,  \* FALSE: only right after a publication; the restored state is the same
    Ordered         \* FALSE: choices are left open, so that what holds does not depend on an order

MCMayFail == failures < MaxFailures
MCMayCrash == crashes < MaxCrashes /\ (CrashAnywhere \/ sv = "published")

\* A step trains a prompt, or is empty because all of its groups have failed.
MCSteps == 0..(Batches * Size + MaxFailures + 1)

MCChosen(C, n, first) == IF Ordered THEN {first} ELSE {S \in SUBSET C : Cardinality(S) = n}

\* No choice reads the order where choices are open.
MCRecorded(p) == IF Ordered THEN Append(order, p) ELSE order

\* The members of a batch are alike; one permutation for all batches.
MemberSymmetry == Permutations(Member)

\* In place of `NarrowCut`: a resume cuts in the other way.
CutChanged == IF crashes = 0 THEN Narrow ELSE ~Narrow
=============================================================================
