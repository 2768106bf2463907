"""Event logs of real runs, held against the specification by TLC.

The logs of all starts of a run are one behaviour: each start but the first follows a crash.
Group ids become prompts of the model by the order in which the data set is served, which the
run's own files give; so a log cannot choose its prompts.

Source: design, section 13; `spec/TraceCutlock.tla`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from cutlock.alphabet import ARGUMENTS, Action
from cutlock.audit.history import COMPLETE, Event, History, read_history
from cutlock.bond.logs import Accepted, Log, accept_logs
from cutlock.bundle.contents import TrainingInfo
from cutlock.bundle.layout import TRAINING_INFO
from cutlock.bundle.publication import scan
from cutlock.errors import ConformanceError
from cutlock.loader import epoch_order
from cutlock.run.config import RunConfig, parse_config
from cutlock.run.directory import RunDirectory, RunFacts
from cutlock.samplers.config import CustomConfig
from cutlock.tlc.logcheck import LogSpec, event
from cutlock.tlc.outcome import Progress
from cutlock.tlc.run import Toolchain
from cutlock.tlc.values import Function, Value, to_tla

__all__ = [
    "Prompt",
    "Refusal",
    "RunLog",
    "Validated",
    "Validation",
    "read_run",
    "translate",
    "validate",
]

Prompt: TypeAlias = tuple[int, int]
"""A prompt of the model: batch over all epochs, and place in it, both counted from 1."""

INVARIANTS = (
    "OneOwner",
    "NewDiskOneOwner",
    "NewDiskCursor",
    "NewDiskStamps",
    "NewDiskEpoch",
    "NewDiskRows",
    "LiveRows",
    "NoTwice",
    "NoLoss",
    "Complete",
    "CutExcludes",
    "GateBound",
    "FreshAdvantages",
)
"""Checked after every event."""

_OF_A_LOG = ("Steps", "NarrowCut", "Prompts", "PutIsTorn")
"""Operators that a log puts its own in place of."""
_NOBODY = (0, 0)
"""Stands for a group that the data set does not serve; no action takes it."""
_PROMPT = frozenset({"group", "substitute"})
_PROMPTS = frozenset({"groups", "spares", "index", "ledger"})
_LEFT_OUT = frozenset({"admission", "attempt", "error", "bundle", "bundles", "log_records"})
_LEFT_OUT_OF = {
    Action.BEGIN_RUN: frozenset(ARGUMENTS[Action.BEGIN_RUN]) - {"cut"},
    Action.DROP_GROUP: frozenset({"reason"}),
    Action.VERIFY_BUNDLE: frozenset({"incarnation"}),
}
_END_OF_SAVE = frozenset({Action.WRITE_MANIFEST, Action.PUBLISH_BUNDLE, Action.FAIL_SAVE})
_FAILURES = frozenset({Action.FAIL_GROUP, Action.ROLLBACK_GROUP, Action.FAIL_SAVE})


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The first event of a run that the specification does not allow."""

    where: str
    """File, line and action."""
    event: str
    """As the specification gets it, with prompts in place of group ids."""
    broken: str | None
    """The promise that does not hold after the event; None if no step fits the event."""
    groups: dict[str, str]
    """Group ids of the prompts that the event names."""
    state: dict[str, str]
    """Before the event, or after it if a promise is broken."""


class Validated(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one run's logs."""

    run: str
    ok: bool
    events: int
    accepted: int
    """Of the events."""
    starts: int
    seconds: float
    """Of the start of TLC, which runs of equal bounds share."""
    refusal: Refusal | None = None
    failed: tuple[str, ...] = ()
    """Starts that an error has ended, and the error: an end that the specification allows."""


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """What `cutlock validate --json` writes."""

    ok: bool
    """Whether every run was accepted."""
    runs: tuple[Validated, ...]
    """In the order of the command line."""
    spec: str
    """Folder of the specification."""
    java: str
    """Its version."""
    jar: str
    """sha256 of the jar of TLC."""


@dataclass(frozen=True, kw_only=True)
class RunLog(Log):
    """The logs of a run as one sequence of events; a place is file, line and action."""

    bounds: str
    """The CONSTANTS part of a configuration, but for what bounds trouble."""
    groups: Mapping[Value, str]
    """Prompt of the model to group id."""
    starts: int
    failures: int
    failed: tuple[str, ...] = ()
    """Ends by an error: place and error."""


def validate(
    toolchain: Toolchain,
    spec: Path,
    runs: Sequence[RunLog],
    watch: Callable[[Progress], None] | None = None,
) -> list[Validated]:
    """Have TLC take the events one after the other; runs of equal bounds share one start of it.

    Args:
        spec: the folder of the specification.
        watch: told how far TLC is, about once a minute.

    Raises:
        ToolError: TLC failed.
        BudgetError: it took too long.
    """
    by_bounds: dict[str, list[int]] = {}
    for number, run in enumerate(runs):
        by_bounds.setdefault(run.bounds, []).append(number)
    found: dict[int, Validated] = {}
    for bounds, numbers in by_bounds.items():
        failures = max(runs[number].failures for number in numbers)
        accept = LogSpec(
            spec / "TraceCutlock.tla",
            constants=f"{bounds}\n    Failures = {failures}",
            init="TraceInit",
            invariants=INVARIANTS,
            show="Shown",
        )
        began = time.monotonic()
        logs = [runs[number] for number in numbers]
        accepted = accept_logs(toolchain, accept, logs, watch)
        seconds = time.monotonic() - began
        for number, verdict in zip(numbers, accepted, strict=True):
            found[number] = _validated(runs[number], verdict, seconds)
    return [found[number] for number in range(len(runs))]


def _validated(run: RunLog, found: Accepted, seconds: float) -> Validated:
    return Validated(
        run=run.name,
        ok=found.ok,
        events=found.events,
        accepted=found.accepted,
        starts=run.starts,
        seconds=seconds,
        refusal=None if found.refused is None else _refusal(run, found, found.refused),
        failed=run.failed,
    )


def _refusal(run: RunLog, found: Accepted, where: str) -> Refusal:
    refused = event("Init", {}) if found.at < 0 else run.events[found.at]
    return Refusal(
        where=where,
        event=to_tla(refused),
        broken=found.broken,
        groups={
            to_tla(prompt): run.groups.get(prompt, "not of this run")
            for prompt in sorted(_prompts_in(refused))
        },
        state=found.state,
    )


def _prompts_in(happened: Value) -> set[Prompt]:
    found: set[Prompt] = set()
    for value in happened.values() if isinstance(happened, Function) else ():
        for part in value if isinstance(value, frozenset) else (value,):
            match part:
                case (int(batch), int(member)):
                    found.add((batch, member))
    return found


def read_run(directory: RunDirectory) -> RunLog:
    """Translate the logs of a run.

    Raises:
        AuditError: a log is not one.
        BundleNotFoundError: there is no run.
        ConformanceError: the run has something that is not modelled.
    """
    return translate(directory.root, directory.facts(), read_history(directory.logs()))


def translate(root: Path, facts: RunFacts, history: History) -> RunLog:
    """The logs of a run as one sequence of events.

    Args:
        root: the run's directory, with the bundles that are left.

    Raises:
        ConformanceError: the run has something that is not modelled.
    """
    config = parse_config(facts.config)
    _require_modelled(root, config)
    starts = [
        record
        for log in history.logs.values()
        for record in log
        if record.action is Action.BEGIN_RUN
    ]
    for record in starts:
        _require_same(record, config)
    prompts = _prompts(facts, config)
    steps = [*_steps(history, prompts)]
    return RunLog(
        name=str(root),
        bounds=_bounds(facts, config, [start.args for start in starts]),
        events=tuple(step for step, _ in steps),
        places=tuple(place for _, place in steps),
        groups={prompt: group for group, prompt in prompts.items()},
        starts=len(history.logs),
        failures=sum(r.action in _FAILURES for log in history.logs.values() for r in log),
        failed=tuple(
            f"{record.where}: {record.args.reason}"
            for log in history.logs.values()
            for record in log
            if record.action is Action.END_RUN and record.args.reason not in COMPLETE
        ),
    )


def _steps(history: History, prompts: Mapping[str, Prompt]) -> Iterator[tuple[Value, str]]:
    """The events of all starts, and where each stands."""
    taken = _taken(history)
    lost = _published_unseen(history)

    def published(incarnation: int, step: int) -> Value:
        kept = incarnation if _Source(incarnation, step) in taken.values() else 0
        return event("PublishBundle", {"step": step, "kept": kept})

    up = False
    for incarnation, log in history.logs.items():
        where = f"start of incarnation {incarnation}"
        if up:
            yield event("Crash", {}), where
        parent = history.parent(incarnation)
        if parent is not None:
            source = _Source(parent.args.incarnation, parent.args.step)
            if incarnation in taken:
                yield event("TakeBundle", source._asdict()), parent.where
            if _leaves_rows(log):
                yield event("LeaveRows", {}), parent.where
        up = bool(log)
        for record in log:
            step = getattr(record.args, "step", -1)
            if record.action is Action.END_RUN and incarnation in lost:
                yield published(incarnation, lost.pop(incarnation)), record.where
            kept = incarnation if _Source(incarnation, step) in taken.values() else 0
            yield _translated(record, prompts, kept), record.where
        if incarnation in lost:
            yield published(incarnation, lost[incarnation]), f"end of incarnation {incarnation}"


class _Source(NamedTuple):
    """A bundle: which start has saved it, at which step."""

    incarnation: int
    step: int


def _taken(history: History) -> dict[int, _Source]:
    """The starts that resume from another bundle than the newest, and their bundles."""
    newest = None
    found = {}
    lost = _published_unseen(history)
    for incarnation, log in history.logs.items():
        parent = history.parent(incarnation)
        if parent is not None:
            source = _Source(parent.args.incarnation, parent.args.step)
            if source != newest:
                found[incarnation] = source
            # Who leaves the rows behind has another bundle in hand than the one on disk.
            newest = None if _leaves_rows(log) else source
        for record in log:
            if record.action is Action.PUBLISH_BUNDLE:
                newest = _Source(incarnation, record.args.step)
        if incarnation in lost:
            newest = _Source(incarnation, lost[incarnation])
    return found


def _published_unseen(history: History) -> dict[int, int]:
    """Steps of bundles, by start, that were published when the process no longer said so.

    A later start resumes from such a bundle, and the log ends inside its save.
    """
    found: dict[int, int] = {}
    for incarnation in history.logs:
        parent = history.parent(incarnation)
        if parent is None:
            continue
        saver, step = parent.args.incarnation, parent.args.step
        saving = [r for r in history.logs.get(saver, ()) if r.action in _END_OF_SAVE]
        if saving and saving[-1].action is Action.WRITE_MANIFEST and saving[-1].args.step == step:
            found[saver] = step
    return found


def _leaves_rows(log: Sequence[Event]) -> bool:
    """Whether a start restores no rows: its bundle has none, or was resumed without them."""
    loaded = next((record for record in log if record.action is Action.LOAD_PLANE), None)
    return loaded is not None and loaded.args.rows == 0


def _require_modelled(root: Path, config: RunConfig) -> None:
    """Refuse a run that has something which is not modelled, by its configurations.

    Raises:
        ConformanceError: it has.
    """
    if isinstance(config.sampler, CustomConfig):
        raise _not_modelled(str(root), "a custom sampler")
    for each in (config, *_saved_configs(root)):
        if not each.checkpoint.rows:
            raise _not_modelled(str(root), "checkpoint.rows = false")
        if each.sampler != config.sampler:
            raise _not_modelled(
                str(root), f"sampler = {each.sampler}, which was {config.sampler} when it began"
            )


def _saved_configs(root: Path) -> list[RunConfig]:
    """Those of the bundles that are there: a resume may have changed something."""
    files = (bundle.path / TRAINING_INFO for bundle in scan(root).bundles)
    infos = (msgspec.json.decode(file.read_bytes(), type=TrainingInfo) for file in files)
    return [parse_config(info.config) for info in infos]


def _not_modelled(where: str, what: str) -> ConformanceError:
    return ConformanceError(
        f"{where}: the run has {what}; the specification does not model that, and "
        "`cutlock audit` accounts for its prompts"
    )


def _require_same(start: Event, config: RunConfig) -> None:
    """A run whose bounds change between two starts has no one configuration of the model.

    Each start may make its cuts in its own way, and have its own number of steps.
    """
    sampler = config.plain()["sampler"]
    bounds = {
        "sampler": sampler["name"],
        "window": sampler["window"],
        "prompts_per_step": config.prompts_per_step,
        "group_size": config.group_size,
        "epochs": config.epochs,
        "capacity": config.capacity(),
        "spare_prompts": config.buffer.spare_prompts,
        "units": config.plane.units,
    }
    for name, first in bounds.items():
        if (now := getattr(start.args, name)) != first:
            raise _not_modelled(start.where, f"{name} = {now!r}, which was {first!r} when it began")


def _prompts(facts: RunFacts, config: RunConfig) -> dict[str, Prompt]:
    """Group id to prompt of the model, in the order in which the loader serves."""
    size, each = len(facts.prompts), config.prompts_per_step
    per_epoch = -(-size // each)
    found = {}
    for epoch in range(config.epochs):
        for place, index in enumerate(epoch_order(size, epoch, config.seed)):
            batch, member = divmod(place, each)
            found[f"{facts.prompts[index]}@{epoch}"] = (epoch * per_epoch + batch + 1, member + 1)
    return found


def _translated(record: Event, prompts: Mapping[str, Prompt], kept: int) -> Value:
    arguments: dict[str, Value] = {}
    left_out = _LEFT_OUT | _LEFT_OUT_OF.get(record.action, frozenset())
    for name in record.args.__struct_fields__:
        if name not in left_out:
            arguments[name] = _value(name, getattr(record.args, name), prompts)
    if record.action is Action.END_RUN and record.args.reason not in COMPLETE:
        arguments["reason"] = "error"
    if record.action is Action.PUBLISH_BUNDLE:
        arguments["kept"] = kept
    return event(record.action.value, arguments)


def _value(name: str, value: Any, prompts: Mapping[str, Prompt]) -> Value:
    if name in _PROMPTS:
        known = [prompts.get(group, _NOBODY) for group in value]
        # A group that is named twice must not vanish in a set.
        return frozenset(known) if len(set(known)) == len(known) else frozenset({_NOBODY})
    if name in _PROMPT:
        return prompts.get(value, _NOBODY)
    if name == "unit":
        return str(value)  # among the files of a bundle, which have names
    if value is None:
        return -1
    assert isinstance(value, int | str)
    return value


def _bounds(facts: RunFacts, config: RunConfig, starts: Sequence[Any]) -> str:
    """The CONSTANTS of a run.

    Args:
        starts: arguments of `BeginRun` of each start.
    """
    sampler = config.plain()["sampler"]
    size, each = len(facts.prompts), config.prompts_per_step
    per_epoch = -(-size // each)
    # Only the narrow cut saves the units one by one; without it they are as good as one.
    narrow = any(start.cut == "narrow" for start in starts)
    units = map(str, range(config.plane.units)) if narrow else ["rows"]
    values: dict[str, Value] = {
        "Batches": per_epoch * config.epochs,
        "PerEpoch": per_epoch,
        "Member": frozenset(range(1, each + 1)),
        "LastBatch": size - (per_epoch - 1) * each,
        "GroupSize": config.group_size,
        "Budgets": frozenset(start.max_steps for start in starts if start.max_steps is not None),
        "Window": sampler["window"],
        "Sampler": sampler["name"],
        "SpareMark": config.buffer.spare_prompts,
        "Capacity": config.capacity(),
        "Units": frozenset(units),
        "Narrow": narrow,  # of any start; each says of itself whether it is
    }
    lines = [f"    {name} = {to_tla(value)}" for name, value in values.items()]
    lines += [f"    {name} <- Trace{name}" for name in _OF_A_LOG]
    if sampler.get("order") == "freshest":
        lines.append("    FirstFinished <- FirstFreshest")
    return "\n".join(["CONSTANTS", *lines])
