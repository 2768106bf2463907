"""The audit of a run: logs and bundles, read as one history, and the fate of every prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from cutlock.alphabet import Action
from cutlock.audit.account import Account
from cutlock.audit.bundles import SavedCut, differences, read_cut
from cutlock.audit.fates import PENDING, Fate
from cutlock.audit.history import COMPLETE, Event, History, read_history
from cutlock.bundle.publication import scan
from cutlock.errors import AuditError, BundleCorruptError, BundleNotFoundError
from cutlock.run.directory import RunDirectory, RunFacts

__all__ = ["Audit", "Window", "audit_run"]


class Window(msgspec.Struct, frozen=True):
    """The times of one published save, in milliseconds."""

    incarnation: int
    step: int
    drain: float
    exclusive: float
    rest: float


class Audit(msgspec.Struct, frozen=True):
    """What an audit found; `ok` is the verdict."""

    ok: bool
    prompts: int
    """Occurrences: prompts of the data set times epochs."""
    trained_once: int
    trained_twice: int
    lost: int
    dropped: int
    pending: int
    """Owned by pool, ledger or buffer when the history ends."""
    unread: int
    restarts: int
    """Starts of a controller after the first, failed ones included."""
    steps: int
    redone: int
    """Groups trained in parts of the logs that a restart has undone, or will undo."""
    ended: str | None
    """How the newest start ended; None if it was killed or still runs."""
    bundles: tuple[str, ...]
    exclusive_window_ms: tuple[Window, ...]
    problems: tuple[str, ...]
    fates: dict[str, str]
    drop_reasons: dict[str, str]


def audit_run(directory: RunDirectory | Path) -> Audit:
    """Read everything that a run has left on disk and account for every prompt occurrence.

    The history that counts is the one that survives: of a run that has come to its end, all
    that led there; of one that was killed or has failed, what its newest bundle continues.
    What was undone is checked record by record all the same, and every resolvable bundle is
    compared with the history up to its cut.

    Raises:
        BundleNotFoundError: there is no run in the directory.
        AuditError: the logs cannot be read as histories at all.
    """
    if isinstance(directory, Path):
        directory = RunDirectory(directory)
    facts = directory.facts()
    problems: list[str] = []
    # Before the logs, which of a run that goes on then hold the past of every bundle.
    saved: list[SavedCut] = []
    found = scan(directory.root, facts.run_id).bundles
    for bundle in found:
        try:
            saved.append(read_cut(bundle.path))
        except BundleCorruptError as error:
            problems.append(str(error))
        except BundleNotFoundError:
            pass  # Pruned meanwhile.
    history = read_history(directory.logs())
    due, known = _epochs(facts, history)

    def account(events: Iterable[Event]) -> Account:
        return Account(facts.prompts, known, events)

    for incarnation in history.logs:
        problems += account(history.until(incarnation)).problems
    for one in saved:
        problems += _compare(one, history, account)
    problems += _framing(history)
    problems += _unresolvable(history, directory.root, facts.run_id)

    complete = history.ended in COMPLETE
    events: list[Event] = []
    if complete:
        events = history.until(history.newest)
        problems += _unsaved(history)
    elif saved and (base := saved[-1].info).incarnation in history.logs:
        events = history.until(base.incarnation, base.log_records)
    surviving = account(events)
    if history.ended == "exhausted":
        surviving.fates.finish(due)
    problems += surviving.problems

    fates = surviving.fates
    counts = Counter(fates.of.values())
    twice = sum(times > 1 for times in fates.trained.values())
    everything = sum(
        len(event.args.groups)
        for events in history.logs.values()
        for event in events
        if event.action is Action.TRAIN_STEP
    )
    return Audit(
        ok=not (problems or twice or counts[Fate.LOST]),
        prompts=len(fates.of),
        trained_once=sum(times == 1 for times in fates.trained.values()),
        trained_twice=twice,
        lost=counts[Fate.LOST],
        dropped=counts[Fate.DROPPED],
        pending=sum(counts[fate] for fate in PENDING),
        unread=counts[Fate.UNREAD],
        restarts=history.newest - 1,
        steps=surviving.steps.step,
        redone=everything - fates.trained.total(),
        ended=history.ended,
        bundles=tuple(bundle.path.name for bundle in found),
        exclusive_window_ms=tuple(_windows(history)),
        problems=tuple(dict.fromkeys(problems)),
        fates={key: str(fate) for key, fate in fates.of.items()},
        drop_reasons=fates.reasons,
    )


def _epochs(facts: RunFacts, history: History) -> tuple[int, int]:
    """(epochs that the run was last told to serve, epochs that a log knows of)."""
    # Not by `parse_config`, which imports the sampler that a configuration names.
    due = facts.config.get("epochs")
    if not isinstance(due, int):
        raise AuditError(
            f"run.json says epochs = {due!r}, which is no number; put back the file that "
            "`cutlock run` wrote"
        )
    begun = 0
    for incarnation in sorted(history.logs):
        for event in history.logs[incarnation]:
            if event.action is Action.BEGIN_RUN:
                due = event.args.epochs
            elif event.action in {Action.RESERVE_BATCH, Action.FILL_SPARE_POOL}:
                begun = max(begun, event.args.epoch + 1)
    return due, max(due, begun)


def _compare(
    saved: SavedCut, history: History, account: Callable[[Iterable[Event]], Account]
) -> list[str]:
    info = saved.info
    try:
        past = history.until(info.incarnation, info.log_records)
    except AuditError as error:
        return [f"{saved.path.name}: {error}"]
    return list(differences(saved, history, account(past)))


def _framing(history: History) -> Iterator[str]:
    """What is wrong with the logs as a whole, and with how they hang together."""
    for incarnation in range(1, history.newest + 1):
        events = history.logs.get(incarnation)
        if events is None:
            yield f"the log of incarnation {incarnation} is missing"
            continue
        for place, event in enumerate(events):
            begins = event.action is Action.BEGIN_RUN
            if begins is not (place == 0) or (begins and event.args.incarnation != incarnation):
                yield f"{event.where}: a log begins, once, with BeginRun of its incarnation"
            if event.action is Action.END_RUN and event is not events[-1]:
                yield f"{event.where}: the run goes on after its end"
        parent = history.parent(incarnation)
        if parent is not None:
            step = history.cut_at(parent.args.incarnation, parent.args.log_records)
            if step != parent.args.step:
                yield (
                    f"{parent.where}: record {parent.args.log_records} of incarnation "
                    f"{parent.args.incarnation} is not the cut of step {parent.args.step}"
                )


def _unresolvable(history: History, root: Path, run_id: str) -> Iterator[str]:
    """Promise P8: the bundle that the next resume needs, or a newer one, is there.

    The logs need not know the newer one: when a machine dies, the end of a log that was not
    synced dies with it, and only the past of each bundle's cut is synced before the bundle is
    published. Nor do they while a run goes on that is audited.
    """
    last = history.last_bundle()
    if last is None:
        return

    def suffices(saved: SavedCut) -> bool:
        info = saved.info
        newer = info.incarnation == last.incarnation and info.log_records > last.place
        return newer or (saved.path.name, info.incarnation) == (name, last.saved_by)

    name = last.event.args.bundle
    newest_first = reversed(scan(root, run_id).bundles)
    paths = [root / name, *(bundle.path for bundle in newest_first)]
    for path in paths:
        try:
            if suffices(read_cut(path)):
                return
        except (BundleCorruptError, BundleNotFoundError):
            continue
    yield (
        f"{last.event.where}: bundle {name} of incarnation {last.saved_by} is not resolvable, "
        "and no newer one of its timeline is"
    )


def _unsaved(history: History) -> Iterator[str]:
    """Steps that a run which came to its end has left in no bundle."""
    unsaved: list[Event] = []
    since_cut: list[Event] = []
    for event in history.logs[history.newest]:
        match event.action:
            case Action.TRAIN_STEP:
                since_cut.append(event)
            case Action.OPEN_CUT | Action.TAKE_CUT:
                unsaved, since_cut = unsaved + since_cut, []
            case Action.PUBLISH_BUNDLE:
                unsaved = []
    for event in unsaved + since_cut:
        yield f"{event.where}: trained, and in no bundle though the run ended"


def _windows(history: History) -> Iterator[Window]:
    for incarnation in sorted(history.logs):
        asked = opened = closed = 0.0
        for event in history.logs[incarnation]:
            match event.action:
                case Action.REQUEST_CUT:
                    asked = event.t
                case Action.OPEN_CUT:
                    opened = event.t
                case Action.TAKE_CUT:
                    # Entered and left in one step, with nothing in between.
                    opened = closed = event.t
                case Action.CLOSE_CUT:
                    closed = event.t
                case Action.PUBLISH_BUNDLE:
                    times = (opened - asked, closed - opened, event.t - closed)
                    drain, exclusive, rest = (round(1e3 * time, 3) for time in times)
                    yield Window(incarnation, event.args.step, drain, exclusive, rest)
