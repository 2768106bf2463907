"""An in-process plane with an explicit step model, for tests and the stepper.

It does what TransferQueue does, in the steps in which TransferQueue does it, so that
whatever can go wrong between two steps there can be made to go wrong here:

- put: reserve (keys are listed, indexes given), store in each unit, notify (all rows become
  produced at once), tag;
- clear: mark (all rows stop being produced), delete in each unit, free (keys go, indexes can
  be given again, first freed first);
- get: find, read in each unit; list: one step;
- snapshot: the index, each unit, the stamp;
- load: check, each unit, the index, recheck.

The row with index g lives in unit g mod n. Before each step the store calls its listener,
which may suspend; a step itself does not. Indexes are what the units and the produced flags
go by, so a clear or put that comes late hits whichever row has the index by then.

Sources: design, section 8; the step model of TransferQueue 0.1.10 and 0.1.11.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from cutlock.errors import PlaneError, PlaneTouchedError, RowsMissingError
from cutlock.plane.base import (
    READABLE_VERSIONS,
    Fields,
    PlaneInfo,
    PlaneStamp,
    read_stamp,
    require_loadable,
    write_stamp,
)
from cutlock.plane.checks import (
    check_directory,
    check_get,
    check_put,
    check_stamp,
    closed,
    missing_fields,
    missing_keys,
    name,
)
from cutlock.plane.liveness import LivenessProbe

__all__ = [
    "INDEX_FILE",
    "NO_STEPS",
    "MemoryBootstrap",
    "MemoryPlane",
    "MemoryStore",
    "NoSteps",
    "PlaneStep",
    "PlaneSteps",
]

T = TypeVar("T")

INDEX_FILE = "controller_state.msgpack"
"""The index part of a snapshot."""

Operation = Literal["put", "get", "clear", "list", "snapshot", "load"]

_VERSION = "1"


class PlaneStep(msgspec.Struct, frozen=True):
    """One step of one call, announced just before it happens."""

    op: Operation
    phase: str
    """What the step does, in one word; see the module's docstring."""
    unit: int | None
    """The unit that it happens in; None for a step of the controller part."""
    keys: tuple[str, ...]


class PlaneSteps(Protocol):
    """Listener that may hold a call between any two of its steps."""

    async def reach(self, step: PlaneStep, /) -> None:
        """Return when the announced step may happen."""
        ...


class NoSteps:
    """Listener that lets everything pass without suspending."""

    async def reach(self, step: PlaneStep, /) -> None:
        """Return at once."""


NO_STEPS = NoSteps()


class _KeyRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    index: int


class _IndexRecord(msgspec.Struct, forbid_unknown_fields=True):
    """Content of `INDEX_FILE`."""

    counter: int
    free: list[int]
    keys: list[_KeyRecord]
    produced: list[tuple[int, list[str]]]


class MemoryStore:
    """The shared side: what the controller and the storage units of TransferQueue hold.

    Args:
        units: number of storage units.
        steps: listener for every step of every client; may be replaced at any time.
    """

    def __init__(self, units: int = 2, steps: PlaneSteps = NO_STEPS) -> None:
        if units < 1:
            raise PlaneError(f"a store of {units} units holds nothing; give at least 1")
        self.steps = steps
        self.info = PlaneInfo(kind="memory", version=_VERSION, units=units)
        self.indexes: dict[str, int] = {}
        """Key to index, in the order of the reservations."""
        self.produced: dict[int, set[str]] = {}
        """Index to the fields that can be read; outlives the key if a put comes late."""
        self.free: deque[int] = deque()
        """Indexes that were freed, the next to be given first."""
        self.counter = 0
        """Indexes ever made; never falls."""
        self.clients = 0
        """Clients ever connected, without the bootstrap client; never falls."""
        self.units: list[dict[int, dict[str, torch.Tensor]]] = [{} for _ in range(units)]
        """Per unit: index to field to tensor."""
        self._dead: set[int] = set()
        self._unusable: str | None = None

    def fail_unit(self, unit: int) -> None:
        """From now on `unit` answers nothing, as if its process had died."""
        self._dead.add(unit)

    def spoil(self, reason: str) -> None:
        """From now on every call fails and says `reason`."""
        self._unusable = reason

    async def step(
        self,
        op: Operation,
        phase: str,
        keys: Sequence[str] = (),
        unit: int | None = None,
    ) -> None:
        """Announce a step, and raise `PlaneError` if it cannot happen any more."""
        await self.steps.reach(PlaneStep(op=op, phase=phase, unit=unit, keys=tuple(keys)))
        if self._unusable is not None:
            raise PlaneError(f"the store {self._unusable}; start a new one and restore it")
        if unit in self._dead:
            raise PlaneError(
                f"{op}: storage unit {unit} does not answer; "
                "start a new store and restore it from the last bundle"
            )

    def by_unit(self, indexes: Iterable[int]) -> dict[int, list[int]]:
        """Unit to positions in `indexes`, for the units that hold at least one."""
        placed: dict[int, list[int]] = {}
        for position, index in enumerate(indexes):
            placed.setdefault(index % self.info.units, []).append(position)
        return dict(sorted(placed.items()))

    def reserve(self, keys: Sequence[str]) -> list[int]:
        """List the keys and give each new one an index; returns the indexes of all."""
        for key in keys:
            if key not in self.indexes:
                if self.free:
                    index = self.free.popleft()
                else:
                    index = self.counter
                    self.counter += 1
                self.indexes[key] = index
        return [self.indexes[key] for key in keys]

    def notify(self, indexes: Iterable[int], fields: Iterable[str]) -> None:
        """Make the fields of all these rows readable at once."""
        named = set(fields)
        for index in indexes:
            self.produced.setdefault(index, set()).update(named)

    def mark_clearing(self, indexes: Iterable[int]) -> None:
        """Make these rows unreadable at once."""
        for index in indexes:
            self.produced.pop(index, None)

    def release(self, indexes: Sequence[int]) -> None:
        """Forget the keys that have these indexes by now, and let the indexes be reused."""
        keys = {index: key for key, index in self.indexes.items()}
        for index in indexes:
            if index in keys:
                del self.indexes[keys[index]]
                self.produced.pop(index, None)
                self.free.append(index)

    def dump_index(self) -> bytes:
        """The controller part as it is now."""
        return msgspec.msgpack.encode(
            _IndexRecord(
                counter=self.counter,
                free=list(self.free),
                keys=[_KeyRecord(key, index) for key, index in self.indexes.items()],
                produced=[(i, sorted(named)) for i, named in sorted(self.produced.items())],
            )
        )

    def replace_index(self, content: bytes) -> None:
        """Replace the controller part; raises `msgspec.DecodeError`, having changed nothing."""
        record = msgspec.msgpack.decode(content, type=_IndexRecord)
        self.counter = record.counter
        self.free = deque(record.free)
        self.indexes = {entry.key: entry.index for entry in record.keys}
        self.produced = {index: set(named) for index, named in record.produced}

    def dump_unit(self, unit: int) -> bytes:
        """One unit as it is now."""
        return save_tensors(
            {
                f"{index}:{field}": row
                for index, fields in self.units[unit].items()
                for field, row in fields.items()
            }
        )

    def replace_unit(self, unit: int, content: bytes) -> None:
        """Replace one unit; raises `SafetensorError`, having changed nothing."""
        rows: dict[int, dict[str, torch.Tensor]] = {}
        for label, row in load_tensors(content).items():
            index, _, field = label.partition(":")
            rows.setdefault(int(index), {})[field] = row
        self.units[unit] = rows

    def drop_all_but(self, keys: Collection[str]) -> None:
        """Drop other rows, and data without a key."""
        kept = set(keys)
        self.release([index for key, index in self.indexes.items() if key not in kept])
        owned = set(self.indexes.values())
        for unit in self.units:
            for index in unit.keys() - owned:
                del unit[index]


def _unit_file(directory: Path, unit: int) -> Path:
    return directory / f"unit_{unit}.safetensors"


class MemoryPlane:
    """A connect-only client of a `MemoryStore`; see `DataPlane`.

    A call that is cancelled or timed out stops between two steps, as if its process had died
    there.

    Args:
        store: the store to connect to; it counts the connection.
        limit_s: limit of each call in seconds; None for a listener that keeps its own time.
    """

    def __init__(self, store: MemoryStore, *, limit_s: float | None = None) -> None:
        store.clients += 1
        self._store = store
        self._limit_s = limit_s
        self._probe = LivenessProbe()
        self._closed = False

    @property
    def info(self) -> PlaneInfo:
        """Kind, version and number of units of the connected store."""
        return self._store.info

    @property
    def splits_snapshot(self) -> bool:
        """See `DataPlane.splits_snapshot`."""
        return True

    async def put(self, keys: Sequence[str], fields: Fields) -> None:
        """See `DataPlane.put`."""
        check_put(keys, fields)
        copies = {
            field: [row.detach().cpu().clone(memory_format=torch.contiguous_format) for row in rows]
            for field, rows in fields.items()
        }
        await self._call("put", len(keys), self._put, tuple(keys), copies)

    async def _put(self, keys: tuple[str, ...], fields: Mapping[str, list[torch.Tensor]]) -> None:
        store = self._store
        await store.step("put", "reserve", keys)
        indexes = store.reserve(keys)
        refusal: PlaneError | None = None
        for unit, positions in store.by_unit(indexes).items():
            try:
                await store.step("put", "store", [keys[p] for p in positions], unit)
            except PlaneError as error:
                refusal = error  # the other units have been asked at the same time
                continue
            for position in positions:
                row = store.units[unit].setdefault(indexes[position], {})
                row.update({field: rows[position] for field, rows in fields.items()})
        if refusal is not None:
            raise refusal
        await store.step("put", "notify", keys)
        store.notify(indexes, fields)
        await store.step("put", "tag", keys)

    async def get(
        self, keys: Sequence[str], fields: Sequence[str]
    ) -> dict[str, list[torch.Tensor]]:
        """See `DataPlane.get`."""
        check_get(keys, fields)
        return await self._call("get", len(keys), self._get, tuple(keys), tuple(fields))

    async def _get(
        self, keys: tuple[str, ...], fields: tuple[str, ...]
    ) -> dict[str, list[torch.Tensor]]:
        store = self._store
        await store.step("get", "find", keys)
        unknown = [key for key in dict.fromkeys(keys) if key not in store.indexes]
        if unknown:
            raise missing_keys(unknown)
        indexes = [store.indexes[key] for key in keys]
        produced = {key: store.produced.get(i, set()) for key, i in zip(keys, indexes, strict=True)}
        unread = [field for field in fields if any(field not in p for p in produced.values())]
        if unread:
            lacking = [key for key, p in produced.items() if not p.issuperset(unread)]
            raise missing_fields(unread, lacking)
        found: dict[int, dict[str, torch.Tensor]] = {}
        for unit, positions in store.by_unit(indexes).items():
            named = [keys[position] for position in positions]
            await store.step("get", "read", named, unit)
            for position in positions:
                row = store.units[unit].get(indexes[position], {})
                if not row.keys() >= set(fields):
                    raise RowsMissingError(
                        f"unit {unit} has no data for {name(named)}, which is listed as "
                        "produced; restore the store from the last bundle"
                    )
                found[position] = {field: row[field].clone() for field in fields}
        return {field: [found[p][field] for p in range(len(keys))] for field in fields}

    async def clear(self, keys: Sequence[str]) -> None:
        """See `DataPlane.clear`."""
        await self._call("clear", len(keys), self._clear, tuple(dict.fromkeys(keys)))

    async def _clear(self, keys: tuple[str, ...]) -> None:
        store = self._store
        await store.step("clear", "mark", keys)
        known = [key for key in keys if key in store.indexes]
        indexes = [store.indexes[key] for key in known]
        store.mark_clearing(indexes)
        refusal: PlaneError | None = None
        for unit, positions in store.by_unit(indexes).items():
            try:
                await store.step("clear", "delete", [known[p] for p in positions], unit)
            except PlaneError as error:
                refusal = error
                continue
            for position in positions:
                store.units[unit].pop(indexes[position], None)
        if refusal is not None:
            raise refusal
        await store.step("clear", "free", known)
        store.release(indexes)

    async def list_keys(self) -> list[str]:
        """See `DataPlane.list_keys`."""
        return await self._call("list_keys", None, self._list_keys)

    async def _list_keys(self) -> list[str]:
        await self._store.step("list", "list")
        return sorted(self._store.indexes)

    async def snapshot_index(self, directory: Path) -> None:
        """See `DataPlane.snapshot_index`."""
        check_directory(directory)
        await self._call("snapshot_index", None, self._snapshot_index, directory, slow=True)

    async def _snapshot_index(self, directory: Path) -> None:
        await self._store.step("snapshot", "index")
        (directory / INDEX_FILE).write_bytes(self._store.dump_index())

    async def snapshot_rows(self, directory: Path, stamp: PlaneStamp) -> None:
        """See `DataPlane.snapshot_rows`."""
        check_directory(directory)
        check_stamp(stamp, self.info, directory / INDEX_FILE)
        await self._call("snapshot_rows", None, self._snapshot_rows, directory, stamp, slow=True)

    async def _snapshot_rows(self, directory: Path, stamp: PlaneStamp) -> None:
        for unit in range(self.info.units):
            await self._store.step("snapshot", "unit", unit=unit)
            _unit_file(directory, unit).write_bytes(self._store.dump_unit(unit))
        await self._store.step("snapshot", "stamp")
        write_stamp(directory, stamp)

    async def close(self) -> None:
        """See `DataPlane.close`."""
        self._closed = True

    async def _call(
        self,
        call: str,
        keys: int | None,
        work: Callable[..., Awaitable[T]],
        *arguments: object,
        slow: bool = False,
    ) -> T:
        if self._closed:
            raise closed(call)
        self._probe.require(call)
        return await self._probe.bounded(call, keys, self._limit_s, work(*arguments), slow=slow)


class MemoryBootstrap:
    """The driver's client of a `MemoryStore`; see `BootstrapPlane`.

    Args:
        store: the store to restore into; None makes one of `units` units.
    """

    def __init__(self, store: MemoryStore | None = None, *, units: int = 2) -> None:
        self.store = MemoryStore(units) if store is None else store

    @property
    def info(self) -> PlaneInfo:
        """Kind, version and number of units of the store."""
        return self.store.info

    async def connect(self) -> MemoryPlane:
        """See `BootstrapPlane.connect`."""
        return MemoryPlane(self.store)

    async def require_untouched(self) -> None:
        """See `BootstrapPlane.require_untouched`."""
        await self.store.step("load", "check")
        found = []
        if self.store.counter:
            found.append(f"index counter at {self.store.counter}")
        if self.store.indexes:
            found.append(f"{len(self.store.indexes)} keys")
        if self.store.clients:
            found.append(f"{self.store.clients} other clients")
        if found:
            raise PlaneTouchedError(
                f"the store is not untouched: {', '.join(found)}; "
                "start a new one and let nobody connect before it is restored"
            )

    async def load(self, directory: Path, keep: Collection[str] | None = None) -> None:
        """See `BootstrapPlane.load`."""
        store = self.store
        stamp = read_stamp(directory)
        require_loadable(stamp.plane, self.info, READABLE_VERSIONS["memory"])
        await self.require_untouched()
        try:
            for unit in range(self.info.units):
                await store.step("load", "unit", unit=unit)
                store.replace_unit(unit, _unit_file(directory, unit).read_bytes())
            await store.step("load", "index")
            store.replace_index((directory / INDEX_FILE).read_bytes())
            counter, free = store.counter, list(store.free)
            await store.step("load", "recheck")
        except BaseException as error:
            store.spoil("was left half loaded")
            if isinstance(error, OSError | ValueError | SafetensorError | msgspec.MsgspecError):
                raise PlaneError(
                    f"the store cannot load {directory} ({error}); "
                    "start a new store and restore an older bundle"
                ) from error
            raise
        used = store.clients or (store.counter, list(store.free)) != (counter, free)
        store.drop_all_but(store.indexes.keys() if keep is None else keep)
        if used:
            store.spoil("was used while it was loaded")
            raise PlaneTouchedError(
                f"the store was used while {directory} was loaded: {store.clients} other clients, "
                f"index counter at {store.counter} instead of {counter}; "
                "start a new one and let nobody connect before it is restored"
            )

    async def stop(self) -> None:
        """See `BootstrapPlane.stop`."""
        self.store.spoil("was stopped")
