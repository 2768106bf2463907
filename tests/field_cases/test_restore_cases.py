"""Public failures of a resume: from zero, from the wrong place, with something missing."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutlock.alphabet import Action
from cutlock.barrier import Barrier
from cutlock.bundle.layout import DATA_PLANE, LOADER, MANIFEST, POLICY, SIDECARS, TRAINING_INFO
from cutlock.bundle.publication import latest
from cutlock.controller.assembly import build_prompts
from cutlock.errors import (
    BundleCorruptError,
    BundleNotFoundError,
    CapacityError,
    ConfigError,
    ConfigMismatchError,
    PlaneError,
)
from cutlock.loader import PromptLoader, epoch_order
from cutlock.plane.memory import MemoryBootstrap
from cutlock.records import LoaderState, canonical_json
from cutlock.run.restore import verify_for_resume
from cutlock.workers.base import OPTIMIZER_FILE, TRAINER_FILE, WEIGHTS_FILE, Prompt
from cutlock.workers.prompts import ReverseTask
from cutlock.workers.torch_trainer import TorchTrainer, read_state, write_state
from tests.support.bundles import reseal
from tests.support.checks import groups_of, trained, trained_per_step
from tests.support.local_runs import Camera, Run, killed, tiny_config
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
        return killed(root, config, Action.TRAIN_STEP, 11)

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
        bundle = await run.save_and_crash(1)
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
        bundle = await run.save_and_crash(2)
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
    bundle = await run.save_and_crash(3)
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
    bundle = await run.save_and_crash(5)
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
    bundle = await run.save_and_crash(1)
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
        bundle = await run.save_and_crash(1)
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
        await run.commit(*finished)
        await run.at(run.pump_hold)
        bundle = await run.save_and_crash(6)

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


class Trace:
    """Leaves a trace when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self._path,)


class TestSideFileThatRunsCode:
    """FB-68: a file beside the weights leaves a trace when it is unpickled."""

    @pytest.fixture
    def trace(self, tmp_path: Path) -> Path:
        path = tmp_path / "trace"
        pickle.loads(pickle.dumps(Trace(path)))
        assert path.exists()  # it can
        path.unlink()
        return path

    @pytest.mark.parametrize("name", [*SIDECARS, TRAINING_INFO])
    async def test_fb_68_a_pickle_in_place_of_a_side_file_is_refused_before_it_does_anything(
        self, memory_rig: Rig, trace: Path, name: str
    ) -> None:
        bundle = await self.saved(memory_rig)
        self.plant(bundle / name, trace)
        reseal(bundle)  # as one would do it who may write the directory
        with pytest.raises(BundleCorruptError, match=name):
            memory_rig.plan(bundle)
        assert not trace.exists()

    @pytest.mark.parametrize("name", [OPTIMIZER_FILE, WEIGHTS_FILE, TRAINER_FILE])
    @pytest.mark.parametrize("default", ["", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"])
    @pytest.mark.parametrize("how", ["pickle", "torch.save"])
    def test_fb_68_a_policy_file_with_code_is_refused_whatever_the_library_s_default_is(
        self,
        tmp_path: Path,
        trace: Path,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        default: str,
        how: str,
    ) -> None:
        if default:
            monkeypatch.setenv(default, "1")
        policy = tmp_path / POLICY
        policy.mkdir()
        write_state(policy, TorchTrainer(ReverseTask(4).shape).capture())
        self.plant(policy / name, trace, how)
        with pytest.raises(BundleCorruptError, match=name):
            read_state(policy)
        assert not trace.exists()

    def test_fb_68_the_planted_file_would_run_where_the_default_is_trusted(
        self, tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
        torch.save(Trace(trace), tmp_path / "file")
        with pytest.warns(UserWarning, match="forcing weights_only=False"):
            torch.load(tmp_path / "file")
        assert trace.exists()

    @pytest.mark.parametrize("file", ["unit_0.safetensors", "controller_state.msgpack"])
    async def test_fb_68_a_pickle_in_place_of_rows_is_refused_before_it_does_anything(
        self, memory_rig: Rig, trace: Path, file: str
    ) -> None:
        rows = await self.saved(memory_rig) / DATA_PLANE
        self.plant(rows / file, trace)
        with pytest.raises(PlaneError, match="cannot load"):
            await MemoryBootstrap().load(rows)
        assert not trace.exists()

    async def saved(self, rig: Rig) -> Path:
        run = await rig.run_to(1)
        await run.commit(*rig.batch(1))
        return await run.save_and_crash(1)

    def plant(self, path: Path, trace: Path, how: str = "pickle") -> None:
        assert path.exists()
        if how == "pickle":
            path.write_bytes(pickle.dumps(Trace(trace)))
        else:
            torch.save({"state": Trace(trace)}, path)


class TestResumeWithoutTheBuffer:
    """FB-74: 2 and 3 are finished, the loader is at 4, and the rows are not to be restored."""

    async def saved(self, rig: Rig) -> tuple[Incarnation, Path]:
        rig.configure(prompts_per_step=1, group_size=2, sampler={"window": 1})

        async def four_are_out(run: Incarnation) -> None:
            run.pump_hold = run.holds.hold(Action.RESERVE_BATCH, skip=4)

        run = await rig.run_to(2, four_are_out)
        finished = rig.served[2:4]
        await run.commit(*finished)
        bundle = await run.save_and_crash(2)
        snapshot = rig.check_bundle(bundle)
        assert [entry.group_id for entry in snapshot.index] == finished
        assert snapshot.loader.position == 4
        return run, bundle

    async def test_fb_74_finished_prompts_are_generated_again_and_no_old_row_is_there(
        self, memory_rig: Rig
    ) -> None:
        rig = memory_rig
        _, bundle = await self.saved(rig)
        old = {key for entry in rig.plan(bundle).snapshot.index for key in entry.row_keys}
        resumed = await rig.resume(bundle, with_rows=False, started=False)
        assert resumed.loaded == []
        assert len(resumed.state.buffer) == 0
        owed = resumed.state.ledger.admitted()
        assert [record.group_id for record in owed] == rig.served[2:4]
        gate = resumed.holds.hold(Action.RESERVE_BATCH)
        resumed.start()
        await resumed.at(gate)
        await resumed.quiet()
        # Exactly these two, once, and after the restored weights have been handed over.
        assert groups_of(resumed.log.records, Action.LAUNCH_GROUP) == rig.served[2:4]
        assert resumed.generator.versions == [2]
        order = [record.action for record in resumed.log.records]
        assert order.index(Action.SYNC_WEIGHTS) < order.index(Action.LAUNCH_GROUP)
        await resumed.commit(*rig.served[2:4])
        gate.release()
        await resumed.finish()
        store = rig.harness.bootstrap.store  # type: ignore[attr-defined]
        assert not old & {*store.indexes}
        assert not any(store.units)
        assert resumed.generator.calls == 6
        rig.check_end(resumed)

    @pytest.mark.parametrize("file", ["unit_0.safetensors", "controller_state.msgpack"])
    async def test_fb_74_the_bundle_is_verified_first_with_the_rows_that_are_not_wanted(
        self, memory_rig: Rig, file: str
    ) -> None:
        _, bundle = await self.saved(memory_rig)
        path = bundle / DATA_PLANE / file
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(BundleCorruptError, match=f"data_plane/{file}"):
            await memory_rig.resume(bundle, with_rows=False)


class TestBuildThenLoadThenPull:
    """FB-89: three prompts are consumed in the saved state."""

    @pytest.mark.parametrize("prompts", [7, 8, 9])
    async def test_fb_89_a_resume_through_the_real_constructors_goes_on_at_the_fourth_prompt(
        self, memory_rig: Rig, prompts: int
    ) -> None:
        rig = memory_rig
        rig.configure(prompts_per_step=3, task={"prompts": prompts})

        async def three_are_out(run: Incarnation) -> None:
            run.pump_hold = run.holds.hold(Action.RESERVE_BATCH, skip=1)

        run = await rig.run_to(1, three_are_out)
        bundle = await run.save_and_crash(1)
        assert rig.check_bundle(bundle).loader.position == 3
        resumed = await rig.resume(bundle)
        await resumed.finish()
        steps = trained_per_step(resumed.log.records)
        rest = [rig.served[place : place + 3] for place in range(3, prompts, 3)]
        assert steps == {step: sorted(groups) for step, groups in enumerate(rest, 1)}
        rig.check_end(resumed)

    def test_fb_89_a_loader_pulls_nothing_while_it_is_built_and_loaded(self) -> None:
        pulled: list[int] = []

        class Watched(ReverseTask):
            def __getitem__(self, position: int) -> Prompt:
                pulled.append(position)
                return super().__getitem__(position)

        def build() -> PromptLoader:
            return PromptLoader(Barrier(), Watched(8), batch_size=3, epochs=1, seed=0)

        first, second = build(), build()
        with entered(first._barrier.mutation("advance")) as slot:
            first.next_batch(slot)
        with entered(first._barrier.checkpoint()) as cut:
            state = first.snapshot(cut)
        pulled.clear()
        with entered(second._barrier.mutation("restore")) as slot:
            second.restore(slot, state)
        assert pulled == []
        with entered(second._barrier.mutation("advance")) as slot:
            batch = second.next_batch(slot)
        assert batch is not None
        assert pulled == [o.position for o in batch.occurrences] == epoch_order(8, 0, 0)[3:6]
