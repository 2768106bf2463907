"""The surviving history of a run: what is left of its logs when every restart is followed.

A resume continues from a bundle, and so from a prefix of the log of the incarnation that
saved it; whatever that incarnation did after the cut never happened. The surviving history
is the chain of those prefixes, up to the newest incarnation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cutlock.alphabet import Action
from cutlock.errors import AuditError
from cutlock.events import Record, read_log

__all__ = ["History", "Segment", "read_history"]


@dataclass(frozen=True)
class Segment:
    """The part of one incarnation's log that survives."""

    incarnation: int
    path: Path
    records: tuple[Record, ...]


@dataclass(frozen=True)
class History:
    """All logs of a run, and which parts of them survive."""

    logs: dict[int, tuple[Record, ...]]
    segments: tuple[Segment, ...]
    """Oldest first."""
    ended: str | None
    """Reason of the newest incarnation's end; None if it was killed or still runs."""

    @property
    def restarts(self) -> int:
        """Starts of a controller after the first."""
        return max(len(self.logs) - 1, 0)


def read_history(paths: dict[int, Path]) -> History:
    """Read all logs and follow the restarts backwards from the newest.

    Args:
        paths: event logs by incarnation.

    Raises:
        AuditError: no log, a malformed one, or a resume from a log that is not there.
    """
    if not paths:
        raise AuditError("the run has no event log; nothing has been started in it yet")
    logs = {incarnation: tuple(read_log(path)) for incarnation, path in paths.items()}
    newest = max(logs)
    ended = _end_of(logs[newest])
    length = len(logs[newest])
    if ended is None:
        # Killed: what is not in a bundle of it will not have happened for the next start.
        length = _last_cut(logs[newest])
    segments: list[Segment] = []
    incarnation = newest
    while True:
        records = logs[incarnation][:length]
        if records:
            segments.append(Segment(incarnation, paths[incarnation], records))
        parent = _parent_of(logs[incarnation])
        if parent is None:
            break
        if parent[0] not in logs or parent[0] >= incarnation:
            raise AuditError(
                f"{paths[incarnation]} resumes from incarnation {parent[0]}, of which there is "
                f"no earlier log in {paths[incarnation].parent}"
            )
        incarnation, length = parent
        if length > len(logs[incarnation]):
            raise AuditError(
                f"{paths[incarnation]} has {len(logs[incarnation])} records and a bundle was "
                f"cut after {length} of them; the log was truncated"
            )
    return History(logs, tuple(reversed(segments)), ended)


def _end_of(records: tuple[Record, ...]) -> str | None:
    last = next((r for r in reversed(records) if r.action == Action.END_RUN), None)
    return str(last.args["reason"]) if last else None


def _last_cut(records: tuple[Record, ...]) -> int:
    """Records that belong to the past of the last bundle published by this log; 0 if none."""
    opened = past = 0
    for record in records:
        if record.action == Action.OPEN_CUT:
            opened = record.seq + 1
        elif record.action == Action.PUBLISH_BUNDLE:
            past = opened
    return past


def _parent_of(records: tuple[Record, ...]) -> tuple[int, int] | None:
    """(incarnation, records) that this log continues from; None for a fresh start."""
    for record in records:
        if record.action == Action.VERIFY_BUNDLE:
            incarnation, length = record.args["incarnation"], record.args["log_records"]
            if isinstance(incarnation, int) and isinstance(length, int):
                return incarnation, length
        if record.action == Action.START_PUMPS:
            return None
    return None
