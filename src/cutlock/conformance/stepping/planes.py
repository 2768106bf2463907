"""The stores of a stepped run: made new for every start, and looked into from outside."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import torch
from safetensors.torch import load

from cutlock.plane.base import BootstrapPlane, DataPlane
from cutlock.plane.memory import INDEX_FILE, MemoryBootstrap, MemoryPlane

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
    """Rows by key; a row without a key is left out."""
    units: frozenset[int]
    """Units whose files are there."""


class PlaneHost(Protocol):
    """A kind of store, of which there is one at a time."""

    def renew(self) -> Awaitable[BootstrapPlane]:
        """End the store, if there is one, and begin one that nobody has used."""
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

    async def renew(self) -> MemoryBootstrap:
        """See `PlaneHost.renew`."""
        self._bootstrap = MemoryBootstrap(units=self._units)
        return self._bootstrap

    async def connect(self) -> MemoryPlane:
        """See `PlaneHost.connect`."""
        assert self._bootstrap is not None, "renew() comes before connect()"
        return MemoryPlane(self._bootstrap.store)

    def rows(self) -> Mapping[str, Row]:
        """See `PlaneHost.rows`: rows whose data is there and can be read."""
        if self._bootstrap is None:
            return {}
        store = self._bootstrap.store
        return {
            key: Row(index % self._units, frozenset(fields))
            for key, index in store.indexes.items()
            if (fields := store.units[index % self._units].get(index))
        }

    def saved(self, directory: Path) -> Saved:
        """See `PlaneHost.saved`."""
        try:
            index = msgspec.msgpack.decode((directory / INDEX_FILE).read_bytes(), type=_Index)
        except FileNotFoundError:
            return Saved(frozenset(), {}, frozenset())
        found: dict[int, set[str]] = {}
        units = set()
        for unit in range(self._units):
            path = directory / f"unit_{unit}.safetensors"
            if path.exists():
                units.add(unit)
                for label in _labels(path.read_bytes()):
                    number, _, field = label.partition(":")
                    found.setdefault(int(number), set()).add(field)
        rows = {
            record.key: Row(record.index % self._units, frozenset(found[record.index]))
            for record in index.keys
            if record.index in found
        }
        return Saved(frozenset(record.key for record in index.keys), rows, frozenset(units))

    def end(self) -> None:
        """See `PlaneHost.end`."""
        self._bootstrap = None


class _Key(msgspec.Struct):
    key: str
    index: int


class _Index(msgspec.Struct):
    keys: list[_Key]


def _labels(content: bytes) -> list[str]:
    tensors: dict[str, torch.Tensor] = load(content)
    return list(tensors)
