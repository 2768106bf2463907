---------------------------- MODULE TraceCutlock ----------------------------
(***************************************************************************)
(* Logs of real runs against `Cutlock`: each event of a log is one step of *)
(* the protocol, and its arguments have to be those of the model.  Times,  *)
(* attempts and admission ids are not modelled.  A configuration puts      *)
(* `TraceName` in place of the protocol's `Name`.                          *)
(***************************************************************************)
EXTENDS Invariants

CONSTANTS
    LastBatch,      \* prompts of the last batch of an epoch
    GroupSize,      \* rows of a group
    Budgets,        \* steps after which the run was told to end
    Failures        \* as many as the log tells of, or more

VARIABLES
    older,          \* bundles that a later start resumes from although they are not the newest
    rolled_back,    \* groups whose commit was rolled back and whose failure is still to be logged
    unchecked,      \* groups launched after a weight sync last looked for stale ones
    cut,            \* how the start makes its cuts, "narrow" or "full"
    ended           \* the start has ended

\* The last batch of an epoch may be short.
TracePrompts == {p \in (1..Batches) \X Member : p[1] % PerEpoch # 0 \/ p[2] <= LastBatch}

\* As in MCCutlock.
TraceSteps == 0..(Batches * Size + Failures + 1)

\* In place of `FirstFinished` where the latest start weight goes first.
FirstFreshest(C, n) ==
    LET place == [p \in C |-> CHOOSE i \in 1..Len(order) : order[i] = p]
        Sooner(p) == {q \in C : wt[q] > wt[p] \/ (wt[q] = wt[p] /\ place[q] < place[p])}
    IN  {p \in C : Cardinality(Sooner(p)) < n}

\* A log tells of a put when it has returned, and not of its parts.
TracePutIsTorn == FALSE

\* As the start says of itself.
TraceNarrowCut == cut = "narrow"

TraceInit ==
    Init /\ older = {} /\ rolled_back = {} /\ unchecked = {} /\ cut = "full" /\ ended = FALSE

\* Position within the epoch, in batches.
InEpoch(n) == n % PerEpoch

\* The prompts served in the epoch once `n` batches of all epochs have been.
Position(n) == Cardinality({p \in Prompts : p[1] <= n /\ p[1] > n - InEpoch(n)})
Reaches(n) ==
    IF InEpoch(n) = 0
    THEN Cardinality({p \in Prompts : p[1] <= n /\ p[1] > n - PerEpoch})
    ELSE Position(n)

NextBatch(e) ==
    /\ e.groups = Members(pos + 1)
    /\ e.epoch = EpochOf(pos)
    /\ e.position = Reaches(pos + 1)

\* The stamp in an event is -1 under samplers that do not stamp.
Stamp == IF Stamping THEN cursor + 1 ELSE -1

Rollouts(e) ==
    \/ e.name = "ReserveBatch" /\ NextBatch(e) /\ ReserveBatch
    \/ e.name = "FillSparePool" /\ NextBatch(e) /\ FillSparePool
    \/ e.name = "RaiseEpoch" /\ e.epoch = epoch + 1 /\ RaiseEpoch
    \/ e.name = "DrainSparePool" /\ DrainSparePool /\ e.groups = pool \ pool'
    \/ e.name = "OpenGate" /\ e.version = version /\ OpenGate
    \/ /\ e.name = "CommitAdmission"
       /\ e.groups = Reserved /\ e.cursor = cursor + 1
       /\ e.start_weight = version /\ e.stamp = Stamp
       /\ CommitAdmission
    \/ e.name = "LaunchGroup" /\ e.group \notin rolled_back /\ LaunchGroup(e.group)
    \/ e.name = "BeginCommit" /\ e.end_weight = version /\ BeginCommit(e.group)
    \/ e.name = "PutRows" /\ PutRows(e.group)
    \/ e.name = "CommitGroup" /\ CommitGroup(e.group)
    \/ e.name = "RollbackGroup" /\ RollbackGroup(e.group)
    \/ e.name = "FailGroup" /\ FailGroup(e.group)
    \* The rollback was the failure.
    \/ e.name = "FailGroup" /\ e.group \in rolled_back /\ UNCHANGED vars
    \/ e.name = "DropGroup" /\ e.group \notin rolled_back /\ DropGroup(e.group)
    \/ /\ e.name = "SubstituteGroup"
       /\ e.group \notin rolled_back
       /\ SubstituteGroup(e.group, e.substitute)
    \/ e.name = "AbortStale" /\ e.version = version /\ AbortStale(e.group)

Training(e) ==
    \/ e.name = "EvictGroups" /\ e.version = version /\ e.groups = Evictable /\ EvictGroups
    \/ e.name = "SelectGroups" /\ e.step = version /\ SelectGroups(e.groups)
    \/ e.name = "WriteAdvantages" /\ e.step = version /\ WriteAdvantages
    \/ e.name = "TrainStep" /\ e.step = version /\ e.groups = claimed /\ TrainStep
    \/ e.name = "ClearRows" /\ e.step = version /\ e.groups = claimed /\ ClearRows
    \/ e.name = "RaiseVersion" /\ e.version = version + 1 /\ RaiseVersion
    \/ e.name = "SyncWeights" /\ e.version = version /\ SyncWeights
    \* A rollout that was launched when the weights were on their way: the next sync sees it.
    \/ /\ e.name = "SyncWeights" /\ e.version = version
       /\ up = "running" /\ tp = "sync" /\ Sampler = "windowed"
       /\ Stale # {} /\ Stale \subseteq unchecked
       /\ tp' = "idle"
       /\ UNCHANGED <<up, rollout, buffer, progress, save, history>>

\* The step that the open save is of: under the narrow cut the version may have moved since.
SavedStep == IF cap.ledger.set THEN cap.ledger.v.weights.version ELSE version

Saving(e) ==
    \/ e.name = "RequestCut" /\ e.step = version /\ RequestCut
    \/ /\ e.name = "TakeCut"
       /\ e.step = version /\ e.cursor = cursor
       /\ e.epoch = epoch /\ e.position = Position(pos)
       /\ e.spares = pool /\ e.index = index /\ e.ledger = Owned
       /\ TakeCut
    \/ e.name = "CopyPolicy" /\ e.step = SavedStep /\ CopyPolicy
    \/ e.name = "SaveUnit" /\ e.unit \in Units /\ SaveUnit(e.unit)
    \/ e.name = "FlushDeferred" /\ e.groups = deferred /\ FlushDeferred
    \/ e.name = "OpenCut" /\ e.step = version /\ OpenCut
    \/ e.name = "ReadCursor" /\ e.cursor = cursor /\ ReadCursor
    \/ /\ e.name = "ReadLoader"
       /\ e.epoch = epoch /\ e.position = Position(pos)
       /\ ReadLoader
    \/ e.name = "ReadSparePool" /\ e.groups = pool /\ ReadSparePool
    \/ e.name = "ReadIndex" /\ e.groups = index /\ ReadIndex
    \/ e.name = "ReadLedger" /\ e.groups = Owned /\ ReadLedger
    \/ e.name = "SavePlane" /\ e.rows = GroupSize * Cardinality(cap.index.v) /\ SavePlane
    \/ e.name = "CloseCut" /\ e.step = version /\ CloseCut
    \/ e.name = "WritePolicy" /\ e.step = SavedStep /\ WritePolicy
    \/ e.name = "WriteSidecars" /\ e.step = SavedStep /\ WriteSidecars
    \/ e.name = "WriteManifest" /\ e.step = SavedStep /\ WriteManifest
    \/ e.name = "PublishBundle" /\ e.step = SavedStep /\ PublishBundle
    \/ e.name = "PruneBundles" /\ PruneBundles
    \/ e.name = "FailSave" /\ e.step = SavedStep /\ FailSave
    \* The bundle's directory could not be made, so that the cut was never asked for.
    \/ /\ e.name = "FailSave"
       /\ e.step = version
       /\ up = "running" /\ tp = "idle" /\ sv = "none" /\ saved < version
       /\ saved' = MaxOf(saved, NoBundle)
       /\ UNCHANGED <<up, rollout, buffer, train, sv, door, cap, disk, history>>
    \* An old bundle could not be removed.
    \/ e.name = "FailSave" /\ e.step = saved /\ PruneBundles

Starting(e) ==
    \/ e.name = "BeginRun" /\ e.cut \in {"narrow", "full"} /\ BeginRun
    \/ e.name = "VerifyBundle" /\ e.step = disk.version /\ VerifyBundle
    \/ e.name = "LoadPlane" /\ e.rows = GroupSize * Cardinality(disk.index) /\ LoadPlane
    \/ e.name = "ConnectPlane" /\ ConnectPlane
    \/ e.name = "RestoreIndex" /\ e.groups = disk.index /\ RestoreIndex
    \/ e.name = "RestoreSparePool" /\ e.groups = disk.pool /\ RestoreSparePool
    \/ /\ e.name = "RestoreLedger"
       /\ e.groups = {p \in Prompts : disk.led[p] # "none"}
       /\ RestoreLedger
    \/ e.name = "RestoreCursor" /\ e.cursor = disk.cursor /\ RestoreCursor
    \/ e.name = "StartPumps" /\ e.step = version /\ e.version = version /\ StartPumps
    \/ e.name = "EndRun" /\ e.reason = "exhausted" /\ EndRun
    \/ /\ e.name = "EndRun"
       /\ e.reason = "max_steps"
       /\ up = "running" /\ version \in Budgets /\ saved = version /\ sv = "none"
       /\ UNCHANGED vars
    \* A user's own loop may end between two steps.
    \/ /\ e.name = "EndRun"
       /\ e.reason = "stopped"
       /\ up = "running" /\ saved = version /\ sv = "none"
       /\ UNCHANGED vars
    \* An error ends a run at any point.
    \/ e.name = "EndRun" /\ e.reason = "error" /\ up \in {"started", "running"} /\ UNCHANGED vars
    \/ e.name = "Crash" /\ Crash
    \* The next start resumes from an older bundle.
    \/ /\ e.name = "TakeBundle"
       /\ up = "down"
       /\ \E b \in older : b.by = e.incarnation /\ b.disk.version = e.step /\ disk' = b.disk
       /\ trained' = disk'.trained /\ dropped' = disk'.dropped
       /\ UNCHANGED <<up, rollout, buffer, train, sv, door, cap, saved, failures, crashes>>
    \* The next start leaves the rows of the bundle behind: its groups are owed again.
    \/ /\ e.name = "LeaveRows"
       /\ up = "down"
       /\ disk' = [disk EXCEPT !.led = With(@, disk.index, "ADMITTED"), !.index = {},
                              !.order = <<>>, !.keys = {}, !.rows = {}, !.derived = {}]
       /\ UNCHANGED <<up, rollout, buffer, train, sv, door, cap, saved, history>>

\* The groups of an event are some that the data set serves.
Served(e) ==
    /\ "group" \in DOMAIN e => e.group \in Prompts
    /\ "substitute" \in DOMAIN e => e.substitute \in Prompts

Step(e) ==
    /\ Served(e)
    /\ ended => e.name = "Crash"
    /\ Rollouts(e) \/ Training(e) \/ Saving(e) \/ Starting(e)
    /\ ended' = (e.name = "EndRun")
    /\ cut' = IF e.name = "BeginRun" THEN e.cut ELSE cut
    /\ rolled_back' =
        CASE e.name = "RollbackGroup" -> rolled_back \cup {e.group}
          [] e.name = "FailGroup" -> rolled_back \ {e.group}
          [] e.name = "Crash" -> {}
          [] OTHER -> rolled_back
    /\ unchecked' =
        CASE e.name = "LaunchGroup" /\ tp = "sync" -> unchecked \cup {e.group}
          [] e.name \in {"RaiseVersion", "AbortStale", "SyncWeights", "Crash"} -> {}
          [] OTHER -> unchecked
    /\ older' =
        IF e.name = "PublishBundle" /\ e.kept # 0
        THEN older \cup {[by |-> e.kept, disk |-> disk']}
        ELSE older

\* What is on disk changes with a publication only.
NewOnDisk(promise) == sv = "published" => promise
NewDiskOneOwner == NewOnDisk(DiskOneOwner)
NewDiskCursor == NewOnDisk(DiskCursor)
NewDiskStamps == NewOnDisk(DiskStamps)
NewDiskEpoch == NewOnDisk(DiskEpoch)
NewDiskRows == NewOnDisk(DiskRows)

\* What is shown of the state before an event that is refused.
Shown ==
    [up |-> up, version |-> version, cursor |-> cursor, pos |-> pos, epoch |-> epoch,
     raising |-> raising, gate |-> gate, tp |-> tp, sv |-> sv, door |-> door, saved |-> saved,
     reserved |-> Reserved, admitted |-> Admitted, pool |-> pool, index |-> index,
     claimed |-> claimed, generating |-> {p \in Prompts : task[p] = "gen"}, holders |-> Holders,
     failed |-> {p \in Prompts : task[p] = "failed"}, rolled_back |-> rolled_back, ended |-> ended]
=============================================================================
