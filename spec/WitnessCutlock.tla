-------------------------- MODULE WitnessCutlock ---------------------------
(* Situations that must be reachable: each predicate denies one, and has to *)
(* be violated.                                                             *)
EXTENDS MCCutlock

NoCommitBehindCut == ~(door = "shut" /\ \E p \in Prompts : task[p] = "gen")
NoCutBehindCommit == ~(sv = "requested" /\ Holders # {})
NoCutBehindEpoch == ~(sv = "requested" /\ raising)
NoAdmissionBehindCut == ~(door = "shut" /\ gate)
NoCrashBeforeRename == ~(sv = "files" /\ MayCrash)
NoCrashInWindow == ~(door = "shut" /\ MayCrash)
NoSecondCrashInRestore == ~(up = "pooled" /\ crashes = 1 /\ MayCrash)
NoSpareOnTheMove == ~(door = "shut" /\ pool # {} /\ \E p \in Prompts : task[p] = "failed")
NoShortStep == ~(tp = "idle" /\ short[version] > 0)
NoReservedOnDisk == ~(\E p \in Prompts : disk.led[p] = "RESERVED")
NoRestoredBuffer == ~(up = "running" /\ crashes > 0 /\ index # {})
NoRollbackBehindCut == ~(sv = "requested" /\ \E p \in Prompts : task[p] = "put")
NoDeferredClear == deferred = {}
NoTornPut ==
    ~(\E p \in Prompts : \E u, w \in Units \cap cap.files :
        <<p, u>> \in cap.rows /\ <<p, w>> \notin cap.rows)
NoOrphan == ~(\E p \in Prompts : p \in KeysOf(cap.rows) \ cap.keys)

(* Narrow cut: the pumps go on while the save is written in the background. *)

\* Training steps that have ended since the cut.
StepsSinceCut == version - cap.ledger.v.weights.version
Writing == sv = "files"

NoCutBesideCommit == ~(sv = "copy" /\ Holders # {})
NoCommitMeanwhile == ~(Writing /\ index \ cap.index.v # {})
NoAdmissionMeanwhile ==
    ~(Writing /\ cursor > cap.cursor.v /\ Units \cap cap.files \notin {{}, Units})
NoStepMeanwhile == ~(Writing /\ StepsSinceCut > 0 /\ tp = "idle")
NoFlushMeanwhile == ~(Writing /\ \E p \in cap.index.v : RowsOf({p}) \cap rows = {})
NoCrashAfterStep == ~(Writing /\ StepsSinceCut > 0 /\ MayCrash)
\* A clear that waits for a published save is of a group of its index.
NoDeferredAfterFailure == ~(sv = "none" /\ deferred \ disk.index # {})
=============================================================================
