"""Real TransferQueues as the stores of a stepped run.

The stepped loop never waits: a call to the store runs in a thread with a loop of its own, and
whoever makes it stands still until it has ended. So a call is one step, as in the spec.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import ray

from cutlock.conformance.stepping.planes import Row, Saved
from cutlock.errors import ConfigError, RowsMissingError
from cutlock.plane.base import DelegatingPlane, PlaneInfo, PlaneStamp
from cutlock.plane.memory import NO_STEPS, PlaneSteps
from cutlock.plane.transfer_queue import (
    INDEX_FILE,
    TransferQueueBootstrap,
    TransferQueuePlane,
)

__all__ = ["TransferQueueHost"]

T = TypeVar("T")

Start = Callable[[int], Coroutine[Any, Any, TransferQueueBootstrap]]
"""Makes a store with so many units."""

_PARTITION = "rollouts"
_FIELDS = ("prompt", "response", "logprobs", "reward")
_ADVANTAGE = "advantage"
_UNIT_FILE = re.compile(r"su_(\d+)_.*\.pkl")


class TransferQueueHost:
    """A `PlaneHost` of TransferQueues; use it with `with`.

    Args:
        units: storage units of each store.
        start: gives a store that nobody has used, and goes on owning it. None starts a new
            TransferQueue for every start of the run and stops it at its end, in a Ray that is
            started too unless this process has one.
    """

    def __init__(self, units: int, start: Start | None = None) -> None:
        self._units = units
        self._thread = _LoopThread()
        self._start = start
        self._starts_ray = start is None and not ray.is_initialized()
        self._store: TransferQueueBootstrap | None = None
        self._looking: TransferQueuePlane | None = None
        self._clients: list[TransferQueuePlane] = []
        self._snapshots: dict[int, Saved] = {}
        """What the store held when an index file, given by its inode, was written."""

    def __enter__(self) -> TransferQueueHost:
        if self._starts_ray:
            ray.init(
                address="local",
                num_cpus=self._units + 4,  # logical; the store's actors take one each
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
            )
        return self

    def __exit__(self, *error: object) -> None:
        self.end()
        self._thread.stop()
        if self._starts_ray:
            ray.shutdown()

    async def renew(self, steps: PlaneSteps = NO_STEPS) -> _Bootstrap:
        """See `PlaneHost.renew`."""
        if steps is not NO_STEPS:
            raise ConfigError(
                "a TransferQueue cannot be held between the units of a put or of a snapshot, as "
                "the narrow cut needs it; take --plane memory, or a full window"
            )
        self.end()
        start = self._start or TransferQueueBootstrap.start
        store = self._thread.do(start(self._units))
        if self._start is None:
            self._store = store
        return _Bootstrap(store, self._thread)

    async def connect(self) -> _Client:
        """See `PlaneHost.connect`."""
        if self._looking is None:
            # Not before the first of the run's own: a restore wants a store without clients.
            self._looking = self._new_client()
        return _Client(self._new_client(), self._thread, self._note)

    def rows(self) -> Mapping[str, Row]:
        """See `PlaneHost.rows`: rows that are listed and whose data can be read."""
        if self._looking is None:
            return {}
        return self._thread.do(_rows(self._looking, self._units))

    def saved(self, directory: Path) -> Saved:
        """See `PlaneHost.saved`.

        Only the names of files are looked at, for what is in them is pickled: the rows are
        those of the store at that time. What the files hold is seen when they are loaded.
        """
        try:
            noted = self._snapshots[(directory / INDEX_FILE).stat().st_ino]
        except FileNotFoundError:
            return Saved(frozenset(), {}, frozenset())
        files = [_UNIT_FILE.fullmatch(path.name) for path in directory.glob("*/*")]
        units = frozenset(int(found[1]) for found in files if found is not None)
        rows = {key: row for key, row in noted.rows.items() if row.unit in units}
        return Saved(noted.keys, rows, units)

    def end(self) -> None:
        """See `PlaneHost.end`."""
        clients = [*self._clients, *([] if self._looking is None else [self._looking])]
        self._clients, self._looking = [], None
        for client in clients:
            self._thread.do(client.close())
        if self._store is not None:
            store, self._store = self._store, None
            self._thread.do(store.stop())

    def _new_client(self) -> TransferQueuePlane:
        client = self._thread.do(TransferQueuePlane.connect(_PARTITION))
        self._clients.append(client)
        return client

    def _note(self, directory: Path) -> None:
        rows = self.rows()
        inode = (directory / INDEX_FILE).stat().st_ino
        self._snapshots[inode] = Saved(frozenset(rows), rows, frozenset())


class _LoopThread:
    """A thread that runs a loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="stepped store", daemon=True
        )
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that is done there; the caller stands still."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        """End the thread; nothing may be at work."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _rows(plane: TransferQueuePlane, units: int) -> dict[str, Row]:
    keys = await plane.list_keys()
    if not keys:
        return {}
    metadata = await plane._find(keys)
    plain = set(await plane._lacking(keys, metadata, [_ADVANTAGE]))
    found = {}
    for key, index in zip(keys, metadata.global_indexes, strict=True):
        fields = _FIELDS if key in plain else (*_FIELDS, _ADVANTAGE)
        try:
            await plane.get([key], fields)
        except RowsMissingError:
            continue
        found[key] = Row(index % units, frozenset(fields))
    return found


class _Bootstrap:
    """A `BootstrapPlane` whose calls are waited for."""

    def __init__(self, store: TransferQueueBootstrap, thread: _LoopThread) -> None:
        self._store = store
        self._thread = thread

    @property
    def info(self) -> PlaneInfo:
        """See `BootstrapPlane.info`."""
        return self._store.info

    async def require_untouched(self) -> None:
        """See `BootstrapPlane.require_untouched`."""
        self._thread.do(self._store.require_untouched())

    async def load(self, directory: Path, keep: Collection[str] | None = None) -> None:
        """See `BootstrapPlane.load`."""
        self._thread.do(self._store.load(directory, keep))

    async def stop(self) -> None:
        """See `BootstrapPlane.stop`."""
        self._thread.do(self._store.stop())


class _Client(DelegatingPlane):
    """A `DataPlane` whose calls are waited for.

    Args:
        note: told of every directory with the whole snapshot.
    """

    def __init__(
        self, plane: TransferQueuePlane, thread: _LoopThread, note: Callable[[Path], None]
    ) -> None:
        super().__init__(plane)
        self._thread = thread
        self._note = note

    async def _pass_on(self, call: Coroutine[Any, Any, T]) -> T:
        return self._thread.do(call)

    async def snapshot_rows(self, directory: Path, stamp: PlaneStamp) -> None:
        """See `DataPlane.snapshot_rows`."""
        await super().snapshot_rows(directory, stamp)
        self._note(directory)
