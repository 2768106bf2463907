"""The event log: one record per action of the alphabet, written as it happens.

A log is one NDJSON file per incarnation of the controller. Each record is handed to the
operating system before `record` returns, so a killed process loses none of them; `sync`
makes them survive a dead machine, and a save calls it before it publishes.

While the file cannot be written, e.g. on a full disk, records wait in memory, in their order,
and `sync` fails. A process that dies then leaves a log that ends before it did; no bundle
refers to what is missing.
"""

from __future__ import annotations

import abc
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from cutlock.alphabet import ARGUMENTS, Action
from cutlock.errors import AuditError, MisuseError

__all__ = ["EventLog", "Events", "MemoryLog", "Record", "read_log"]

_WAY_OUT = "put the log back that the run has written"

_ARGUMENT_SETS = {action: frozenset(names) for action, names in ARGUMENTS.items()}


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a log."""

    seq: int
    """Position in the log, from 0."""
    t: float
    """Seconds on the log's clock; for people, never compared."""
    action: str
    args: dict[str, object]


class Events(Protocol):
    """Where the runtime records its actions."""

    @property
    def count(self) -> int:
        """Records written so far."""
        ...

    def record(self, action: Action, /, **args: object) -> None:
        """Append one action; raises MisuseError if the arguments are not the alphabet's."""
        ...

    def sync(self) -> None:
        """Return when everything recorded so far is durable."""
        ...

    def close(self) -> None:
        """Make everything durable and take no more records."""
        ...


class _Log(abc.ABC):
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    def record(self, action: Action, /, **args: object) -> None:
        if args.keys() != _ARGUMENT_SETS[action]:
            raise MisuseError(
                f"{action} takes the arguments {', '.join(ARGUMENTS[action]) or 'none'}, "
                f"not {', '.join(args) or 'none'}; the table is cutlock.alphabet.ARGUMENTS"
            )
        self._append(Record(self._count, self._clock(), action.value, args))
        self._count += 1

    @abc.abstractmethod
    def _append(self, record: Record) -> None:
        """Keep a record."""


class MemoryLog(_Log):
    """A log that is kept in memory, for tests and for runs that want none on disk."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self.records: list[Record] = []

    def sync(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""

    def _append(self, record: Record) -> None:
        self.records.append(record)


class EventLog(_Log):
    """A log in one file, which must not exist yet, and whose name is durable at once.

    So no later start can take the same number, even if all records of this one are lost.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        _sync_directory(path.parent)
        self._size = 0
        self._waiting = b""
        """Whole lines that could not be written yet."""
        # A save syncs in a thread of its own, while the pumps record.
        self._writing = threading.Lock()
        self._encoder = msgspec.json.Encoder()

    def sync(self) -> None:
        """Force the file to disk.

        Raises:
            OSError: with the file's name; nothing is lost that was recorded.
        """
        self._require_open("sync()")
        try:
            self._write()
            os.fsync(self._fd)
        except OSError as error:
            raise OSError(
                error.errno, f"the event log cannot be written: {error.strerror}", str(self.path)
            ) from error

    def close(self) -> None:
        """Force the file to disk and close it; closing twice is no error.

        Raises:
            OSError: as `sync`; the file is closed all the same.
        """
        if self._fd >= 0:
            try:
                self.sync()
            finally:
                os.close(self._fd)
                self._fd = -1

    def _append(self, record: Record) -> None:
        self._require_open(record.action)
        line = self._encoder.encode(record) + b"\n"
        # Whoever records has just changed something, which an error would leave half done.
        with contextlib.suppress(OSError):
            self._write(line)

    def _write(self, line: bytes = b"") -> None:
        """Write what waits and one more line: all of it, or nothing and an error."""
        with self._writing:
            self._waiting += line
            self._write_waiting()

    def _write_waiting(self) -> None:
        lines = self._waiting
        try:
            written = 0
            while written < len(lines):
                written += os.write(self._fd, lines[written:])
        except OSError:
            # Half a line would spoil the one that follows it.
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(lines)
        self._waiting = b""

    def _require_open(self, what: str) -> None:
        if self._fd < 0:
            raise MisuseError(
                f"{what} on the closed log {self.path}; close it after the last record"
            )


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_log(path: Path) -> Iterator[Record]:
    """Read a log strictly, line by line.

    A last line without an end is the mark of a dead machine and is left out. Anything else
    that is not the next record of the alphabet raises AuditError with file and line.
    """
    decoder = msgspec.json.Decoder(Record)
    with path.open("rb") as lines:
        for number, line in enumerate(lines):
            where = f"{path}:{number + 1}"
            if not line.endswith(b"\n"):
                return
            try:
                record = decoder.decode(line)
            except msgspec.DecodeError as error:
                raise AuditError(f"{where}: not an event record: {error}; {_WAY_OUT}") from error
            if record.seq != number:
                raise AuditError(
                    f"{where}: record {record.seq} where {number} was due; "
                    f"a line of the log was lost, repeated or moved, {_WAY_OUT}"
                )
            try:
                names = _ARGUMENT_SETS[Action(record.action)]
            except ValueError as error:
                raise AuditError(
                    f"{where}: unknown action {record.action!r}; {_WAY_OUT}, or read it with the "
                    "version of cutlock that wrote it"
                ) from error
            if record.args.keys() != names:
                raise AuditError(
                    f"{where}: {record.action} has the arguments {sorted(record.args)}, "
                    f"not {sorted(names)}; {_WAY_OUT}"
                )
            yield record
