"""A run as a whole: what the audit says, what the metrics say, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from cutlock.alphabet import Action
from cutlock.audit import Audit, audit_run
from cutlock.audit.fates import PENDING, Fate
from cutlock.audit.history import COMPLETE, Event, History, read_history
from cutlock.bundle.publication import DebrisKind, scan
from cutlock.bundle.verification import verify
from cutlock.errors import BundleCorruptError, BundleNotFoundError
from cutlock.report.pages.data import (
    Bundle,
    Fact,
    Part,
    Restart,
    RunPage,
    Save,
    Start,
    Trained,
)
from cutlock.run.directory import RunDirectory, RunFacts
from cutlock.run.metrics import TrainedStep, read_metrics
from cutlock.show.moments import listed

__all__ = ["page_of_run", "torn_logs"]

_ORDER = (
    Fate.TRAINED,
    Fate.LOST,
    Fate.DROPPED,
    Fate.TRAINING,
    Fate.BUFFER,
    Fate.ADMITTED,
    Fate.RESERVED,
    Fate.POOL,
    Fate.UNREAD,
)
_TWICE = "two owners"
_REASONS = 6
_MB = 1e6


def page_of_run(directory: RunDirectory, source: str) -> RunPage:
    """The page of a run, from its logs, metrics and bundles.

    Raises:
        BundleNotFoundError: there is no run in the directory.
        AuditError: nothing was started in it, or its logs cannot be read.
    """
    facts = directory.facts()
    audit = audit_run(directory)
    history = read_history(directory.logs())
    bundles = tuple(_bundles(directory, facts.run_id))
    trained, lacking = _trained(directory, history)
    return RunPage(
        title=_title(audit),
        lead=_lead(audit, history),
        source=source,
        ok=audit.ok,
        facts=tuple(_facts(facts, audit, history)),
        notes=(*_notes(directory, facts, audit), *lacking),
        problems=audit.problems,
        prompts=audit.prompts,
        fates=tuple(_parts(audit)),
        trained=trained,
        restarts=tuple(_restarts(history)),
        starts=tuple(_start(history, incarnation) for incarnation in sorted(history.logs)),
        saves=tuple(_saves(audit, directory, history)),
        bundles=bundles,
    )


def torn_logs(directory: RunDirectory) -> tuple[int, ...]:
    """Starts whose log ends in the middle of a line."""
    return tuple(number for number, path in directory.logs().items() if _torn(path))


def _torn(path: Path) -> bool:
    data = path.read_bytes()
    return bool(data) and not data.endswith(b"\n")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _title(audit: Audit) -> str:
    wrong = []
    if audit.lost:
        wrong.append(f"{_count(audit.lost, 'prompt')} lost")
    if audit.trained_twice:
        wrong.append(f"{_count(audit.trained_twice, 'prompt')} trained twice")
    if not wrong and audit.problems and not _bundles_alone(audit):
        wrong.append(f"the audit finds {_count(len(audit.problems), 'problem')}")
    begun = f"{_count(audit.steps, 'step')}, {_count(audit.restarts, 'restart')}"
    told = " and ".join(wrong) or "nothing lost, nothing trained twice"
    return f"{begun}: {told}{', and no bundle is here' if _bundles_alone(audit) else ''}"


def _bundles_alone(audit: Audit) -> bool:
    """Whether all that the audit finds is that no bundle is in the directory."""
    return not audit.bundles and all("is not resolvable" in found for found in audit.problems)


def _lead(audit: Audit, history: History) -> str:
    told = f"{audit.trained_once} of {_count(audit.prompts, 'prompt')} trained once"
    rest = [
        f"{number} {what}"
        for number, what in (
            (audit.dropped, "dropped on purpose"),
            (audit.pending, "on their way"),
            (audit.unread, "not read yet"),
        )
        if number
    ]
    told = ", ".join([told, *rest])
    if history.ended is None:
        end = "The newest start has not ended: it was killed, or it still runs."
    elif history.ended in COMPLETE:
        end = f"The run has come to its end ({history.ended})."
    else:
        end = f"The newest start has failed: {history.ended}."
    return f"{told}. {end}"


def _facts(facts: RunFacts, audit: Audit, history: History) -> Iterator[Fact]:
    yield Fact("run", facts.run_id)
    yield Fact("data set", f"{facts.data_set}, {_count(len(facts.prompts), 'prompt')}")
    begin = next((log[0] for log in history.logs.values() if log), None)
    if begin is not None and begin.action is Action.BEGIN_RUN:
        yield Fact("sampler", begin.args.sampler)
        yield Fact("prompts per step", str(begin.args.prompts_per_step))
        yield Fact("group size", str(begin.args.group_size))
        yield Fact("epochs", str(begin.args.epochs))
    yield Fact("trained again", f"{audit.redone} groups, in undone parts of the logs")


def _notes(directory: RunDirectory, facts: RunFacts, audit: Audit) -> Iterator[str]:
    for incarnation in torn_logs(directory):
        yield (
            f"The last line of the log of start {incarnation} is torn: the machine died, or the "
            "run is writing it now. It is left out."
        )
    if audit.ended is None:
        yield (
            "Fates are those that a resume would find: what was done after the newest bundle does "
            "not count. Make the page again when the run has gone on."
        )
    if not audit.bundles:
        yield (
            "There is no bundle in the directory. They were not kept, were moved, or nothing was "
            "saved yet; what they hold could not be held against the logs."
        )
    for debris in scan(directory.root, facts.run_id).debris:
        if debris.kind in {DebrisKind.BROKEN, DebrisKind.FOREIGN, DebrisKind.UNPUBLISHED}:
            yield f"Passed over: {debris}."


def _trained(
    directory: RunDirectory, history: History
) -> tuple[tuple[Trained, ...], tuple[str, ...]]:
    folder = directory.root / "metrics"
    where = f"{folder.name}/ in the directory of the run"
    try:
        steps = read_metrics(directory)
    except msgspec.DecodeError as error:
        return (), (f"The metrics in {where} cannot be read: {error}. Rewards are not shown.",)
    except OSError as error:
        return (), (f"The metrics cannot be read: {error}. Rewards are not shown.",)
    notes = []
    logged = sum(_trains(log) for log in history.logs.values())
    if not steps and logged:
        notes.append(f"There are no metrics in {where}, so rewards and staleness are not shown.")
    torn = [path.name for path in sorted(folder.glob("*.ndjson")) if _torn(path)]
    if torn:
        notes.append(f"The last line of {listed(torn)} in {where} is torn and is left out.")
    return tuple(map(_of_metrics, steps)), tuple(notes)


def _of_metrics(step: TrainedStep) -> Trained:
    report = step.report
    return Trained(step.step, report.reward_mean, report.loss, report.groups, step.staleness_max)


def _trains(events: Iterable[Event]) -> int:
    return sum(event.action is Action.TRAIN_STEP for event in events)


def _parts(audit: Audit) -> Iterator[Part]:
    counts = Counter(audit.fates.values())
    reasons = Counter(audit.drop_reasons[key] for key in audit.fates if key in audit.drop_reasons)
    for fate in _ORDER:
        count = counts[fate]
        if fate is Fate.TRAINED:
            yield Part(fate, audit.trained_once)
            yield Part(_TWICE, audit.trained_twice)
        elif fate in {Fate.LOST, Fate.DROPPED} or count:
            named = [key for key, found in audit.fates.items() if found == fate]
            yield Part(
                str(fate),
                count,
                tuple(Fact(reason, str(times)) for reason, times in reasons.most_common(_REASONS))
                if fate is Fate.DROPPED
                else (),
                (listed(named),) if named and (fate is Fate.LOST or fate in PENDING) else (),
            )


def _restarts(history: History) -> Iterator[Restart]:
    for incarnation in sorted(history.logs):
        parent = history.parent(incarnation)
        if parent is not None:
            yield Restart(incarnation, parent.args.step)


def _start(history: History, incarnation: int) -> Start:
    events = history.logs[incarnation]
    began = events[0].t if events else 0.0
    parent = history.parent(incarnation)
    newest = incarnation == history.newest
    reason = events[-1].args.reason if events and events[-1].action is Action.END_RUN else None
    if reason is None:
        ended = "killed, or still running" if newest else "killed"
    else:
        ended = f"ended: {reason}" if reason in COMPLETE else f"failed: {reason}"

    def times(action: Action) -> tuple[float, ...]:
        return tuple(event.t - began for event in events if event.action is action)

    return Start(
        number=incarnation,
        seconds=events[-1].t - began if events else 0.0,
        ended=ended,
        alive=reason in COMPLETE or (reason is None and newest),
        steps=_trains(events),
        resumed_from=parent.args.bundle if parent is not None else "",
        saves=times(Action.PUBLISH_BUNDLE),
        failed_saves=times(Action.FAIL_SAVE),
    )


def _saves(audit: Audit, directory: RunDirectory, history: History) -> Iterator[Save]:
    newest = {window.step: window.incarnation for window in audit.exclusive_window_ms}
    for window in audit.exclusive_window_ms:
        name = f"step_{window.step}"
        yield Save(
            bundle=name,
            start=window.incarnation,
            drain_ms=window.drain,
            exclusive_ms=window.exclusive,
            rest_ms=window.rest,
            kept=name in audit.bundles and newest[window.step] == window.incarnation,
        )


def _bundles(directory: RunDirectory, run_id: str) -> Iterator[Bundle]:
    for bundle in scan(directory.root, run_id).bundles:
        try:
            verified = verify(bundle.path)
        except BundleNotFoundError:
            continue  # Pruned meanwhile.
        except BundleCorruptError as error:
            yield Bundle(bundle.path.name, 0.0, f"no: {error}")
            continue
        size = sum(file.size for file in verified.manifest.files)
        count = len(verified.manifest.files)
        yield Bundle(bundle.path.name, size / _MB, f"all {count} files have their digests")
