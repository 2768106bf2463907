"""Both planes behind one face, for tests that say what a plane does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch

from cutlock.plane.base import BootstrapPlane, DataPlane, PlaneInfo, PlaneStamp, SnapshotMode
from cutlock.plane.memory import MemoryBootstrap, MemoryPlane, MemoryStore, PlaneStep

if TYPE_CHECKING:
    from tests.support.real_plane import RealCluster


UNIT = r"storage unit TransferQueueStorageUnit#1 at 127\.0\.0\.1:\d+"
"""What an error calls the last unit."""
CONTROLLER = r"the TransferQueue controller TransferQueueController at 127\.0\.0\.1:\d+"


class PlaneHarness(Protocol):
    """A store with its clients. `bootstrap` is of the store that runs now."""

    bootstrap: BootstrapPlane
    short_limit_s: float
    """A limit that a call on a stalled store exceeds, and `connect` on a busy machine does not."""

    async def start(self) -> None:
        """Replace the store by an untouched one; closes the clients of the old one."""

    async def connect(self, *, limit_s: float = 60.0) -> DataPlane:
        """Connect a new client, closed by the harness at the end."""

    def stored(self) -> int:
        """Rows of which some unit holds data, with a key or without."""

    def spoil(self, snapshot: Path) -> None:
        """Make a part of a snapshot unreadable."""

    def stalled(self) -> AbstractContextManager[None]:
        """The store answers nothing until the end of the block."""

    async def close(self) -> None:
        """Close all clients."""


class _Stall:
    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def reach(self, step: PlaneStep, /) -> None:
        await self.over.wait()


class MemoryHarness:
    """`PlaneHarness` of a `MemoryStore`."""

    short_limit_s = 0.01

    def __init__(self) -> None:
        self._store = MemoryStore()
        self.bootstrap = MemoryBootstrap(self._store)

    async def start(self) -> None:
        self._store = MemoryStore()
        self.bootstrap = MemoryBootstrap(self._store)

    async def connect(self, *, limit_s: float = 60.0) -> MemoryPlane:
        return MemoryPlane(self._store, limit_s=limit_s)

    def stored(self) -> int:
        return sum(len(unit) for unit in self._store.units)

    def spoil(self, snapshot: Path) -> None:
        (snapshot / "unit_1.safetensors").write_bytes(b"")

    @contextmanager
    def stalled(self) -> Iterator[None]:
        stall, before = _Stall(), self._store.steps
        self._store.steps = stall
        try:
            yield
        finally:
            self._store.steps = before
            stall.over.set()

    async def close(self) -> None:
        pass


class RealHarness:
    """`PlaneHarness` of the session's TransferQueue."""

    bootstrap: BootstrapPlane
    short_limit_s = 1.0

    def __init__(self, cluster: RealCluster) -> None:
        self.unit_limit_s = 60.0
        self.snapshot: SnapshotMode = "aside"
        self._cluster = cluster
        self._clients: list[DataPlane] = []

    async def start(self) -> None:
        await self.close()
        self.bootstrap = await self._cluster.untouched_store()

    async def connect(self, *, limit_s: float = 60.0) -> DataPlane:
        from cutlock.plane.transfer_queue import TransferQueuePlane

        client = await TransferQueuePlane.connect(
            "rollouts",
            limit_s=limit_s,
            unit_limit_s=self.unit_limit_s,
            snapshot=self.snapshot,
        )
        self._clients.append(client)
        return client

    def stored(self) -> int:
        return self._cluster.stored()

    def spoil(self, snapshot: Path) -> None:
        for path in snapshot.rglob("su_1_*"):
            path.write_bytes(b"")

    def stalled(self) -> AbstractContextManager[None]:
        return self._cluster.frozen_controller()

    async def close(self) -> None:
        while self._clients:
            await self._clients.pop().close()


@asynccontextmanager
async def harness_of(cluster: RealCluster | None) -> AsyncIterator[PlaneHarness]:
    """Started harness of the real cluster, or of a memory store if there is none."""
    async with started(MemoryHarness() if cluster is None else RealHarness(cluster)) as harness:
        yield harness


@asynccontextmanager
async def started(harness: PlaneHarness) -> AsyncIterator[PlaneHarness]:
    """A store of its own, and no client that outlives the block."""
    await harness.start()
    try:
        yield harness
    finally:
        await harness.close()


def stamp_for(info: PlaneInfo) -> PlaneStamp:
    return PlaneStamp(
        cut_id="c" * 64,
        step=7,
        version=7,
        index_digest="d" * 64,
        index_groups=2,
        ledger_sha256="e" * 64,
        ledger_groups=3,
        plane=info,
    )


async def take_snapshot(plane: DataPlane, directory: Path) -> PlaneStamp:
    directory.mkdir()
    stamp = stamp_for(plane.info)
    await plane.snapshot_index(directory)
    await plane.snapshot_rows(directory, stamp)
    return stamp


def same_rows(
    left: Mapping[str, Sequence[torch.Tensor]], right: Mapping[str, Sequence[torch.Tensor]]
) -> bool:
    """Whether fields, numbers of rows, dtypes, shapes and values are the same."""
    return left.keys() == right.keys() and all(
        len(left[field]) == len(right[field])
        and all(
            a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
            for a, b in zip(left[field], right[field], strict=True)
        )
        for field in left
    )
