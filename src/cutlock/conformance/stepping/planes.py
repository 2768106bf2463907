"""The stores of a stepped run: made new for every start, and looked into from outside."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import torch
from safetensors.torch import load

from cutlock.plane.base import DataPlane, PlaneStamp, RestorablePlane
from cutlock.plane.memory import (
    INDEX_FILE,
    NO_STEPS,
    MemoryBootstrap,
    MemoryPlane,
    MemoryStore,
    PlaneStep,
    PlaneSteps,
)

__all__ = ["MemoryHost", "PlaneHost", "Row", "Saved"]


class Row(NamedTuple):
    """A row whose data is there."""

    unit: int
    fields: frozenset[str]


class Saved(NamedTuple):
    """What a snapshot of a store holds so far."""

    keys: frozenset[str]
    """Keys in its key map."""
    rows: Mapping[str, Row]
    """Rows by key, those included whose keys are not in the key map."""
    units: frozenset[int]
    """Units whose files are there."""


class PlaneHost(Protocol):
    """A kind of store, of which there is one at a time."""

    def renew(self, steps: PlaneSteps) -> Awaitable[RestorablePlane]:
        """End the store, if there is one, and begin one that nobody has used.

        Args:
            steps: told of every step of the store.

        Raises:
            ConfigError: the store does not tell of its steps.
        """
        ...

    def connect(self) -> Awaitable[DataPlane]:
        """A client of the store."""
        ...

    def rows(self) -> Mapping[str, Row]:
        """What the store holds now, by key; empty if there is none."""
        ...

    def saved(self, directory: Path) -> Saved:
        """What a snapshot in that directory holds; the directory may be missing or empty."""
        ...

    def end(self) -> None:
        """The store is gone, as if its machine had died."""
        ...


class MemoryHost:
    """A `PlaneHost` of `MemoryStore`s.

    Args:
        units: storage units of each store.
    """

    def __init__(self, units: int) -> None:
        self._units = units
        self._bootstrap: MemoryBootstrap | None = None
        self._keys: dict[int, str] = {}
        """The last key of every index of the store."""
        self._files: dict[tuple[int, bytes], Mapping[str, Row]] = {}
        """Rows of a unit's file, given by its inode and content."""
        self._writing: Path | None = None
        """The directory of the snapshot that is being written."""
        self._written: dict[int, dict[int, str]] = {}
        """By unit: `_keys` when it last wrote."""

    async def renew(self, steps: PlaneSteps = NO_STEPS) -> MemoryBootstrap:
        """See `PlaneHost.renew`."""
        self._keys.clear()
        store = MemoryStore(self._units)
        store.steps = _Noting(steps, lambda unit: self._note_written(store, unit))
        self._bootstrap = MemoryBootstrap(store)
        return self._bootstrap

    async def connect(self) -> MemoryPlane:
        """See `PlaneHost.connect`."""
        assert self._bootstrap is not None, "renew() comes before connect()"
        return _Client(self._bootstrap.store, self._keep)

    def rows(self) -> Mapping[str, Row]:
        """See `PlaneHost.rows`: rows whose data is there."""
        if self._bootstrap is None:
            return {}
        store = self._bootstrap.store
        self._note(store)
        return {
            self._keys[index]: Row(unit, frozenset(fields))
            for unit, held in enumerate(store.units)
            for index, fields in held.items()
        }

    def saved(self, directory: Path) -> Saved:
        """See `PlaneHost.saved`."""
        try:
            index = msgspec.msgpack.decode((directory / INDEX_FILE).read_bytes(), type=_Index)
        except FileNotFoundError:
            return Saved(frozenset(), {}, frozenset())
        rows: dict[str, Row] = {}
        units = set()
        for unit in range(self._units):
            path = _unit_file(directory, unit)
            if path.exists():
                units.add(unit)
                rows |= self._rows_of(unit, path)
        return Saved(frozenset(record.key for record in index.keys), rows, frozenset(units))

    def _note(self, store: MemoryStore) -> None:
        self._keys.update((index, key) for key, index in store.indexes.items())

    def _note_written(self, store: MemoryStore, unit: int) -> None:
        self._note(store)
        self._written[unit] = dict(self._keys)

    @contextlib.contextmanager
    def _keep(self, directory: Path) -> Iterator[None]:
        """A snapshot is written within this block; what it holds is known when it ends."""
        self._writing = directory
        try:
            yield
            for unit in range(self._units):
                self._rows_of(unit, _unit_file(directory, unit))
        finally:
            self._writing = None

    def _rows_of(self, unit: int, path: Path) -> Mapping[str, Row]:
        """What a unit has written, by the keys of that moment.

        The key map has no keys for rows that were put after it, and later their indexes may be
        those of others.
        """
        content = path.read_bytes()
        # The inode of a file that was removed is given out again.
        seen = path.stat().st_ino, content
        writing = path.parent == self._writing
        if writing or seen not in self._files:
            keys = self._written.get(unit, self._keys) if writing else self._keys
            found: dict[int, set[str]] = {}
            for label in _labels(content):
                number, _, field = label.partition(":")
                found.setdefault(int(number), set()).add(field)
            self._files[seen] = {
                keys[number]: Row(unit, frozenset(fields)) for number, fields in found.items()
            }
        return self._files[seen]

    def end(self) -> None:
        """See `PlaneHost.end`."""
        self._bootstrap = None


class _Client(MemoryPlane):
    """A client that says when and where a snapshot is written."""

    def __init__(
        self, store: MemoryStore, keep: Callable[[Path], AbstractContextManager[None]]
    ) -> None:
        super().__init__(store)
        self._keep = keep

    async def snapshot_rows(self, directory: Path, stamp: PlaneStamp) -> None:
        """See `DataPlane.snapshot_rows`."""
        with self._keep(directory):
            await super().snapshot_rows(directory, stamp)


class _Noting:
    """`PlaneSteps` that tell of each unit that is about to write its rows."""

    def __init__(self, steps: PlaneSteps, note: Callable[[int], None]) -> None:
        self._steps = steps
        self._note = note

    async def reach(self, step: PlaneStep, /) -> None:
        await self._steps.reach(step)
        if step.op == "snapshot" and step.unit is not None:
            self._note(step.unit)


def _unit_file(directory: Path, unit: int) -> Path:
    return directory / f"unit_{unit}.safetensors"


class _Key(msgspec.Struct):
    key: str


class _Index(msgspec.Struct):
    keys: list[_Key]


def _labels(content: bytes) -> list[str]:
    tensors: dict[str, torch.Tensor] = load(content)
    return list(tensors)
