"""Workers and stores that are lost while a run goes on, and what the run makes of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from cutlock.alphabet import Action
from cutlock.bundle.publication import latest
from cutlock.errors import NoWorkerError, PlaneLostError, PlaneTimeoutError, WorkerLostError
from tests.support.rig import Incarnation, Rig
from tests.support.situations import EVERY_STEP

HOW_OFTEN = 3


async def started(rig: Rig) -> Incarnation:
    """A run whose start is saved, and of which nothing is generated yet."""
    run = await rig.launch()
    await run.published(0)
    return run


async def resumes_cleanly(rig: Rig) -> None:
    bundle = latest(rig.directory.root)
    rig.check_bundle(bundle)
    resumed = await rig.resume(bundle)
    await resumed.finish()
    rig.check_end(resumed)


async def test_a_group_whose_worker_dies_is_launched_again_and_that_is_no_try(
    memory_rig: Rig,
) -> None:
    rig = memory_rig
    rig.configure(failures={"attempts": 1})
    run = await started(rig)
    group = rig.batch(0)[0]
    run.generator.fail(group, times=HOW_OFTEN, failure=WorkerLostError)
    await run.finish()
    failed = [r.args["attempt"] for r in run.log.records if r.action == Action.FAIL_GROUP]
    assert failed == list(range(HOW_OFTEN))
    await run.logged(Action.COMMIT_GROUP, group=group, attempt=HOW_OFTEN)
    rig.check_end(run)


async def test_a_group_that_fails_after_its_workers_have_died_keeps_its_tries(
    memory_rig: Rig,
) -> None:
    rig = memory_rig
    rig.configure(failures={"attempts": 2, "drop_budget": 1})
    run = await started(rig)
    group = rig.batch(0)[0]
    await run.logged(Action.LAUNCH_GROUP, group=group)
    second = run.holds.hold(Action.LAUNCH_GROUP, group=group)
    run.generator.fail(group, times=1, failure=WorkerLostError)
    run.generator.finish(group)
    await run.at(second)
    run.generator.fail(group)
    await run.finish()
    failed = [r.args["attempt"] for r in run.log.records if r.action == Action.FAIL_GROUP]
    assert failed == [0, 1, 2]
    await run.logged(Action.DROP_GROUP, group=group)
    rig.check_end(run, lost=1)


async def test_when_the_last_worker_is_lost_the_run_ends_and_no_prompt_is_dropped(
    memory_rig: Rig,
) -> None:
    rig = memory_rig
    rig.configure(failures={"attempts": 2, "drop_budget": 100}, checkpoint=EVERY_STEP)
    run = await started(rig)
    run.generator.fail(*rig.batch(1), failure=NoWorkerError)
    with pytest.raises(NoWorkerError, match="was made to fail"):
        await run.finish()
    assert not {Action.FAIL_GROUP, Action.DROP_GROUP} & {r.action for r in run.log.records}
    await resumes_cleanly(rig)


def client(run: Incarnation) -> Any:
    """Of the store itself, behind the one that pins rows."""
    return run.state.plane._plane


@contextlib.contextmanager
def lost(run: Incarnation) -> Iterator[None]:
    """Every call of the controller's client finds that the store is lost."""
    plane = client(run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plane._probe, "_lost", "storage unit 1 is dead; resume")
        yield


@pytest.mark.parametrize(
    "moment", [Action.PUT_ROWS, Action.WRITE_ADVANTAGES, Action.SAVE_PLANE], ids=str
)
async def test_a_run_whose_store_is_lost_ends_with_its_name_and_drops_nothing(
    memory_rig: Rig, moment: Action
) -> None:
    rig = memory_rig
    rig.configure(failures={"attempts": 5, "drop_budget": 100}, checkpoint=EVERY_STEP)
    run = await started(rig)
    where = run.holds.hold(moment)
    run.generator.finish_all()
    await run.at(where)
    with lost(run), pytest.raises(PlaneLostError, match="storage unit 1 is dead; resume"):
        await run.finish()
    assert not {Action.FAIL_GROUP, Action.DROP_GROUP} & {r.action for r in run.log.records}
    ended = run.log.records[-1]
    assert ended.action == Action.END_RUN
    assert "storage unit 1 is dead" in str(ended.args["reason"])
    await resumes_cleanly(rig)


async def test_a_store_that_hangs_is_waited_for_once_however_many_groups_are_in_flight(
    memory_rig: Rig,
) -> None:
    rig = memory_rig
    rig.configure(
        prompts_per_step=4,
        task={"prompts": 16},
        sampler={"window": 3},
        failures={"attempts": 5, "drop_budget": 100},
    )
    run = await started(rig)
    plane = client(run)
    stuck = rig.plane_holds.hold("put", "store")
    plane._limit_s = 0.05
    run.generator.finish_all()
    assert run.task is not None
    await asyncio.wait({run.task})
    assert stuck.reached.is_set()
    error = run.task.exception()
    assert isinstance(error, PlaneTimeoutError | PlaneLostError)
    assert "did not end within 0.05 s (plane.limit_s)" in str(error)
    begun = [r for r in run.log.records if r.action == Action.BEGIN_COMMIT]
    assert len(begun) == 16
    rolled_back = [r for r in run.log.records if r.action == Action.ROLLBACK_GROUP]
    assert rolled_back == []
    rig.plane_holds.release_all()
    await resumes_cleanly(rig)
