"""Public failures of a resume: from zero, from the wrong place, with something missing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutlock.alphabet import Action
from cutlock.barrier import Barrier
from cutlock.bundle.artifacts import LOADER, MANIFEST
from cutlock.bundle.publication import latest
from cutlock.controller.assembly import build_prompts
from cutlock.controller.loader import PromptLoader, epoch_order
from cutlock.controller.restore import verify_for_resume
from cutlock.errors import (
    BundleCorruptError,
    BundleNotFoundError,
    CapacityError,
    ConfigError,
    ConfigMismatchError,
)
from cutlock.records import LoaderState, canonical_json
from cutlock.workers.task import ReverseTask
from tests.support.bundles import reseal
from tests.support.checks import groups_of, trained, trained_per_step
from tests.support.local_runs import Camera, Run, tiny_config
from tests.support.loop import entered
from tests.support.rig import Incarnation, Rig, config_of
from tests.support.situations import SAMPLERS, with_sampler


class TestResumeThatFindsNoPointer:
    """FB-03: bundles of steps 5 and 10, and nothing that points to one of them."""

    def killed(self, root: Path) -> Run:
        config = tiny_config(
            epochs=1,
            checkpoint={"every": 5, "keep": 9},
            task={"prompts": 24, "length": 2, "vocabulary": 5},
        )
        run = Run.create(root / "run", config)
        camera = Camera(
            run,
            root / "killed",
            lambda number, action, before: action is Action.TRAIN_STEP and before == 11,
        )
        run.first(config, camera)
        return camera.kills[0].run

    def test_fb_03_a_resume_needs_none(self, ram_path: Path) -> None:
        run = self.killed(ram_path)
        assert sorted(p.name for p in run.root.glob("step_*")) == ["step_0", "step_10", "step_5"]
        assert run.plan().bundle.name == "step_10"
        run.resume()
        assert [step for step, _ in run.trainer.steps] == [*range(12)]
        assert run.audit().ok

    def test_fb_03_without_a_bundle_it_stops_and_starts_nothing_from_zero(
        self, ram_path: Path
    ) -> None:
        run = self.killed(ram_path)
        for manifest in run.root.glob(f"step_*/{MANIFEST}"):
            manifest.unlink()
        before = sorted(run.root.rglob("*"))
        with pytest.raises(BundleNotFoundError, match=r"step_0 .*step_10 .*step_5 "):
            run.plan()
        config = tiny_config()
        with pytest.raises(ConfigError, match=r"already holds a run; go on .*resume"):
            run.directory.create(config, build_prompts(config))
        assert sorted(run.root.rglob("*")) == before

    def test_fb_03_options_that_do_not_go_together_are_refused_before_the_start(self) -> None:
        with pytest.raises(CapacityError, match="below the 6 groups that sampler 'in_order' needs"):
            tiny_config(sampler={"name": "in_order", "window": 2}, buffer={"capacity": 4})


class TestOversampledPrompts:
    """FB-04: four of eight prompts have been taken, and two of them trained, at the save."""

    async def saved(self, rig: Rig, *finished: int) -> Path:
        async def read_four(run: Incarnation) -> None:
            run.pump_hold = run.holds.hold(Action.RESERVE_BATCH, skip=2)

        run = await rig.run_to(1, read_four)
        for number in finished:
            run.generator.finish(rig.served[number])
            await run.logged(Action.COMMIT_GROUP, group=rig.served[number])
        await run.at(run.pump_hold)
        run.cut.release()
        bundle = await run.published(1)
        await run.crash()
        cut = rig.check_bundle(bundle)
        assert (cut.step, cut.loader.position) == (1, 4)
        return bundle

    @pytest.mark.parametrize("sampler", SAMPLERS)
    @pytest.mark.parametrize("finished", [(), (2,), (2, 3)], ids=str)
    async def test_fb_04_the_other_two_are_trained_before_the_fifth(
        self, memory_rig: Rig, sampler: str, finished: tuple[int, ...]
    ) -> None:
        rig = memory_rig
        rig.configure(**with_sampler({"group_size": 1}, sampler))
        bundle = await self.saved(rig, *finished)
        resumed = await rig.resume(bundle, started=False)
        resumed.generator.finish(*rig.served[2:4])
        resumed.start()
        await resumed.logged(Action.TRAIN_STEP, step=1)
        assert sorted(trained(resumed.log.records)) == sorted(rig.served[2:4])
        await resumed.finish()
        rig.check_end(resumed)

    async def test_fb_04_prompts_that_are_held_back_are_saved_too(self, memory_rig: Rig) -> None:
        rig = memory_rig
        rig.configure(group_size=1, buffer={"spare_prompts": 1})
        bundle = await self.saved(rig)
        spares = [spare.key for spare in rig.plan(bundle).snapshot.spare_pool]
        assert spares == rig.served[2:4]
        resumed = await rig.resume(bundle)
        await resumed.finish()
        rig.check_end(resumed)

    async def test_fb_04_a_loader_that_has_served_all_serves_nothing_after_a_resume(
        self, memory_rig: Rig
    ) -> None:
        rig = memory_rig
        rig.configure(group_size=1)
        run = await rig.run_to(2)
        await run.logged(Action.RESERVE_BATCH, admission=3)
        run.cut.release()
        bundle = await run.published(2)
        await run.crash()
        assert rig.plan(bundle).snapshot.loader.exhausted
        resumed = await rig.resume(bundle)
        await resumed.finish()
        assert not groups_of(resumed.log.records, Action.RESERVE_BATCH)
        rig.check_end(resumed)
        last = latest(rig.directory.root)
        assert last.name == "step_4"
        assert rig.plan(last).finished

    async def test_fb_04_a_file_of_another_schema_is_refused_and_not_read_with_gaps(
        self, memory_rig: Rig
    ) -> None:
        bundle = await self.saved(memory_rig)
        file = bundle / LOADER
        content = msgspec.msgpack.decode(file.read_bytes())
        del content["payload"]["exhausted"]
        file.write_bytes(msgspec.msgpack.encode({**content, "schema": 0}))
        reseal(bundle)
        says = f"{LOADER}: schema 0 was found and schema 1 is what is read here"
        with pytest.raises(BundleCorruptError, match=says):
            memory_rig.plan(bundle)


@pytest.mark.parametrize("sampler", SAMPLERS)
async def test_fb_05_a_checkpoint_between_two_epochs_resumes_into_the_second(
    memory_rig: Rig, sampler: str
) -> None:
    """Three steps per epoch, saved at step 3 with nothing read of the second epoch."""
    rig = memory_rig
    rig.configure(**with_sampler({"task": {"prompts": 6}, "epochs": 2}, sampler))

    async def one_epoch(run: Incarnation) -> None:
        run.pump_hold = run.holds.hold(Action.RESERVE_BATCH, skip=3)

    run = await rig.run_to(3, one_epoch)
    run.cut.release()
    bundle = await run.published(3)
    await run.crash()
    plan = rig.plan(bundle)
    assert plan.snapshot.loader == LoaderState(epoch=1, position=0, exhausted=False, inner=None)
    assert not plan.finished
    resumed = await rig.resume(bundle)
    report = await resumed.finish()
    assert [step.step for step in report.steps] == [3, 4, 5]
    rig.check_end(resumed)


class Loaders:
    """One loader after the other, each restored from what the one before it saved."""

    def __init__(self, prompts: int, epochs: int = 1, batch_size: int = 1) -> None:
        self._arguments = {"batch_size": batch_size, "epochs": epochs, "seed": 0}
        self._prompts = ReverseTask(prompts)
        self.order = [
            (epoch, position)
            for epoch in range(epochs)
            for position in epoch_order(prompts, epoch, 0)
        ]
        self.served: list[tuple[int, int]] = []
        self._loader = self._new()

    def _new(self) -> PromptLoader:
        return PromptLoader(Barrier(), self._prompts, **self._arguments)

    def serve(self, batches: int) -> None:
        for _ in range(batches):
            with entered(self._loader._barrier.mutation("advance")) as slot:
                batch = self._loader.next_batch(slot)
                if batch is None:
                    return
                self.served += [(o.epoch, o.position) for o in batch.occurrences]
                if batch.ends_epoch:
                    self._loader.raise_epoch(slot)

    def resume(self) -> LoaderState:
        """Save, and go on with a new loader that has read what was saved."""
        with entered(self._loader._barrier.checkpoint()) as cut:
            saved = self._loader.snapshot(cut)
        state = msgspec.json.decode(canonical_json(saved), type=LoaderState)
        self._loader = self._new()
        with entered(self._loader._barrier.mutation("restore")) as slot:
            self._loader.restore(slot, state)
        return state


def test_fb_17_a_second_resume_in_an_epoch_goes_on_at_the_sum_of_both() -> None:
    loaders = Loaders(100)
    loaders.serve(30)
    assert loaders.resume().position == 30
    loaders.serve(10)
    assert loaders.resume().position == 40
    loaders.serve(1)
    assert loaders.served == loaders.order[:41]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_fb_17_the_position_never_goes_back_over_any_number_of_resumes(counts: list[int]) -> None:
    loaders = Loaders(7, epochs=2, batch_size=2)
    places = []
    for count in counts:
        loaders.serve(count)
        state = loaders.resume()
        places.append((state.epoch, state.position))
        assert state.epoch * 7 + state.position == len(loaders.served)
    assert places == sorted(places)
    assert loaders.served == loaders.order[: len(loaders.served)]


def test_fb_17_a_run_that_is_killed_twice_in_an_epoch_serves_all_of_it_once(
    ram_path: Path,
) -> None:
    config = tiny_config(epochs=1, task={"prompts": 12, "length": 2, "vocabulary": 4})
    run = Run.create(ram_path / "run", config)
    for start, steps in enumerate((2, 1)):
        camera = Camera(
            run,
            ram_path / str(start),
            lambda number, action, before, steps=steps: (
                (action, before) == (Action.TRAIN_STEP, steps)
            ),
        )
        if start:
            run.resume(stops=camera)
        else:
            run.first(config, camera)
        run = camera.kills[0].run
    assert run.plan().snapshot.step == 3
    run.resume()
    assert [step for step, _ in run.trainer.steps] == [*range(6)]
    assert run.audit().ok
    assert run.audit().restarts == 2


@pytest.mark.parametrize("listed", [True, False])
async def test_fb_39_a_checkpoint_without_the_position_of_its_data_is_refused(
    memory_rig: Rig, listed: bool
) -> None:
    """Whether its manifest still lists the file, or was made without it."""
    rig = memory_rig
    rig.configure(task={"prompts": 14})
    run = await rig.run_to(5)
    run.cut.release()
    bundle = await run.published(5)
    await run.crash()
    (bundle / LOADER).unlink()
    if not listed:
        reseal(bundle)
    with pytest.raises(BundleCorruptError, match=f"step_5: {LOADER}: .* step_0"):
        rig.plan(bundle)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4])
def test_fb_39_a_resume_skips_as_much_as_was_served_also_where_the_data_starts_again(
    batch_size: int,
) -> None:
    for batches in range(10):
        loaders = Loaders(3, epochs=3, batch_size=batch_size)
        loaders.serve(batches)
        loaders.resume()
        loaders.serve(10)
        assert loaders.served == loaders.order


async def test_fb_39_a_restore_takes_nothing_from_the_loader_or_the_generators(
    memory_rig: Rig,
) -> None:
    rig = memory_rig
    run = await rig.run_to(1)
    run.cut.release()
    bundle = await run.published(1)
    await run.crash()
    resumed = await rig.resume(bundle, started=False)
    await resumed.quiet()
    cut = await resumed.read_cut()
    assert cut == rig.plan(bundle).snapshot
    assert resumed.generator.calls == 0
    assert not groups_of(resumed.log.records, Action.RESERVE_BATCH, Action.LAUNCH_GROUP)


class TestAnotherDataSet:
    """FB-41: saved after four of eight prompts, resumed with another data set."""

    OTHERS = pytest.mark.parametrize(
        "other", [{"prompts": 6}, {"prompts": 3}, {"prompts": 8, "length": 2}], ids=str
    )
    """Shorter, shorter than the position, and other prompts."""

    async def saved(self, rig: Rig) -> Path:
        async def read_four(run: Incarnation) -> None:
            run.holds.hold(Action.RESERVE_BATCH, skip=2)

        run = await rig.run_to(1, read_four)
        run.cut.release()
        bundle = await run.published(1)
        await run.crash()
        assert rig.plan(bundle).snapshot.loader.position == 4
        return bundle

    @OTHERS
    async def test_fb_41_it_is_refused_with_both_under_the_saved_configuration(
        self, memory_rig: Rig, other: dict[str, int]
    ) -> None:
        """As a data set of a user's own is that has changed since."""
        bundle = await self.saved(memory_rig)
        prompts = build_prompts(config_of(memory_rig.kind, task=other))
        says = f"the data set was .*8 prompts .* and is .*{len(prompts)} prompts"
        with pytest.raises(ConfigMismatchError, match=says):
            verify_for_resume(bundle, lambda config: prompts)

    @OTHERS
    async def test_fb_41_a_configuration_that_makes_another_one_is_refused_with_both(
        self, memory_rig: Rig, other: dict[str, int]
    ) -> None:
        bundle = await self.saved(memory_rig)
        with pytest.raises(ConfigMismatchError, match=r" was (8|3) when .* and is (6|3|2) now"):
            memory_rig.plan(bundle, config_of(memory_rig.kind, task=other))


class TestHalfFilledStep:
    """FB-44: two of the four groups of step 6 are finished at the save."""

    @pytest.mark.parametrize("with_rows", [True, False])
    @pytest.mark.parametrize("sampler", SAMPLERS)
    async def test_fb_44_it_is_filled_with_its_own_prompts_while_the_loader_stands_still(
        self, memory_rig: Rig, sampler: str, with_rows: bool
    ) -> None:
        rig = memory_rig
        changes = {"prompts_per_step": 4, "group_size": 1, "task": {"prompts": 36}}
        rig.configure(**with_sampler(changes, sampler))

        async def seven_batches(run: Incarnation) -> None:
            run.pump_hold = run.holds.hold(Action.RESERVE_BATCH, skip=7)

        run = await rig.run_to(6, seven_batches)
        finished, missing = rig.batch(6)[:2], rig.batch(6)[2:]
        run.generator.finish(*finished)
        for group in finished:
            await run.logged(Action.COMMIT_GROUP, group=group)
        await run.at(run.pump_hold)
        run.cut.release()
        bundle = await run.published(6)
        await run.crash()

        resumed = await rig.resume(bundle, with_rows=with_rows, started=False)
        resumed.pump_hold = resumed.holds.hold(Action.RESERVE_BATCH)
        resumed.generator.finish(*rig.batch(6))
        resumed.start()
        await resumed.logged(Action.TRAIN_STEP, step=6)
        assert trained_per_step(resumed.log.records) == {6: sorted(rig.batch(6))}
        launched = groups_of(resumed.log.records, Action.LAUNCH_GROUP)
        assert launched == (missing if with_rows else [*finished, *missing])
        assert resumed.state.loader.position == 28
        await resumed.finish()
        rig.check_end(resumed)
