"""Public failures in which a run stands still and nobody says so, or works and is stopped."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from cutlock import cli
from cutlock.alphabet import Action
from cutlock.bundle.publication import latest
from cutlock.cli import run as commands
from cutlock.errors import (
    DropBudgetError,
    StallError,
)
from cutlock.run.config import RunConfig
from tests.support.checks import lost_on_purpose, trained_per_step
from tests.support.local_runs import Run, in_one_thread, tiny_config
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
        await run.commit(*finished)
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
        await run.commit(*finished)
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


class TestTargetReached:
    """FB-88: the target is eight groups, and the checkpoint has eight."""

    TARGETS = ({"max_steps": 4, "epochs": 2}, {"epochs": 1})

    def ended(self, root: Path, target: dict[str, Any]) -> Run:
        config = self.config(target)
        run = Run.create(root / "run", config)
        run.first(config)
        assert run.trainer.trained.total() == 8
        return run

    def config(self, target: dict[str, Any]) -> RunConfig:
        task = {"prompts": 8, "length": 2, "vocabulary": 3}
        return tiny_config(**{"epochs": 1, "task": task, **target})

    @pytest.mark.parametrize("target", TARGETS, ids=str)
    def test_fb_88_a_resume_at_the_target_starts_nothing_and_ends_well(
        self, ram_path: Path, monkeypatch: pytest.MonkeyPatch, target: dict[str, Any]
    ) -> None:
        run = self.ended(ram_path, target)
        before = sorted(path.name for path in run.root.rglob("*"))
        for start in ("_run", "_run_here", "_run_on_ray", "build_local"):
            monkeypatch.setattr(commands, start, None)
        result = CliRunner().invoke(
            cli.main, ["resume", str(run.root), "--json", str(ram_path / "report.json")]
        )
        assert result.exit_code == 0, result.output
        report = msgspec.json.decode((ram_path / "report.json").read_bytes())
        assert report["steps"] == []
        assert sorted(path.name for path in run.root.rglob("*") if path.name != "run.lock") == [
            name for name in before if name != "run.lock"
        ]

    @pytest.mark.parametrize("target", TARGETS, ids=str)
    def test_fb_88_a_controller_at_the_target_gives_no_work_to_any_worker(
        self, ram_path: Path, target: dict[str, Any]
    ) -> None:
        run = self.ended(ram_path, target)
        plan = run.plan()
        assert plan.finished
        watch = Watch()
        report = in_one_thread(run._run(plan.config, plan, watch))
        assert report.ended == ("max_steps" if "max_steps" in target else "exhausted")
        assert report.steps == ()
        work = {Action.LAUNCH_GROUP, Action.TRAIN_STEP, Action.SELECT_GROUPS, Action.RESERVE_BATCH}
        assert not work & {*watch.announced}
        assert run.trainer.trained.total() == 8
        assert run.audit().ok

    def test_fb_88_a_run_without_a_step_to_do_gives_no_work_to_any_worker(
        self, ram_path: Path
    ) -> None:
        config = self.config({"max_steps": 0})
        run = Run.create(ram_path / "run", config)
        watch = Watch()
        report = run.first(config, watch)
        assert (report.ended, report.steps) == ("max_steps", ())
        assert Action.LAUNCH_GROUP not in watch.announced
        assert run.plan().finished

    def test_fb_88_a_target_that_is_raised_afterwards_is_trained_to(self, ram_path: Path) -> None:
        run = self.ended(ram_path, {"max_steps": 4, "epochs": 2})
        plan = run.plan(config=self.config({"max_steps": 6, "epochs": 2}))
        assert not plan.finished
        run.resume(plan)
        assert run.trainer.trained.total() == 12


class Watch:
    """Notes what is announced."""

    def __init__(self) -> None:
        self.announced: list[Action] = []

    async def reach(self, action: Action, /, **where: object) -> None:
        self.announced.append(action)


class TestRunShorterThanItsWindow:
    """FB-91: few steps, a window as wide or wider, and the first hand-over of weights."""

    @pytest.mark.parametrize("sampler", ["in_order", "ready_first", "weight_fifo", "windowed"])
    def test_fb_91_every_small_pair_of_steps_and_window_ends(
        self, ram_path: Path, sampler: str
    ) -> None:
        for steps, window in product(range(5), range(4)):
            config = tiny_config(
                max_steps=steps,
                epochs=2,
                sampler={"name": sampler, "window": window},
                task={"prompts": 8, "length": 2, "vocabulary": 3},
                checkpoint={"every": 100},
            )
            run, watch = Run.create(ram_path / f"{steps}-{window}", config), Watch()
            report = run.first(config, watch)
            assert report.ended == "max_steps"
            assert [step.step for step in report.steps] == list(range(steps))
            assert run.trainer.trained.total() == 2 * steps
            # The first hand-over comes before all work, and one after every step.
            assert watch.announced.count(Action.SYNC_WEIGHTS) == steps + 1
            if steps:
                launched = watch.announced.index(Action.LAUNCH_GROUP)
                assert watch.announced.index(Action.SYNC_WEIGHTS) < launched
            assert run.audit().ok

    @pytest.mark.parametrize("sampler", ["in_order", "ready_first", "weight_fifo", "windowed"])
    def test_fb_91_data_for_fewer_steps_than_the_window_is_trained_to_its_end(
        self, ram_path: Path, sampler: str
    ) -> None:
        for prompts, window in product(range(1, 6), range(4)):
            config = tiny_config(
                epochs=1,
                sampler={"name": sampler, "window": window},
                task={"prompts": prompts, "length": 2, "vocabulary": 3},
                checkpoint={"every": 100},
            )
            run = Run.create(ram_path / f"{prompts}-{window}", config)
            assert run.first(config).ended == "exhausted"
            found = run.audit()
            assert found.ok, found.problems
            assert found.trained_once + found.dropped == prompts
