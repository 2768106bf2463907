-------------------------- MODULE LabelledCutlock ---------------------------
(***************************************************************************)
(* The same behaviours with the action of each step in a variable of its   *)
(* own: `act` is the action's name with its arguments, as in               *)
(* `cutlock.alphabet`.  Counterexamples and graphs are taken from here.    *)
(* The configurations leave `act` out of what makes a state by `View`, so  *)
(* the number of states has to be that of `Cutlock`.                       *)
(***************************************************************************)
EXTENDS MutantCutlock

VARIABLE act

View == vars

\* TLCEval, because TLC does not evaluate later what is outside of the view.
Act(name) == act' = [name |-> name]
Of(name, p) == act' = [name |-> name, group |-> p]
All(name, S) == act' = [name |-> name, groups |-> TLCEval(S)]

\* The members of the batch that the loader hands out.
Served == Members(pos + 1)

LabelledInit == Init /\ act = [name |-> "Init"]

Rollouts ==
    \/ ReserveBatch /\ All("ReserveBatch", Served)
    \/ FillSparePool /\ All("FillSparePool", Served)
    \/ RaiseEpoch /\ Act("RaiseEpoch")
    \/ DrainSparePool /\ All("DrainSparePool", pool \ pool')
    \/ OpenGate /\ Act("OpenGate")
    \/ CommitAdmission
       /\ All("CommitAdmission", {p \in Reserved : led'[p] = "ADMITTED"})
    \/ \E p \in Prompts :
        \/ LaunchGroup(p) /\ Of("LaunchGroup", p)
        \/ BeginCommit(p) /\ Of("BeginCommit", p)
        \/ \E u \in Units :
            StoreRow(p, u) /\ act' = [name |-> "StoreRow", group |-> p, unit |-> u]
        \/ PutRows(p) /\ Of("PutRows", p)
        \/ CommitGroup(p) /\ Of("CommitGroup", p)
        \/ RollbackGroup(p) /\ Of("RollbackGroup", p)
        \/ FailGroup(p) /\ Of("FailGroup", p)
        \/ DropGroup(p) /\ Of("DropGroup", p)
        \/ \E q \in pool :
            /\ SubstituteGroup(p, q)
            /\ act' = [name |-> "SubstituteGroup", group |-> p, substitute |-> q]
        \/ AbortStale(p) /\ Of("AbortStale", p)

Training ==
    \/ EvictGroups /\ All("EvictGroups", index \ index')
    \/ \E S \in Selections : SelectGroups(S) /\ All("SelectGroups", S)
    \/ WriteAdvantages /\ Act("WriteAdvantages")
    \/ TrainStep /\ All("TrainStep", claimed)
    \/ ClearRows /\ All("ClearRows", claimed)
    \/ RaiseVersion /\ Act("RaiseVersion")
    \/ SyncWeights /\ Act("SyncWeights")

Saving ==
    \/ RequestCut /\ Act("RequestCut")
    \/ OpenCut /\ Act("OpenCut")
    \/ ReadCursor /\ Act("ReadCursor")
    \/ ReadLoader /\ Act("ReadLoader")
    \/ ReadSparePool /\ Act("ReadSparePool")
    \/ ReadIndex /\ Act("ReadIndex")
    \/ ReadLedger /\ Act("ReadLedger")
    \/ TakeCut /\ Act("TakeCut")
    \/ CopyPolicy /\ Act("CopyPolicy")
    \/ SavePlane /\ Act("SavePlane")
    \/ CloseCut /\ Act("CloseCut")
    \/ \E u \in Units : SaveUnit(u) /\ act' = [name |-> "SaveUnit", unit |-> u]
    \/ FlushDeferred /\ All("FlushDeferred", deferred)
    \/ WritePolicy /\ Act("WritePolicy")
    \/ WriteSidecars /\ Act("WriteSidecars")
    \/ WriteManifest /\ Act("WriteManifest")
    \/ PublishBundle /\ Act("PublishBundle")
    \/ PruneBundles /\ Act("PruneBundles")
    \/ FailSave /\ Act("FailSave")

Starting ==
    \/ BeginRun /\ Act("BeginRun")
    \/ VerifyBundle /\ Act("VerifyBundle")
    \/ LoadPlane /\ Act("LoadPlane")
    \/ ConnectPlane /\ Act("ConnectPlane")
    \/ RestoreIndex /\ Act("RestoreIndex")
    \/ RestoreSparePool /\ Act("RestoreSparePool")
    \/ RestoreLedger /\ Act("RestoreLedger")
    \/ RestoreCursor /\ Act("RestoreCursor")
    \/ StartPumps /\ Act("StartPumps")
    \/ EndRun /\ Act("EndRun")
    \/ Crash /\ Act("Crash")

\* What a mutant adds.
Added == Late /\ Act("Late")

LabelledNext == Rollouts \/ Training \/ Saving \/ Starting \/ Added

LabelledSpec == LabelledInit /\ [][LabelledNext]_<<vars, act>>

\* For promises of P7; a configuration with it has no VIEW, which TLC cannot do there.
LabelledFairSpec == LabelledSpec /\ WF_vars(Progress)

\* Printed for each step of a graph, in the order in which TLC writes the steps.
Prints == PrintT(ToString(act'))
=============================================================================
