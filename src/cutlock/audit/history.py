"""The history of a run: its event logs, and how each start continues an earlier one.

A resume continues from a bundle, and so from a prefix of the log of the incarnation that
saved it; whatever that incarnation did after the cut never happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from cutlock.alphabet import ARGUMENTS, Action
from cutlock.errors import AuditError
from cutlock.events import read_log

__all__ = ["COMPLETE", "CUTS", "Event", "History", "LastBundle", "read_history"]

COMPLETE = frozenset({"exhausted", "max_steps", "stopped"})
"""Reasons of an end that is not a failure."""

CUTS = frozenset({Action.OPEN_CUT, Action.TAKE_CUT})
"""Records with which the past of a bundle ends: of a full window, and of a narrow cut."""

_KINDS: dict[str, Any] = {
    "bundle": str,
    "bundles": list[str],
    "cut": Literal["narrow", "full"],
    "error": str,
    "group": str,
    "groups": list[str],
    "index": list[str],
    "ledger": list[str],
    "max_steps": int | None,
    "reason": str,
    "sampler": str,
    "spares": list[str],
    "stamp": int | None,
    "substitute": str,
    "window": int | None,
}
"""Types of the arguments that are no integers."""

_SHAPES = {
    action: msgspec.defstruct(
        action.value, [(name, _KINDS.get(name, int)) for name in names], frozen=True
    )
    for action, names in ARGUMENTS.items()
}


@dataclass(frozen=True)
class Event:
    """One record of a log."""

    where: str
    """File, line and action, for messages."""
    t: float
    action: Action
    args: Any
    """The arguments of the action as attributes."""


@dataclass(frozen=True)
class LastBundle:
    """The last mention of a bundle in the logs."""

    event: Event
    incarnation: int
    """Whose log the event is in."""
    place: int
    """Of the event in that log, from 0."""
    saved_by: int
    """The incarnation that has saved the bundle."""


@dataclass(frozen=True)
class History:
    """All logs of a run, by incarnation, ascending."""

    logs: Mapping[int, tuple[Event, ...]]

    @property
    def newest(self) -> int:
        """Number of the last start."""
        return max(self.logs)

    @property
    def ended(self) -> str | None:
        """Reason of the newest incarnation's end; None if it was killed or still runs."""
        records = self.logs[self.newest]
        if records and records[-1].action is Action.END_RUN:
            return str(records[-1].args.reason)
        return None

    def parent(self, incarnation: int) -> Event | None:
        """The record of the bundle that a start continues from; None for a fresh start."""
        for event in self.logs[incarnation]:
            if event.action is Action.VERIFY_BUNDLE:
                return event
            if event.action is Action.START_PUMPS:
                return None
        return None

    def until(self, incarnation: int, length: int | None = None) -> list[Event]:
        """Everything that led to a record, over all restarts.

        Args:
            incarnation: whose log the record is in.
            length: how many records of it belong to the history; None for all.

        Raises:
            AuditError: a log that the history needs is not there, or is shorter than that.
        """
        parts: list[tuple[Event, ...]] = []
        cause = ""
        while True:
            if incarnation not in self.logs:
                raise AuditError(
                    f"{cause}continues from incarnation {incarnation}, whose log is missing; put "
                    f"events/incarnation-{incarnation}.ndjson back"
                )
            records = self.logs[incarnation]
            if length is not None and length > len(records):
                raise AuditError(
                    f"{cause}continues after record {length} of incarnation {incarnation}, whose "
                    f"log has {len(records)}; the log was cut off, put the whole one back"
                )
            parts.append(records[:length])
            parent = self.parent(incarnation)
            if parent is None:
                return [event for part in reversed(parts) for event in part]
            if parent.args.incarnation >= incarnation:
                raise AuditError(
                    f"{parent.where}: continues from incarnation {parent.args.incarnation}, "
                    "which is no earlier one; put the log back that the run has written"
                )
            cause = f"{parent.where}: "
            incarnation, length = parent.args.incarnation, parent.args.log_records

    def cut_at(self, incarnation: int, length: int) -> int | None:
        """The step of the cut whose past is that long; None if there is no such cut."""
        records = self.logs.get(incarnation, ())
        if not 0 < length <= len(records):
            return None
        event = records[length - 1]
        return int(event.args.step) if event.action in CUTS else None

    def last_bundle(self) -> LastBundle | None:
        """The bundle that the newest start has published, or else was resumed from.

        A start that died before it had read a bundle has changed nothing, so the one before
        it counts.
        """
        for incarnation in sorted(self.logs, reverse=True):
            for place, event in reversed([*enumerate(self.logs[incarnation])]):
                if event.action is Action.PUBLISH_BUNDLE:
                    return LastBundle(event, incarnation, place, saved_by=incarnation)
                if event.action is Action.VERIFY_BUNDLE:
                    return LastBundle(event, incarnation, place, saved_by=event.args.incarnation)
        return None


def read_history(paths: Mapping[int, Path]) -> History:
    """Read all logs.

    Args:
        paths: event logs by incarnation.

    Raises:
        AuditError: there is no log, or a line of one is not the next record of the alphabet.
    """
    if not paths:
        raise AuditError(
            "the run has no event log; nothing has been started in it yet, so start it"
        )
    return History({incarnation: tuple(_events(paths[incarnation])) for incarnation in paths})


def _events(path: Path) -> list[Event]:
    events = []
    for record in read_log(path):
        action = Action(record.action)
        where = f"{path.name}:{record.seq + 1} {action}"
        try:
            args = msgspec.convert(record.args, _SHAPES[action])
        except msgspec.ValidationError as error:
            raise AuditError(
                f"{where}: {error}; put the log back that the run has written"
            ) from error
        events.append(Event(where, record.t, action, args))
    return events
