"""Runs on a real store of which a part dies or hangs: before, in and after a save."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cutlock.alphabet import Action
from cutlock.bundle.publication import latest, scan
from cutlock.bundle.verification import verify
from cutlock.errors import PlaneLostError
from cutlock.plane.base import PlaneStamp
from tests.support.planes import CONTROLLER, UNIT, RealHarness
from tests.support.processes import frozen
from tests.support.rig import Incarnation, Rig, rig_on

if TYPE_CHECKING:
    from tests.support.real_plane import RealCluster

pytestmark = pytest.mark.real


@pytest.fixture
async def harness(real_cluster: RealCluster) -> AsyncIterator[RealHarness]:
    made = RealHarness(real_cluster)
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def rig(ram_path: Path, harness: RealHarness) -> AsyncIterator[Rig]:
    """Eight groups in flight, and a save after every step."""
    async with rig_on(ram_path / "run", harness) as made:
        made.configure(
            prompts_per_step=4,
            task={"prompts": 16},
            checkpoint={"every": 1},
            failures={"attempts": 5, "drop_budget": 100},
        )
        yield made


async def resumes_cleanly(rig: Rig, cluster: RealCluster, step: int) -> None:
    """From the bundle of that step, into a new store."""
    bundle = latest(rig.directory.root)
    assert bundle.name == f"step_{step}"
    verify(bundle)
    await rig.harness.close()
    await cluster.restart_store()
    resumed = await rig.resume(bundle)
    await resumed.finish()
    rig.check_end(resumed)


async def ends_with(run: Incarnation, said: str) -> None:
    with pytest.raises(PlaneLostError, match=said):
        await run.finish()
    dropped = [r for r in run.log.records if r.action == Action.DROP_GROUP]
    assert dropped == []


@pytest.mark.usefixtures("stopped_afterwards")
async def test_a_unit_killed_in_a_save(
    rig: Rig, real_cluster: RealCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await rig.run_to(2)
    snapshot_rows = run.state.plane.snapshot_rows

    unit = real_cluster.unit_process(1)

    async def kill_and_save(directory: Path, stamp: PlaneStamp) -> None:
        with frozen(unit):
            save = asyncio.create_task(snapshot_rows(directory, stamp))
            await asyncio.wait([save], timeout=0.2)
            os.kill(unit, signal.SIGKILL)
            await save

    monkeypatch.setattr(run.state.plane, "snapshot_rows", kill_and_save)
    await ends_with(run, f"^snapshot_rows failed: {UNIT} is dead")
    assert (await run.logged(Action.FAIL_SAVE)).args["step"] == 2
    assert scan(rig.directory.root).debris == ()
    await resumes_cleanly(rig, real_cluster, 1)


@pytest.mark.long
@pytest.mark.usefixtures("stopped_afterwards")
async def test_a_unit_killed_before_a_save(rig: Rig, real_cluster: RealCluster) -> None:
    run = await rig.run_to(2)
    real_cluster.kill_unit(1)
    await ends_with(run, f"{UNIT} is dead")
    await resumes_cleanly(rig, real_cluster, 1)


@pytest.mark.long
@pytest.mark.usefixtures("stopped_afterwards")
async def test_a_unit_killed_after_a_save(rig: Rig, real_cluster: RealCluster) -> None:
    run = await rig.run_to(2)
    pruning = run.holds.hold(Action.PRUNE_BUNDLES)
    run.cut.release()
    await run.at(pruning)
    real_cluster.kill_unit(1)
    await ends_with(run, f"{UNIT} is dead")
    await resumes_cleanly(rig, real_cluster, 2)


@pytest.mark.long
@pytest.mark.usefixtures("stopped_afterwards")
async def test_the_controller_of_the_store_killed(rig: Rig, real_cluster: RealCluster) -> None:
    run = await rig.run_to(2)
    real_cluster.kill_controller()
    await ends_with(run, f"{CONTROLLER} is dead")
    await resumes_cleanly(rig, real_cluster, 1)


@pytest.mark.long
async def test_a_unit_that_stops_answering(
    rig: Rig, harness: RealHarness, real_cluster: RealCluster
) -> None:
    harness.unit_limit_s = 2.0
    run = await rig.run_to(2)
    pruning = run.holds.hold(Action.PRUNE_BUNDLES)
    run.cut.release()
    await run.at(pruning)
    with real_cluster.frozen_unit(1):
        await ends_with(run, rf"{UNIT} has answered nothing for 2 s \(plane.unit_limit_s\)")
        await rig.harness.close()
    await resumes_cleanly(rig, real_cluster, 2)


async def test_a_save_slower_than_the_limit_of_the_store_fails_and_the_next_succeeds(
    rig: Rig, real_cluster: RealCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await rig.run_to(2)
    plane = run.state.plane._plane
    snapshot_rows = plane.snapshot_rows

    async def stall_and_save(directory: Path, stamp: PlaneStamp) -> None:
        monkeypatch.setattr(plane, "snapshot_rows", snapshot_rows)
        monkeypatch.setattr(plane, "_limit_s", 1.0)
        try:
            with real_cluster.frozen_unit(1):
                await snapshot_rows(directory, stamp)
        finally:
            monkeypatch.setattr(plane, "_limit_s", 60.0)

    monkeypatch.setattr(plane, "snapshot_rows", stall_and_save)
    await run.finish()
    rig.check_end(run)
    failed = [r for r in run.log.records if r.action == Action.FAIL_SAVE]
    assert [r.args["step"] for r in failed] == [2]
    assert "snapshot_rows did not end within 1 s (plane.limit_s)" in str(failed[0].args["error"])
    found = scan(rig.directory.root)
    assert [bundle.manifest.step for bundle in found.bundles] == [0, 1, 3, 4]
    assert found.debris == ()
