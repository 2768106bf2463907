"""A log of the narrow cut, written by hand: accepted as it is, refused with one thing changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cutlock.conformance.validation.logs import RunLog, Validated, validate
from cutlock.tlc.logcheck import event
from cutlock.tlc.run import Toolchain
from cutlock.tlc.values import Function, Value

SPEC = Path(__file__).parents[2] / "spec"
BOUNDS = """CONSTANTS
    Batches = 4
    PerEpoch = 4
    Member = {1}
    LastBatch = 1
    GroupSize = 2
    Budgets = {}
    Window = 1
    Sampler = "in_order"
    SpareMark = 0
    Capacity = 4
    Units = {"0", "1"}
    Narrow = TRUE
    Steps <- TraceSteps
    NarrowCut <- TraceNarrowCut
    Prompts <- TracePrompts
    PutIsTorn <- TracePutIsTorn"""

ONE, TWO, THREE = (1, 1), (2, 1), (3, 1)

Log = list[Value]


def of(*prompts: Value) -> frozenset[Value]:
    return frozenset(prompts)


def reserved(batch: int) -> Value:
    return event("ReserveBatch", {"groups": of((batch, 1)), "epoch": 0, "position": batch})


def admitted(batch: int, version: int) -> Log:
    stamp = batch - 1
    return [
        event("OpenGate", {"version": version}),
        event(
            "CommitAdmission",
            {
                "groups": of((batch, 1)),
                "cursor": stamp,
                "start_weight": version,
                "stamp": stamp,
            },
        ),
        event("LaunchGroup", {"group": (batch, 1)}),
    ]


def step_event(name: str, step: int, group: Value | None = None) -> Value:
    return event(name, {"step": step} | ({} if group is None else {"groups": of(group)}))


def finished(group: Value, version: int) -> Log:
    return [
        event("BeginCommit", {"group": group, "end_weight": version}),
        event("PutRows", {"group": group}),
        event("CommitGroup", {"group": group}),
    ]


def moved(version: int) -> Log:
    return [
        event("RaiseVersion", {"version": version}),
        event("SyncWeights", {"version": version}),
    ]


def cut(step: int, cursor: int, position: int, index: Value, ledger: Value) -> Value:
    return event(
        "TakeCut",
        {
            "step": step,
            "cursor": cursor,
            "epoch": 0,
            "position": position,
            "spares": of(),
            "index": index,
            "ledger": ledger,
        },
    )


def unit(number: int) -> Value:
    return event("SaveUnit", {"unit": str(number)})


def published(step: int) -> Value:
    return event("PublishBundle", {"step": step, "kept": 0})


PRUNED = event("PruneBundles", {})
FLUSHED = event("FlushDeferred", {"groups": of(TWO)})

BEFORE: Log = [
    event("BeginRun", {"cut": "narrow"}),
    event("StartPumps", {"step": 0, "version": 0}),
    event("SyncWeights", {"version": 0}),
    # The first save: nothing has trained, and a batch is admitted meanwhile.
    reserved(1),
    step_event("RequestCut", 0),
    cut(0, -1, 1, of(), of(ONE)),
    *admitted(1, 0),
    step_event("CopyPolicy", 0),
    event("SavePlane", {"rows": 0}),
    unit(1),
    unit(0),
    *finished(ONE, 0),
    step_event("WritePolicy", 0),
    step_event("WriteSidecars", 0),
    step_event("WriteManifest", 0),
    published(0),
    PRUNED,
    reserved(2),
    step_event("SelectGroups", 0, ONE),
    step_event("WriteAdvantages", 0),
    step_event("TrainStep", 0, ONE),
    step_event("ClearRows", 0, ONE),
    event("RaiseVersion", {"version": 1}),
    *admitted(2, 1),
    event("SyncWeights", {"version": 1}),
    *finished(TWO, 1),
    reserved(3),
]
"""Up to the save of step 1."""

# The cut is taken while a commit is under way; two steps are trained before its publication.
SAVE: Log = [
    *admitted(3, 1),
    event("BeginCommit", {"group": THREE, "end_weight": 1}),
    step_event("RequestCut", 1),
    cut(1, 2, 3, of(TWO), of(THREE)),
    step_event("CopyPolicy", 1),
    event("PutRows", {"group": THREE}),
    event("CommitGroup", {"group": THREE}),
    event("SavePlane", {"rows": 2}),
    step_event("SelectGroups", 1, TWO),
    unit(1),
    step_event("WriteAdvantages", 1),
    step_event("TrainStep", 1, TWO),
    step_event("ClearRows", 1, TWO),
    *moved(2),
    unit(0),
    step_event("WritePolicy", 1),
    FLUSHED,
    step_event("SelectGroups", 2, THREE),
    step_event("WriteAdvantages", 2),
    step_event("WriteSidecars", 1),
    step_event("TrainStep", 2, THREE),
    step_event("WriteManifest", 1),
    step_event("ClearRows", 2, THREE),
    *moved(3),
    published(1),
    PRUNED,
]

AFTER: Log = [
    event("Crash", {}),
    event("BeginRun", {"cut": "narrow"}),
    event("VerifyBundle", {"step": 1}),
    event("LoadPlane", {"rows": 2}),
    event("ConnectPlane", {}),
    event("RestoreIndex", {"groups": of(TWO)}),
    event("RestoreSparePool", {"groups": of()}),
    event("RestoreLedger", {"groups": of(THREE)}),
    event("RestoreCursor", {"cursor": 2}),
    event("StartPumps", {"step": 1, "version": 1}),
    event("SyncWeights", {"version": 1}),
    event("LaunchGroup", {"group": THREE}),
    step_event("SelectGroups", 1, TWO),
    step_event("WriteAdvantages", 1),
    step_event("TrainStep", 1, TWO),
]


@dataclass(frozen=True)
class Tampered:
    """The save of step 1, with one thing told otherwise."""

    change: Callable[[Log], Log]
    refused: str
    """Name of the first event that does not fit."""


def name_of(happened: Value) -> str:
    assert isinstance(happened, Function)
    return str(happened["name"])


def place(log: Log, name: str) -> int:
    return [name_of(each) for each in log].index(name)


def told(name: str, argument: str, value: Value) -> Tampered:
    """The first event of a name says something else."""

    def change(log: Log) -> Log:
        i = place(log, name)
        before = log[i]
        assert isinstance(before, Function)
        return [*log[:i], Function({**before, argument: value}), *log[i + 1 :]]

    return Tampered(change, name)


def left_out(name: str, refused: str) -> Tampered:
    def change(log: Log) -> Log:
        i = place(log, name)
        return [*log[:i], *log[i + 1 :]]

    return Tampered(change, refused)


def sooner(happened: Value, before: str) -> Tampered:
    """An event comes before the first one of a name already."""

    def change(log: Log) -> Log:
        rest = [each for each in log if each != happened]
        i = place(rest, before)
        return [*rest[:i], happened, *rest[i:]]

    return Tampered(change, name_of(happened))


TAMPERED = {
    "the cut reads a cursor that was never there": told("TakeCut", "cursor", 1),
    "the cut reads a loader of another step": told("TakeCut", "position", 2),
    "the cut reads the epoch of another step": told("TakeCut", "epoch", 1),
    "the cut reads a spare that is none": told("TakeCut", "spares", of((4, 1))),
    "the cut reads an index without its group": told("TakeCut", "index", of()),
    "the cut reads the index of a later step": told("TakeCut", "index", of(TWO, THREE)),
    "the cut reads a ledger without its record": told("TakeCut", "ledger", of()),
    "the cut is of another step": told("TakeCut", "step", 2),
    "the policy is copied in another step": told("CopyPolicy", "step", 2),
    "the policy is not copied": left_out("CopyPolicy", "SavePlane"),
    "training goes on before the copy": sooner(step_event("SelectGroups", 1, TWO), "CopyPolicy"),
    "the key map has rows that were committed later": told("SavePlane", "rows", 4),
    "units are saved before the key map": sooner(unit(1), "SavePlane"),
    "a unit is saved twice": told("SaveUnit", "unit", "0"),
    "a unit is saved that there is not": told("SaveUnit", "unit", "2"),
    "rows are cleared before the last unit is saved": sooner(FLUSHED, "RaiseVersion"),
    "the clears that waited are forgotten": left_out("FlushDeferred", "WriteSidecars"),
    "rows are cleared that did not wait": told("FlushDeferred", "groups", of(TWO, THREE)),
    "the sidecars come before the policy": sooner(step_event("WriteSidecars", 1), "WritePolicy"),
    "the manifest is of the version of its writing": told("WriteManifest", "step", 2),
    "the bundle is of the version of its publication": told("PublishBundle", "step", 3),
    "the next save begins before the publication": sooner(
        step_event("RequestCut", 3), "PublishBundle"
    ),
    "a window opens": sooner(step_event("OpenCut", 1), "TakeCut"),
}


def run_of(events: Log) -> RunLog:
    names = tuple(map(name_of, events))
    return RunLog("by hand", tuple(events), names, bounds=BOUNDS, groups={}, starts=2, failures=1)


@pytest.fixture(scope="module")
def verdicts(toolchain: Toolchain) -> dict[str, Validated]:
    """On the log as it is, and on each that was tampered with."""
    logs = {"": run_of([*BEFORE, *SAVE, *AFTER])}
    for what, tampered in TAMPERED.items():
        logs[what] = run_of([*BEFORE, *tampered.change(SAVE), *AFTER])
    return dict(zip(logs, validate(toolchain, SPEC, [*logs.values()]), strict=True))


pytestmark = pytest.mark.tlc


def test_the_pumps_may_go_on_while_a_save_is_written(verdicts: dict[str, Validated]) -> None:
    assert verdicts[""].refusal is None


@pytest.mark.parametrize("what", TAMPERED)
def test_what_did_not_happen_is_refused(verdicts: dict[str, Validated], what: str) -> None:
    refusal = verdicts[what].refusal
    assert refusal is not None
    assert (refusal.where, refusal.broken) == (TAMPERED[what].refused, None)


def failed_save(*, flushed: bool) -> Log:
    """The save of step 1 fails when a clear has waited for it, and is tried again."""
    failed = SAVE[: place(SAVE, "RaiseVersion")]
    flush = [FLUSHED] if flushed else []
    again: Log = [step_event("RequestCut", 2), cut(2, 2, 3, of(THREE), of())]
    return [*BEFORE, *failed, step_event("FailSave", 1), *flush, *moved(2), *again]


def test_clears_that_waited_for_a_failed_save_come_before_the_next(toolchain: Toolchain) -> None:
    logs = [run_of(failed_save(flushed=True)), run_of(failed_save(flushed=False))]
    good, bad = validate(toolchain, SPEC, logs)
    assert good.refusal is None
    assert bad.refusal is not None
    assert bad.refusal.where == "RequestCut"


def test_a_cut_waits_for_the_epoch_of_the_loader(toolchain: Toolchain) -> None:
    """Between the last batch of an epoch and the next epoch there is no cut."""
    bounds = BOUNDS.replace("PerEpoch = 4", "PerEpoch = 1")
    last = event("ReserveBatch", {"groups": of(ONE), "epoch": 0, "position": 1})
    raised = event("RaiseEpoch", {"epoch": 1})
    taken = event(
        "TakeCut",
        {
            "step": 0,
            "cursor": -1,
            "epoch": 1,
            "position": 0,
            "spares": of(),
            "index": of(),
            "ledger": of(ONE),
        },
    )
    between = Function({**taken, "epoch": 0}) if isinstance(taken, Function) else taken
    asked = [*BEFORE[:3], last, step_event("RequestCut", 0)]
    logs = [run_of([*asked, raised, taken]), run_of([*asked, between, raised])]
    logs = [RunLog(**{**vars(log), "bounds": bounds}) for log in logs]
    good, bad = validate(toolchain, SPEC, logs)
    assert good.refusal is None
    assert bad.refusal is not None
    assert bad.refusal.where == "TakeCut"
