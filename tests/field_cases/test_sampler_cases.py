"""Public failures of admission and choice: too much let in, the finished thrown away, a wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cutlock.alphabet import Action
from cutlock.barrier import Barrier
from cutlock.controller.assembly import build_prompts
from cutlock.errors import InvariantError, RestoreError
from cutlock.samplers import build_sampler, parse_sampler
from tests.support.checks import groups_of, lost_on_purpose, served, trained_per_step
from tests.support.local_runs import Run, tiny_config
from tests.support.loop import entered
from tests.support.rig import Incarnation, Rig
from tests.support.samplers import AdmitOnly, NotRestorable
from tests.support.situations import EVERY_STEP, SAMPLERS, with_sampler

GATED = ("ready_first", "weight_fifo", "in_order")

FOUR = {"prompts_per_step": 4, "group_size": 1}


@pytest.mark.parametrize("sampler", GATED)
def test_fb_12_the_gate_lets_in_as_much_after_a_restore_of_any_version(sampler: str) -> None:
    for version in range(51):
        barrier = Barrier()
        gate = build_sampler(parse_sampler({"name": sampler, "window": 1}), barrier)
        with entered(barrier.mutation("test")) as slot:
            if version:
                gate.restore_cursor(slot, version - 1)
            for stamp in (version, version + 1):
                assert gate.commit_admission(slot, version).dispatch_index == stamp
            with pytest.raises(InvariantError, match="may not advance"):
                gate.commit_admission(slot, version)


@pytest.mark.parametrize("sampler", SAMPLERS)
async def test_fb_12_a_restored_run_has_as_many_groups_in_the_air_as_a_new_one(
    memory_rig: Rig, sampler: str
) -> None:
    rig = memory_rig
    changes = {"task": {"prompts": 60}, "buffer": {"capacity": 8}, "checkpoint": EVERY_STEP}
    rig.configure(**FOUR, **with_sampler(changes, sampler))
    run = await rig.run_to(10)
    run.cut.release()
    await run.published(10)
    await run.crash()
    # Newer bundles are set aside by a resume from an older one.
    for version in (10, 4, 1):
        for with_rows in (True, False):
            bundle = rig.directory.root / f"step_{version}"
            resumed = await rig.resume(bundle, with_rows=with_rows, started=False)
            train = resumed.holds.hold(Action.TRAIN_STEP)
            resumed.start()
            await resumed.quiet()
            in_the_air = resumed.engine.in_flight + len(resumed.state.buffer.ready())
            assert resumed.state.permits.held <= resumed.state.permits.capacity == 8
            if sampler in GATED:
                claimed = 4 if train.reached.is_set() else 0
                assert in_the_air + claimed == 8
                assert resumed.state.sampler.cursor == version + 1
            else:
                assert in_the_air == 8
            await resumed.crash()


class TestFinishedGroupsOfTheNextStep:
    """FB-13: the trainer is about to take step 5, for which two groups are finished."""

    async def saved(self, rig: Rig) -> tuple[Path, list[str]]:
        run = await rig.run_to(5)
        finished = rig.batch(5)
        await run.commit(*finished)
        bundle = await run.save_and_crash(5)
        return bundle, finished

    @pytest.mark.parametrize("sampler", [*SAMPLERS, "custom"])
    async def test_fb_13_they_are_trained_in_that_step_and_not_generated_again(
        self, memory_rig: Rig, sampler: str
    ) -> None:
        rig = memory_rig
        if sampler == "custom":
            rig.configure_custom(AdmitOnly, task={"prompts": 16})
        else:
            rig.configure(**with_sampler({"task": {"prompts": 16}}, sampler))
        bundle, finished = await self.saved(rig)
        resumed = await rig.resume(bundle)
        chosen = await resumed.logged(Action.SELECT_GROUPS, step=5)
        assert chosen.args["groups"] == finished
        await resumed.finish()
        assert not {*finished} & {*groups_of(resumed.log.records, Action.LAUNCH_GROUP)}
        rig.check_end(resumed)

    async def test_fb_13_a_sampler_that_takes_no_restored_groups_refuses_them(
        self, memory_rig: Rig
    ) -> None:
        rig = memory_rig
        rig.configure_custom(NotRestorable, task={"prompts": 16})
        bundle, finished = await self.saved(rig)
        with pytest.raises(RestoreError, match=r"2 finished groups .*--without-rows"):
            rig.plan(bundle)
        resumed = await rig.resume(bundle, with_rows=False)
        await resumed.finish()
        assert trained_per_step(resumed.history)[5] == sorted(finished)
        rig.check_end(resumed)


NOTHING_FOR_31 = {
    "not read": (Action.RESERVE_BATCH, {"skip": 31}),
    "read and not admitted": (Action.COMMIT_ADMISSION, {"admission": 31}),
}


@pytest.mark.parametrize("sampler", GATED)
@pytest.mark.parametrize("how", NOTHING_FOR_31)
async def test_fb_25_the_step_after_a_full_one_is_produced_before_the_first_weight_update(
    memory_rig: Rig, sampler: str, how: str
) -> None:
    """Saved at step 30 with a full batch for it, and nothing for step 31."""
    rig = memory_rig
    rig.configure(
        prompts_per_step=1,
        group_size=1,
        sampler={"name": sampler, "window": 1},
        task={"prompts": 34},
    )

    async def nothing_more(run: Incarnation) -> None:
        action, where = NOTHING_FOR_31[how]
        run.pump_hold = run.holds.hold(action, **where)

    run = await rig.run_to(30, nothing_more)
    run.generator.finish(*rig.batch(30))
    await run.logged(Action.COMMIT_GROUP, group=rig.batch(30)[0])
    await run.at(run.pump_hold)
    bundle = await run.save_and_crash(30)
    cut = rig.check_bundle(bundle)
    assert (cut.cursor, [entry.dispatch_index for entry in cut.index]) == (30, [30])

    resumed = await rig.resume(bundle, started=False)
    update = resumed.holds.hold(Action.RAISE_VERSION, version=31)
    resumed.start()
    await resumed.at(update)
    await resumed.quiet()
    assert groups_of(resumed.log.records, Action.LAUNCH_GROUP) == rig.batch(31)
    assert resumed.state.sampler.cursor == 31
    await resumed.finish()
    assert list(trained_per_step(resumed.history)) == [*range(34)]
    rig.check_end(resumed)


@pytest.mark.parametrize(("per_step", "sizes"), [(2, [2, 1]), (4, [3])])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_fb_29_the_tail_of_an_epoch_is_served_once_and_before_the_next_epoch_opens(
    ram_path: Path, sampler: str, per_step: int, sizes: list[int]
) -> None:
    task = {"prompts": 3, "length": 2, "vocabulary": 3}
    config = tiny_config(prompts_per_step=per_step, **with_sampler({"task": task}, sampler))
    run = Run.create(ram_path / "run", config)
    report = run.first(config)
    assert report.ended == "exhausted"
    order = served(config, build_prompts(config))
    assert sorted(run.trainer.trained.elements()) == sorted(order)
    if sampler == "in_order":
        steps = iter(groups for _, groups in run.trainer.steps)
        for epoch in (order[:3], order[3:]):
            for size in sizes:
                assert next(steps) == sorted(epoch[:size])
                del epoch[:size]
    assert run.audit().ok
    plan = run.plan()
    assert plan.finished
    assert plan.snapshot.loader.exhausted


class TestGroupThatIsGivenUp:
    """FB-36: step 5 needs four groups, no other step may begin, and one of them is lost."""

    def configure(self, rig: Rig, sampler: str, **changes: Any) -> None:
        rig.configure(
            **FOUR,
            sampler={"name": sampler, "window": 0},
            task={"prompts": 36},
            failures={"attempts": 2, "drop_budget": 1},
            **changes,
        )

    @pytest.mark.parametrize("sampler", GATED)
    async def test_fb_36_its_step_goes_without_it_and_the_next_one_is_whole(
        self, memory_rig: Rig, sampler: str
    ) -> None:
        rig = memory_rig
        self.configure(rig, sampler)
        *kept, lost = rig.batch(5)
        run = await rig.launch(started=False)
        run.generator.fail(lost)
        await run.finish()
        steps = trained_per_step(run.history)
        assert steps[5] == sorted(kept)
        assert steps[6] == sorted(rig.batch(6))
        assert lost_on_purpose(run.history) == [lost]
        rig.check_end(run, lost=1)

    @pytest.mark.parametrize("sampler", GATED)
    async def test_fb_36_a_spare_takes_its_place_in_its_own_step(
        self, memory_rig: Rig, sampler: str
    ) -> None:
        rig = memory_rig
        self.configure(rig, sampler, buffer={"spare_prompts": 1})
        run = await rig.launch(started=False)
        # The second batch is held back, so that step 5 is the seventh.
        *kept, lost = rig.batch(6)
        run.generator.fail(lost)
        await run.finish()
        substitute = await run.logged(Action.SUBSTITUTE_GROUP, group=lost)
        assert substitute.args["substitute"] == rig.batch(1)[0]
        assert trained_per_step(run.history)[5] == sorted([*kept, rig.batch(1)[0]])
        rig.check_end(run, lost=1)

    async def test_fb_36_it_is_given_up_once_however_often_that_is_reported(
        self, memory_rig: Rig
    ) -> None:
        """Its rollout fails while the abort of the same stale rollout stands before its slot."""
        rig = memory_rig
        self.configure(rig, "windowed", buffer={"capacity": 8})
        run = await rig.launch(started=False)
        stale = rig.batch(1)[0]
        abort = run.holds.hold(Action.ABORT_STALE)
        run.generator.fail(stale)
        run.generator.finish(*rig.batch(0))
        run.start()
        await run.at(abort)
        run.generator.finish(stale)
        await run.logged(Action.DROP_GROUP, group=stale)
        abort.release()
        await run.logged(Action.SYNC_WEIGHTS, version=1)
        await run.quiet()
        state = run.state
        assert lost_on_purpose(run.history).count(stale) == 1
        assert state.permits.held == run.engine.in_flight + len(state.buffer.ready()) == 8
        await run.finish()
        rig.check_end(run, lost=len(lost_on_purpose(run.history)))

    async def test_fb_36_rollouts_that_are_aborted_as_stale_leave_no_place_in_a_step(
        self, memory_rig: Rig
    ) -> None:
        rig = memory_rig
        self.configure(rig, "windowed", buffer={"capacity": 8})
        run = await rig.launch(started=False)
        run.generator.finish(*rig.batch(0))
        run.start()
        await run.logged(Action.SYNC_WEIGHTS, version=1)
        first, *stale = (
            groups_of([record], Action.COMMIT_ADMISSION)
            for record in run.log.records
            if record.args.get("start_weight") == 0
        )
        assert first == rig.batch(0)
        assert lost_on_purpose(run.history) == [group for groups in stale for group in groups] != []
        assert run.state.shortfall.of(1) == 0
        run.generator.finish_all()
        step = await run.logged(Action.TRAIN_STEP, step=1)
        assert len(groups_of([step], Action.TRAIN_STEP)) == 4
