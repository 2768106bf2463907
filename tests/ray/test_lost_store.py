"""A part of the store hangs, or its controller is dead."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from cutlock.errors import PlaneError, PlaneLostError, PlaneTimeoutError
from cutlock.plane.base import STAMP_FILE, DataPlane
from tests.support.planes import CONTROLLER, UNIT, RealHarness, stamp_for, take_snapshot

if TYPE_CHECKING:
    from tests.support.real_plane import RealCluster

pytestmark = pytest.mark.real

ROWS = {"tokens": [torch.arange(3)] * 2}
READ, CLEARED, NEW = ["g1:0", "g1:1"], ["g2:0", "g2:1"], ["g3:0", "g3:1"]
WAY_OUT = "resume from the last bundle"


@pytest.fixture
async def store(real_cluster: RealCluster) -> AsyncIterator[RealHarness]:
    harness = RealHarness(real_cluster)
    await harness.start()
    yield harness
    await harness.close()


async def filled(harness: RealHarness) -> DataPlane:
    plane = await harness.connect()
    await plane.put(READ, ROWS)
    await plane.put(CLEARED, ROWS)
    return plane


async def test_a_unit_that_hangs_is_named_with_its_limit(
    store: RealHarness, real_cluster: RealCluster
) -> None:
    store.unit_limit_s = 1.0
    plane = await filled(store)
    with real_cluster.frozen_unit(1):
        with pytest.raises(
            PlaneLostError,
            match=rf"{UNIT} has answered nothing for 1 s \(plane.unit_limit_s\); .*{WAY_OUT}",
        ):
            await plane.put(NEW, ROWS)
        with pytest.raises(PlaneLostError, match=r"^clear was not begun: .* has answered nothing"):
            await plane.clear(NEW)


async def test_a_call_that_passes_its_limit_names_what_it_has_waited_for(
    store: RealHarness, real_cluster: RealCluster
) -> None:
    plane = await filled(store)
    await plane.close()
    for stopped, named in (
        (real_cluster.frozen_unit(1), UNIT),
        (real_cluster.frozen_controller(), CONTROLLER),
    ):
        plane = await store.connect(limit_s=1.0)
        with stopped:
            with pytest.raises(
                PlaneTimeoutError, match=rf"1 s \(plane.limit_s\), waiting for {named}"
            ):
                await plane.get(READ, ["tokens"])
            with pytest.raises(PlaneLostError, match=f"^get was not begun: .*{named}"):
                await plane.get(READ, ["tokens"])


async def test_a_snapshot_that_passes_its_limit_is_all_that_fails(
    store: RealHarness, real_cluster: RealCluster, tmp_path: Path
) -> None:
    await filled(store)
    plane = await store.connect(limit_s=2.0)
    await plane.snapshot_index(tmp_path)
    with (
        real_cluster.frozen_unit(1),
        pytest.raises(PlaneTimeoutError, match=r"^snapshot_rows did not end within 2 s"),
    ):
        await plane.snapshot_rows(tmp_path, stamp_for(plane.info))
    assert not (tmp_path / STAMP_FILE).exists()
    plane = await store.connect()
    await take_snapshot(plane, tmp_path / "again")
    assert set(await plane.list_keys()) == {*READ, *CLEARED}


@pytest.mark.usefixtures("stopped_afterwards")
async def test_a_dead_controller_is_named(store: RealHarness, real_cluster: RealCluster) -> None:
    plane = await filled(store)
    real_cluster.kill_controller()
    with pytest.raises(PlaneLostError, match=f"^get of 2 keys failed: {CONTROLLER} is dead"):
        await plane.get(READ, ["tokens"])
    with pytest.raises(PlaneError, match=f"^put was not begun: {CONTROLLER} is dead"):
        await plane.put(NEW, ROWS)
