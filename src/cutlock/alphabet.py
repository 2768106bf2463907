"""The alphabet: every action that moves a prompt, with the names of its arguments.

One action has one name. It is PascalCase in the TLA+ spec, in traces and in event logs,
and the same stem in snake_case in Python. `ARGUMENTS` is the only table of arguments;
the event log refuses a record that does not fit it.
"""

from __future__ import annotations

import enum
import re

__all__ = ["ARGUMENTS", "Action", "snake"]


def snake(name: str) -> str:
    """The name of an action in Python: `commit_admission` for `CommitAdmission`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Action(enum.StrEnum):
    """One action of the protocol; the value is its name in spec, traces and logs."""

    # Environment: what happens to a run from outside, and so is in no log
    CRASH = "Crash"
    # Controller
    BEGIN_RUN = "BeginRun"
    START_PUMPS = "StartPumps"
    END_RUN = "EndRun"
    # Rollout pump: from the loader to the ledger
    RESERVE_BATCH = "ReserveBatch"
    FILL_SPARE_POOL = "FillSparePool"
    DRAIN_SPARE_POOL = "DrainSparePool"
    RAISE_EPOCH = "RaiseEpoch"
    OPEN_GATE = "OpenGate"
    COMMIT_ADMISSION = "CommitAdmission"
    # Rollout pump: from the ledger to the buffer
    LAUNCH_GROUP = "LaunchGroup"
    BEGIN_COMMIT = "BeginCommit"
    PUT_ROWS = "PutRows"
    COMMIT_GROUP = "CommitGroup"
    ROLLBACK_GROUP = "RollbackGroup"
    FAIL_GROUP = "FailGroup"
    DROP_GROUP = "DropGroup"
    SUBSTITUTE_GROUP = "SubstituteGroup"
    # Watchdog
    ABORT_STALE = "AbortStale"
    # Train pump
    EVICT_GROUPS = "EvictGroups"
    SELECT_GROUPS = "SelectGroups"
    WRITE_ADVANTAGES = "WriteAdvantages"
    TRAIN_STEP = "TrainStep"
    CLEAR_ROWS = "ClearRows"
    RAISE_VERSION = "RaiseVersion"
    SYNC_WEIGHTS = "SyncWeights"
    # Cut and bundle
    REQUEST_CUT = "RequestCut"
    OPEN_CUT = "OpenCut"
    READ_CURSOR = "ReadCursor"
    READ_LOADER = "ReadLoader"
    READ_SPARE_POOL = "ReadSparePool"
    READ_INDEX = "ReadIndex"
    READ_LEDGER = "ReadLedger"
    TAKE_CUT = "TakeCut"
    COPY_POLICY = "CopyPolicy"
    SAVE_PLANE = "SavePlane"
    CLOSE_CUT = "CloseCut"
    WRITE_POLICY = "WritePolicy"
    WRITE_SIDECARS = "WriteSidecars"
    WRITE_MANIFEST = "WriteManifest"
    PUBLISH_BUNDLE = "PublishBundle"
    PRUNE_BUNDLES = "PruneBundles"
    FAIL_SAVE = "FailSave"
    # Plane under the narrow cut: a put reaches its units one by one, and a clear of captured
    # rows waits until each unit has written them
    STORE_ROW = "StoreRow"
    SAVE_UNIT = "SaveUnit"
    FLUSH_DEFERRED = "FlushDeferred"
    # Restore
    VERIFY_BUNDLE = "VerifyBundle"
    LOAD_PLANE = "LoadPlane"
    CONNECT_PLANE = "ConnectPlane"
    RESTORE_INDEX = "RestoreIndex"
    RESTORE_SPARE_POOL = "RestoreSparePool"
    RESTORE_LEDGER = "RestoreLedger"
    RESTORE_CURSOR = "RestoreCursor"

    @property
    def snake(self) -> str:
        """The action's name in Python, e.g. `commit_admission`."""
        return snake(self.value)


ARGUMENTS: dict[Action, tuple[str, ...]] = {
    Action.CRASH: (),
    Action.BEGIN_RUN: (
        "incarnation",
        "sampler",
        "window",
        "prompts_per_step",
        "group_size",
        "epochs",
        "max_steps",
        "capacity",
        "spare_prompts",
        "units",
        "cut",
    ),
    Action.START_PUMPS: ("step", "version"),
    Action.END_RUN: ("reason",),
    Action.RESERVE_BATCH: ("admission", "epoch", "position", "groups"),
    Action.FILL_SPARE_POOL: ("epoch", "position", "groups"),
    Action.DRAIN_SPARE_POOL: ("admission", "groups"),
    Action.RAISE_EPOCH: ("epoch",),
    Action.OPEN_GATE: ("admission", "version"),
    Action.COMMIT_ADMISSION: ("admission", "cursor", "stamp", "start_weight", "groups"),
    Action.LAUNCH_GROUP: ("group", "attempt"),
    Action.BEGIN_COMMIT: ("group", "attempt", "end_weight"),
    Action.PUT_ROWS: ("group", "attempt"),
    Action.COMMIT_GROUP: ("group", "attempt"),
    Action.ROLLBACK_GROUP: ("group", "attempt"),
    Action.FAIL_GROUP: ("group", "attempt", "error"),
    Action.DROP_GROUP: ("group", "reason"),
    Action.SUBSTITUTE_GROUP: ("group", "substitute"),
    Action.ABORT_STALE: ("group", "version"),
    Action.EVICT_GROUPS: ("version", "groups"),
    Action.SELECT_GROUPS: ("step", "groups"),
    Action.WRITE_ADVANTAGES: ("step",),
    Action.TRAIN_STEP: ("step", "groups"),
    Action.CLEAR_ROWS: ("step", "groups"),
    Action.RAISE_VERSION: ("version",),
    Action.SYNC_WEIGHTS: ("version",),
    Action.REQUEST_CUT: ("step",),
    Action.OPEN_CUT: ("step",),
    Action.READ_CURSOR: ("cursor",),
    Action.READ_LOADER: ("epoch", "position"),
    Action.READ_SPARE_POOL: ("groups",),
    Action.READ_INDEX: ("groups",),
    Action.READ_LEDGER: ("groups",),
    Action.TAKE_CUT: ("step", "cursor", "epoch", "position", "spares", "index", "ledger"),
    Action.COPY_POLICY: ("step",),
    Action.SAVE_PLANE: ("rows",),
    Action.CLOSE_CUT: ("step",),
    Action.WRITE_POLICY: ("step",),
    Action.WRITE_SIDECARS: ("step",),
    Action.WRITE_MANIFEST: ("step",),
    Action.PUBLISH_BUNDLE: ("step", "bundle"),
    Action.PRUNE_BUNDLES: ("bundles",),
    Action.FAIL_SAVE: ("step", "error"),
    Action.STORE_ROW: ("group", "unit"),
    Action.SAVE_UNIT: ("unit",),
    Action.FLUSH_DEFERRED: ("groups",),
    Action.VERIFY_BUNDLE: ("bundle", "step", "incarnation", "log_records"),
    Action.LOAD_PLANE: ("rows",),
    Action.CONNECT_PLANE: (),
    Action.RESTORE_INDEX: ("groups",),
    Action.RESTORE_SPARE_POOL: ("groups",),
    Action.RESTORE_LEDGER: ("groups",),
    Action.RESTORE_CURSOR: ("cursor",),
}
