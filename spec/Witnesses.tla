----------------------------- MODULE Witnesses -----------------------------
(* Situations that must be reachable: each predicate denies one, and has to *)
(* be violated.                                                             *)
EXTENDS MC

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
=============================================================================
