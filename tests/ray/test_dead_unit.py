"""One of two storage units is dead: the first call names it, and no later one is begun."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from cutlock.errors import PlaneLostError
from cutlock.plane.base import STAMP_FILE, DataPlane
from tests.support.planes import UNIT, RealHarness, stamp_for

if TYPE_CHECKING:
    from tests.support.real_plane import RealCluster

pytestmark = pytest.mark.real

ROWS = {"tokens": [torch.arange(3)] * 2}
READ, CLEARED, NEW = ["g1:0", "g1:1"], ["g2:0", "g2:1"], ["g3:0", "g3:1"]
WAY_OUT = "resume from the last bundle"


async def filled(harness: RealHarness) -> DataPlane:
    plane = await harness.connect()
    await plane.put(READ, ROWS)
    await plane.put(CLEARED, ROWS)
    return plane


@pytest.fixture(scope="module", autouse=True)
def broken_store(real_cluster: RealCluster) -> Iterator[None]:
    async def break_it() -> None:
        harness = RealHarness(real_cluster)
        await harness.start()
        await filled(harness)
        await harness.close()

    asyncio.run(break_it())
    real_cluster.kill_unit(1)
    yield
    real_cluster.stop_store()


@pytest.fixture
async def plane() -> AsyncIterator[DataPlane]:
    from cutlock.plane.transfer_queue import TransferQueuePlane

    connected = await TransferQueuePlane.connect("rollouts")
    yield connected
    await connected.close()


async def test_a_get_names_the_unit(plane: DataPlane) -> None:
    with pytest.raises(PlaneLostError, match=f"^get of 2 keys failed: {UNIT} is dead: .*{WAY_OUT}"):
        await plane.get(READ, ["tokens"])


async def test_a_put_names_the_unit(plane: DataPlane) -> None:
    with pytest.raises(PlaneLostError, match=f"^put of 2 keys failed: {UNIT} is dead"):
        await plane.put(NEW, ROWS)


async def test_a_clear_names_the_unit_and_frees_no_index(plane: DataPlane) -> None:
    from cutlock.plane.transfer_queue import TransferQueuePlane

    with pytest.raises(PlaneLostError, match=f"^clear of 2 keys failed: {UNIT} is dead"):
        await plane.clear(CLEARED)
    other = await TransferQueuePlane.connect("rollouts")
    assert set(await other.list_keys()) >= set(CLEARED)
    await other.close()


async def test_a_snapshot_names_the_unit_and_gets_no_stamp(
    plane: DataPlane, tmp_path: Path
) -> None:
    await plane.snapshot_index(tmp_path)
    with pytest.raises(PlaneLostError, match=f"^snapshot_rows failed: {UNIT} is dead"):
        await plane.snapshot_rows(tmp_path, stamp_for(plane.info))
    assert not (tmp_path / STAMP_FILE).exists()


async def test_all_calls_under_way_end_together_and_no_later_one_is_begun(plane: DataPlane) -> None:
    groups = [[f"g{number}:0", f"g{number}:1"] for number in range(10, 50)]
    ended = await asyncio.gather(
        *(plane.put(keys, ROWS) for keys in groups),
        *(plane.clear(keys) for keys in groups),
        return_exceptions=True,
    )
    assert {type(error) for error in ended} == {PlaneLostError}
    for call in (plane.put(NEW, ROWS), plane.get(READ, ["tokens"]), plane.clear(NEW)):
        with pytest.raises(PlaneLostError, match=rf"^\w+ was not begun: {UNIT} is dead"):
            await call
