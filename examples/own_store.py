"""A store of one's own for rollout tensors: a dictionary behind a lock, as a `DataPlane`.

`plain_loop.py` keeps its rows here. A store of yours has other insides: a cache server, a shared
file system, the memory of other machines. What it has to do is the same, and small:

- a client (`DictPlane`) puts, gets, clears and lists rows, and writes snapshots;
- the owner (`DictStore`) fills an untouched store from a snapshot, once.

`cutlock.plane.checks` has the checks and messages that all stores share. A `LivenessProbe` gives
every call a limit: a store that hangs must not hang the run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import load_file, save_file

from cutlock import Fields, PlaneInfo, PlaneStamp
from cutlock.errors import PlaneError, PlaneTouchedError
from cutlock.plane import checks
from cutlock.plane.base import read_stamp, require_loadable, write_stamp
from cutlock.plane.liveness import LivenessProbe

T = TypeVar("T")
Row = dict[str, torch.Tensor]

INDEX = "keys.json"
ROWS = "rows.safetensors"


class DictStore:
    """Where the rows are; the driver's side of it restores (`cutlock.BootstrapPlane`)."""

    def __init__(self) -> None:
        self.info = PlaneInfo(kind="dict", version="1", units=1)
        self.rows: dict[str, Row] = {}
        self.lock = asyncio.Lock()
        self.ever = 0
        """Rows ever put; never falls."""
        self.clients = 0
        self._unusable = ""

    async def connect(self, *, limit_s: float = 30.0) -> DictPlane:
        """A new client, each of whose calls ends within the limit."""
        self.clients += 1
        return DictPlane(self, limit_s)

    async def require_untouched(self) -> None:
        """A restore replaces everything, so it refuses a store that somebody uses."""
        if self._unusable:
            raise PlaneError(f"the store was {self._unusable}; start a new one")
        if self.clients or self.ever:
            raise PlaneTouchedError(
                f"the store is not untouched: index counter at {self.ever}, {self.clients} other "
                "clients; start a new one and let nobody connect before it is restored"
            )

    async def load(self, directory: Path, keep: Collection[str] | None = None) -> None:
        """Take over a snapshot: those rows of it that the run still owns."""
        require_loadable(read_stamp(directory).plane, self.info, [self.info.version])
        await self.require_untouched()
        try:
            keys = set(json.loads((directory / INDEX).read_text()))
            for name, tensor in load_file(directory / ROWS).items():
                key, _, field = name.rpartition(":")
                if key in keys and (keep is None or key in keep):
                    self.rows.setdefault(key, {})[field] = tensor
        except Exception as error:
            self._unusable = "left half loaded"
            raise PlaneError(f"{directory} cannot be loaded ({error}); {self._unusable}") from error
        self.ever = len(keys)

    async def stop(self) -> None:
        """Nobody can use it any more."""
        self._unusable = "stopped"


class DictPlane:
    """A client of a `DictStore` (`cutlock.DataPlane`)."""

    def __init__(self, store: DictStore, limit_s: float) -> None:
        self._store = store
        self._limit_s = limit_s
        self._probe = LivenessProbe()
        self._closed = False

    @property
    def info(self) -> PlaneInfo:
        return self._store.info

    @property
    def splits_snapshot(self) -> bool:
        """Rows may come and go between the two halves of a snapshot, so a cut may be narrow."""
        return True

    async def put(self, keys: Sequence[str], fields: Fields) -> None:
        checks.check_put(keys, fields)
        copies = {name: [row.detach().clone() for row in rows] for name, rows in fields.items()}

        def put() -> None:
            # One synchronous step, so that no row is ever seen with a part of its fields.
            self._store.ever += len(set(keys) - self._store.rows.keys())
            for place, key in enumerate(keys):
                row = {name: rows[place] for name, rows in copies.items()}
                self._store.rows.setdefault(key, {}).update(row)

        await self._call("put", len(keys), self._locked(put))

    async def get(
        self, keys: Sequence[str], fields: Sequence[str]
    ) -> dict[str, list[torch.Tensor]]:
        checks.check_get(keys, fields)

        def get() -> dict[str, list[torch.Tensor]]:
            rows = self._store.rows
            if unknown := [key for key in keys if key not in rows]:
                raise checks.missing_keys(unknown)
            if lacking := [field for field in fields if any(field not in rows[k] for k in keys)]:
                raise checks.missing_fields(
                    lacking, [key for key in keys if not rows[key].keys() >= set(lacking)]
                )
            return {field: [rows[key][field].clone() for key in keys] for field in fields}

        return await self._call("get", len(keys), self._locked(get))

    async def clear(self, keys: Sequence[str]) -> None:
        def clear() -> None:
            for key in keys:
                self._store.rows.pop(key, None)

        await self._call("clear", len(keys), self._locked(clear))

    async def list_keys(self) -> list[str]:
        return await self._call("list_keys", None, self._locked(lambda: sorted(self._store.rows)))

    async def snapshot_index(self, directory: Path) -> None:
        """The first half: which rows there are. A load brings back these and no others."""
        checks.check_directory(directory)

        def write() -> None:
            (directory / INDEX).write_text(json.dumps(sorted(self._store.rows)))

        await self._call("snapshot_index", None, self._locked(write), slow=True)

    async def snapshot_rows(self, directory: Path, stamp: PlaneStamp) -> None:
        """The second half: their tensors, and the stamp last. Others come and go meanwhile.

        cutlock does not clear or change the rows of the open snapshot before this has ended, so
        that the files can be written without the lock.
        """
        checks.check_directory(directory)
        checks.check_stamp(stamp, self.info, directory / INDEX)
        await self._call("snapshot_rows", None, self._snapshot_rows(directory, stamp), slow=True)

    async def _snapshot_rows(self, directory: Path, stamp: PlaneStamp) -> None:
        rows = await self._locked(lambda: {key: dict(row) for key, row in self._store.rows.items()})
        tensors = {
            f"{key}:{field}": row.contiguous()
            for key, v in rows.items()
            for field, row in v.items()
        }
        await asyncio.to_thread(save_file, tensors, directory / ROWS)
        write_stamp(directory, stamp)

    async def close(self) -> None:
        self._closed = True

    async def _locked(self, work: Callable[[], T]) -> T:
        async with self._store.lock:
            return work()

    async def _call(
        self, call: str, keys: int | None, work: Coroutine[Any, Any, T], *, slow: bool = False
    ) -> T:
        """Every call: refused when closed or lost, ended at its limit."""
        try:
            if self._closed:
                raise checks.closed(call)
            self._probe.require(call)
            return await self._probe.bounded(call, keys, self._limit_s, work, slow=slow)
        finally:
            work.close()
