"""One of two storage units is dead; every call says so within its limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from cutlock.errors import PlaneError
from cutlock.plane.base import STAMP_FILE, DataPlane
from tests.support.planes import stamp_for

if TYPE_CHECKING:
    from tests.support.real_plane import RealCluster

pytestmark = pytest.mark.real

READ, CLEARED = ["g1:0", "g1:1"], ["g2:0", "g2:1"]
UNIT = r"storage unit TQ_STORAGE_UNIT_\w+ at 127\.0\.0\.1:\d+"


@pytest.fixture(scope="module", autouse=True)
def broken_store(real_cluster: RealCluster) -> Iterator[None]:
    from transfer_queue.storage.managers import simple_storage_manager

    from cutlock.plane.transfer_queue import TransferQueuePlane

    async def break_it() -> None:
        await real_cluster.untouched_store()
        plane = await TransferQueuePlane.connect("rollouts")
        await plane.put(READ + CLEARED, {"tokens": [torch.arange(3)] * 4})
        await plane.close()

    asyncio.run(break_it())
    real_cluster.kill_unit(1)
    with pytest.MonkeyPatch.context() as patch:
        # The limits that the library has read from the environment when it was imported.
        patch.setattr(simple_storage_manager, "TQ_SIMPLE_STORAGE_SEND_RECV_TIMEOUT", 1)
        patch.setattr(simple_storage_manager, "TQ_SIMPLE_STORAGE_PROBE_TIMEOUT", 1)
        patch.setattr(simple_storage_manager, "TQ_SIMPLE_STORAGE_MAX_ATTEMPTS", 1)
        yield
    real_cluster.stop_store()


@pytest.fixture
async def plane() -> AsyncIterator[DataPlane]:
    from cutlock.plane.transfer_queue import TransferQueuePlane

    connected = await TransferQueuePlane.connect("rollouts")
    yield connected
    await connected.close()


async def test_a_get_names_the_unit(plane: DataPlane) -> None:
    with pytest.raises(PlaneError, match=f"^get of 2 keys failed: .*{UNIT}"):
        await plane.get(READ, ["tokens"])


async def test_a_put_names_the_unit(plane: DataPlane) -> None:
    with pytest.raises(PlaneError, match=f"^put of 2 keys failed: .*{UNIT}"):
        await plane.put(["g3:0", "g3:1"], {"tokens": [torch.arange(3)] * 2})


async def test_a_clear_names_the_unit_and_frees_no_index(plane: DataPlane) -> None:
    with pytest.raises(PlaneError, match=f"^clear of 2 keys failed: .*{UNIT}"):
        await plane.clear(CLEARED)
    assert set(await plane.list_keys()) >= set(CLEARED)


async def test_a_snapshot_fails_and_gets_no_stamp(plane: DataPlane, tmp_path: Path) -> None:
    await plane.snapshot_index(tmp_path)
    with pytest.raises(PlaneError, match=r"^snapshot_rows failed: .*TQ_STORAGE_UNIT_"):
        await plane.snapshot_rows(tmp_path, stamp_for(plane.info))
    assert not (tmp_path / STAMP_FILE).exists()
