"""Public failures in which a run stands still and nobody says so, or works and is stopped."""

from __future__ import annotations

import pytest

from cutlock.alphabet import Action
from cutlock.bundle.publication import latest
from cutlock.controller.config import RunConfig
from cutlock.errors import DropBudgetError, StallError
from tests.support.checks import lost_on_purpose, trained_per_step
from tests.support.loop import WakingClock
from tests.support.rig import Incarnation, Rig

LIMIT = 600.0


@pytest.fixture
def clock(memory_rig: Rig) -> WakingClock:
    """The clock of all runs of the rig."""
    clock = WakingClock()
    memory_rig.now, memory_rig.sleep = clock, clock.sleep
    return clock


class TestGroupThatDoesNotCome:
    """FB-06: a step needs four groups, and one rollout neither returns nor raises."""

    async def three_of_four(self, rig: Rig, action: str) -> tuple[Incarnation, str]:
        rig.configure(
            prompts_per_step=4, group_size=1, watchdog={"stall_s": LIMIT, "action": action}
        )
        *finished, missing = rig.batch(0)
        run = await rig.launch()
        await run.logged(Action.PRUNE_BUNDLES)
        run.generator.finish(*finished)
        for group in finished:
            await run.logged(Action.COMMIT_GROUP, group=group)
        await run.quiet()
        return run, missing

    async def test_fb_06_the_run_fails_after_its_limit_and_names_the_group(
        self, memory_rig: Rig, clock: WakingClock
    ) -> None:
        rig = memory_rig
        run, missing = await self.three_of_four(rig, "fail")
        assert run.task is not None
        await clock.pass_by(LIMIT - 1)
        assert not run.task.done()
        await clock.pass_by(LIMIT / 10 + 1)
        says = rf"4 groups of step 0 and 3 groups are ready; .* in flight \({missing}, "
        with pytest.raises(StallError, match=says):
            await run.task
        resumed = await rig.resume(latest(rig.directory.root))
        await resumed.finish()
        rig.check_end(resumed)

    async def test_fb_06_a_run_that_only_warns_names_the_group_and_still_saves(
        self, memory_rig: Rig, clock: WakingClock
    ) -> None:
        rig = memory_rig
        run, missing = await self.three_of_four(rig, "warn")
        await clock.pass_by(2 * LIMIT)
        stalls = run.controller.status().stalls
        assert {stall.kind for stall in stalls} == {"no selection", "no commit"}
        assert all(f"({missing}, " in stall.message for stall in stalls)
        await run.crash()

    async def test_fb_06_a_save_that_is_asked_for_meanwhile_is_published(
        self, memory_rig: Rig
    ) -> None:
        rig = memory_rig
        run, missing = await self.three_of_four(rig, "warn")
        # The start is saved already, and a step is saved once; so a step is trained first.
        run.generator.finish(missing)
        *finished, missing = rig.batch(1)
        run.generator.finish(*finished)
        for group in finished:
            await run.logged(Action.COMMIT_GROUP, group=group)
        await run.logged(Action.SYNC_WEIGHTS, version=1)
        await run.quiet()
        run.controller.request_save()
        bundle = await run.published(1)
        assert [record.group_id for record in rig.check_bundle(bundle).ledger] == [missing]
        await rig.check_resume(run, bundle)

    async def test_fb_06_a_group_whose_worker_gives_up_waiting_is_tried_again(
        self, memory_rig: Rig
    ) -> None:
        rig = memory_rig
        rig.configure(prompts_per_step=4, group_size=1)
        run = await rig.launch(started=False)
        run.generator.fail(rig.batch(0)[3], times=2)
        await run.finish()
        assert trained_per_step(run.history)[0] == sorted(rig.batch(0))
        rig.check_end(run)

    async def test_fb_06_a_group_that_never_comes_is_replaced_by_a_spare(
        self, memory_rig: Rig
    ) -> None:
        rig = memory_rig
        rig.configure(
            prompts_per_step=4,
            group_size=1,
            task={"prompts": 16},
            buffer={"spare_prompts": 1},
            failures={"drop_budget": 1},
        )
        # The second batch is held back, so that step 1 is the third.
        *kept, missing = rig.batch(2)
        run = await rig.launch(started=False)
        run.generator.fail(missing)
        await run.finish()
        assert trained_per_step(run.history)[1] == sorted([*kept, rig.batch(1)[0]])
        assert lost_on_purpose(run.history) == [missing]

    async def test_fb_06_a_group_that_may_not_be_lost_ends_the_run_by_name(
        self, memory_rig: Rig
    ) -> None:
        rig = memory_rig
        rig.configure(prompts_per_step=4, group_size=1)
        missing = rig.batch(0)[3]
        run = await rig.launch(started=False)
        run.generator.fail(missing)
        with pytest.raises(DropBudgetError, match=f"{missing}.* failed 3 times"):
            await run.finish()


class TestStallInStorage:
    """FB-15: the one producer blocks in a call to the storage."""

    async def test_fb_15_a_producer_that_is_stuck_in_a_put_is_noticed_after_the_limit(
        self, memory_rig: Rig, clock: WakingClock
    ) -> None:
        rig = memory_rig
        rig.configure(group_size=1, watchdog={"stall_s": LIMIT, "action": "fail"})
        run = await rig.launch()
        assert run.task is not None
        await run.logged(Action.PRUNE_BUNDLES)
        stuck = rig.plane_holds.hold("put", "store")
        run.generator.finish_all()
        await run.at(stuck)
        await run.quiet()
        await clock.pass_by(LIMIT - 1)
        assert not run.task.done()
        await clock.pass_by(LIMIT / 10 + 1)
        assert run.controller.status().stalls
        # A put is not abandoned; the plane has a limit for it, and the run ends with it.
        stuck.release()
        with pytest.raises(StallError, match=r"no selection for 600 s .* 0 groups are ready"):
            await run.task
        resumed = await rig.resume(latest(rig.directory.root))
        await resumed.finish()
        rig.check_end(resumed)

    @pytest.mark.parametrize(
        "phase", [Action.TRAIN_STEP, Action.WRITE_POLICY, Action.PUBLISH_BUNDLE], ids=str
    )
    async def test_fb_15_a_phase_that_is_slow_and_alive_is_not_taken_for_a_stall(
        self, memory_rig: Rig, clock: WakingClock, phase: Action
    ) -> None:
        rig = memory_rig
        rig.configure(checkpoint={"every": 1}, watchdog={"stall_s": LIMIT, "action": "fail"})
        run = await rig.launch(started=False)
        slow = run.holds.hold(phase)
        run.generator.finish(*rig.batch(0))
        run.start()
        await run.at(slow)
        await run.quiet()
        await clock.pass_by(20 * LIMIT)
        slow.release()
        # The limit begins anew for what comes after.
        published = await run.logged(Action.PUBLISH_BUNDLE, step=1)
        await run.logged(Action.PRUNE_BUNDLES, after=published.seq)
        await run.quiet()
        await clock.pass_by(LIMIT - LIMIT / 10)
        assert run.controller.status().stalls == ()
        await run.finish()
        rig.check_end(run)

    def test_fb_15_by_default_all_tries_of_a_rollout_fit_into_the_limit(self) -> None:
        config = RunConfig()
        tries = config.failures.attempts * config.workers.group_limit_s
        assert tries < config.watchdog.stall_s
