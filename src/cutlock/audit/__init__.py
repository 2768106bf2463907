"""The audit of a run: logs and bundles, read as one history, and the fate of every prompt."""

from __future__ import annotations

from collections import Counter

import msgspec

from cutlock.alphabet import Action
from cutlock.audit.fates import PENDING, Fate, Fates
from cutlock.audit.history import History, read_history
from cutlock.bundle.contents import decode_cut, read_training_info
from cutlock.bundle.publication import Bundle, scan
from cutlock.bundle.verification import verify
from cutlock.controller.config import parse_config
from cutlock.controller.run_directory import RunDirectory
from cutlock.errors import BundleCorruptError

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
    steps: int
    redone: int
    """Groups trained in parts of the logs that a restart has undone."""
    ended: str | None
    bundles: tuple[str, ...]
    exclusive_window_ms: tuple[Window, ...]
    problems: tuple[str, ...]
    fates: dict[str, str]
    drop_reasons: dict[str, str]


def audit_run(directory: RunDirectory) -> Audit:
    """Read everything that a run has left on disk and account for every prompt occurrence.

    Besides the fates it compares each bundle that is still there with the history: its cut
    holds who owned what at that record, and its policy was made by exactly those steps.

    Raises:
        BundleNotFoundError: there is no run in the directory.
        AuditError: the logs cannot be read as one history.
    """
    facts = directory.facts()
    config = parse_config(facts.config)
    history = read_history(directory.logs())
    epochs = max([config.epochs, *_epochs(history)])
    fates = Fates(facts.prompts, epochs)
    for segment in history.segments:
        fates.walk(segment)
    fates.finish(everything_served=history.ended == "exhausted")
    problems = list(fates.problems)
    bundles = scan(directory.root, facts.run_id).bundles
    for bundle in bundles:
        problems += _compare(bundle, history, Fates(facts.prompts, epochs))
    counts = Counter(fates.of.values())
    twice = sum(times > 1 for times in fates.trained.values())
    everything = Counter(
        group
        for records in history.logs.values()
        for record in records
        if record.action == Action.TRAIN_STEP
        for group in record.args["groups"]  # type: ignore[attr-defined]
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
        restarts=history.restarts,
        steps=sum(
            record.action == Action.RAISE_VERSION
            for segment in history.segments
            for record in segment.records
        ),
        redone=everything.total() - fates.trained.total(),
        ended=history.ended,
        bundles=tuple(bundle.path.name for bundle in bundles),
        exclusive_window_ms=tuple(_windows(history)),
        problems=tuple(problems),
        fates={key: str(fate) for key, fate in fates.of.items()},
        drop_reasons=fates.reasons,
    )


def _epochs(history: History) -> list[int]:
    return [
        epochs
        for records in history.logs.values()
        for record in records
        if record.action == Action.BEGIN_RUN and isinstance(epochs := record.args["epochs"], int)
    ]


def _windows(history: History) -> list[Window]:
    windows = []
    for incarnation, records in history.logs.items():
        asked = opened = closed = 0.0
        for record in records:
            match record.action:
                case Action.REQUEST_CUT:
                    asked = record.t
                case Action.OPEN_CUT:
                    opened = record.t
                case Action.CLOSE_CUT:
                    closed = record.t
                case Action.PUBLISH_BUNDLE:
                    windows.append(
                        Window(
                            incarnation,
                            int(str(record.args["step"])),
                            round((opened - asked) * 1e3, 3),
                            round((closed - opened) * 1e3, 3),
                            round((record.t - closed) * 1e3, 3),
                        )
                    )
    return windows


def _compare(bundle: Bundle, history: History, fates: Fates) -> list[str]:
    """Differences between a bundle's cut and the history up to it."""
    name = bundle.path.name
    try:
        verified = verify(bundle.path)
        info = read_training_info(verified)
        cut = decode_cut(verified)
    except BundleCorruptError as error:
        return [str(error)]
    past = [s for s in history.segments if s.incarnation < info.incarnation]
    for segment in past:
        fates.walk(segment)
    records = history.logs.get(info.incarnation, ())
    if len(records) < info.log_records:
        return [
            f"{name} was cut after {info.log_records} records of incarnation "
            f"{info.incarnation}, whose log has {len(records)}"
        ]
    for record in records[: info.log_records]:
        fates.follow(record)
    index = {entry.group_id for entry in cut.index}
    ledger = {record.group_id for record in cut.ledger}
    ready = fates.owned(Fate.BUFFER)
    pairs = [
        ("spare pool", {spare.key for spare in cut.spare_pool}, fates.owned(Fate.POOL)),
        ("index", index, ready if info.rows else set()),
        ("ledger", ledger, fates.owned(Fate.LEDGER) | (set() if info.rows else ready)),
    ]
    problems = [
        f"{name}: {what} differs from the log at record {info.log_records}: only in the bundle "
        f"{sorted(saved - logged)[:4]}, only in the log {sorted(logged - saved)[:4]}"
        for what, saved, logged in pairs
        if saved != logged
    ]
    trained = (info.trained_groups, info.trained_chain)
    if trained != (fates.trained.total(), fates.chain):
        problems.append(
            f"{name}: its policy was trained on {info.trained_groups} groups, chain "
            f"{info.trained_chain[:16]}, and the log has {fates.trained.total()}, chain "
            f"{fates.chain[:16]}"
        )
    return problems
