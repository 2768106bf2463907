"""What must hold of every cut, whatever the configuration of the run.

Source: spec invariants of promises P2 and P3; design, section 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cutlock.bundle.layout import INDEX, LEDGER, LOADER, RESERVE, TRAINING_INFO
from cutlock.errors import InvariantError
from cutlock.records import IndexEntry, LedgerRecord, Phase, Snapshot

__all__ = ["Problem", "problems", "require_consistent"]


@dataclass(frozen=True)
class Problem:
    """One thing that a cut must not hold."""

    file: str
    """The artifact that holds it."""
    what: str


def require_consistent(cut: Snapshot) -> None:
    """Refuse to write a cut that no restore would take.

    Raises:
        InvariantError: naming the first of the problems.
    """
    for problem in problems(cut):
        raise InvariantError(
            f"the cut of step {cut.step} is not one state of the run: {problem.what} "
            f"({problem.file}); nothing was saved, resume from the last bundle"
        )


def problems(cut: Snapshot) -> Iterator[Problem]:
    """Everything in `cut` that the protocol forbids."""
    yield from _counters(cut)
    yield from _owners(cut)
    yield from _rows(cut)
    yield from _phases(cut)
    yield from _dispatch(cut)


def _counters(cut: Snapshot) -> Iterator[Problem]:
    counters = (
        (TRAINING_INFO, "step", cut.step, 0),
        (TRAINING_INFO, "version", cut.version, 0),
        (TRAINING_INFO, "cursor", cut.cursor, -1),
        (LOADER, "epoch", cut.loader.epoch, 0),
        (LOADER, "position", cut.loader.position, 0),
        (LEDGER, "next_admission", cut.next_admission, 0),
        (LEDGER, "dropped", cut.dropped, 0),
    )
    for file, name, value, least in counters:
        if value < least:
            yield Problem(file, f"{name} is {value}, below {least}")
    steps = [step for step, _ in cut.shortfall]
    if len(set(steps)) < len(steps):
        yield Problem(LEDGER, f"shortfall names a step twice: {steps}")
    for step, count in cut.shortfall:
        if count < 1:
            yield Problem(LEDGER, f"shortfall of step {step} is {count}, below 1")


def _owners(cut: Snapshot) -> Iterator[Problem]:
    owner: dict[str, str] = {}
    for file, group_id in (
        *((INDEX, entry.group_id) for entry in cut.index),
        *((LEDGER, record.group_id) for record in cut.ledger),
        *((RESERVE, spare.key) for spare in cut.spare_pool),
    ):
        if group_id in owner:
            yield Problem(file, f"group {group_id!r} has two owners, {owner[group_id]} and {file}")
        owner[group_id] = file
    for file, group_id, key in (
        *((INDEX, entry.group_id, entry.occurrence.key) for entry in cut.index),
        *((LEDGER, record.group_id, record.occurrence.key) for record in cut.ledger),
    ):
        if group_id != key:
            yield Problem(file, f"group {group_id!r} is of the occurrence {key!r}")


def _rows(cut: Snapshot) -> Iterator[Problem]:
    group_of: dict[str, str] = {}
    for entry in cut.index:
        if not entry.row_keys:
            yield Problem(INDEX, f"group {entry.group_id!r} has no row")
        for key in entry.row_keys:
            if key in group_of:
                yield Problem(
                    INDEX, f"row {key!r} is of {group_of[key]!r} and of {entry.group_id!r}"
                )
            group_of[key] = entry.group_id


def _phases(cut: Snapshot) -> Iterator[Problem]:
    for record in cut.ledger:
        who = f"group {record.group_id!r} is {record.phase}"
        match record.phase:
            case Phase.RESERVED:
                for name in ("dispatch_index", "stamp", "start_weight"):
                    if (value := getattr(record, name)) is not None:
                        yield Problem(LEDGER, f"{who} with {name} {value}")
            case Phase.ADMITTED:
                for name in ("dispatch_index", "start_weight"):
                    if getattr(record, name) is None:
                        yield Problem(LEDGER, f"{who} without {name}")


def _dispatch(cut: Snapshot) -> Iterator[Problem]:
    entries: tuple[IndexEntry | LedgerRecord, ...] = (*cut.index, *cut.ledger)
    for entry in entries:
        file = LEDGER if isinstance(entry, LedgerRecord) else INDEX
        who = f"of group {entry.group_id!r}"
        for name, value in (("dispatch_index", entry.dispatch_index), ("stamp", entry.stamp)):
            if value is not None and value > cut.cursor:
                yield Problem(file, f"{name} {value} {who} is past the cursor {cut.cursor}")
        if entry.admission_id >= cut.next_admission:
            yield Problem(
                file,
                f"admission_id {entry.admission_id} {who} would be given again, "
                f"next_admission is {cut.next_admission}",
            )
    for entry in cut.index:
        if not entry.start_weight <= entry.end_weight <= cut.version:
            yield Problem(
                INDEX,
                f"start_weight {entry.start_weight}, end_weight {entry.end_weight} of group "
                f"{entry.group_id!r} and version {cut.version} are out of order",
            )
