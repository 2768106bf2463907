"""Public failures of writing, publishing and pruning checkpoints."""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click.testing
import pytest
import torch

import cutlock.cli
from cutlock.alphabet import Action
from cutlock.bundle.files import RealFileSystem
from cutlock.bundle.layout import DATA_PLANE, LOADER, MANIFEST, POLICY, STAMP
from cutlock.bundle.publication import DebrisKind, latest, prune, scan
from cutlock.bundle.verification import verify
from cutlock.bundle.writing import BundleWriter
from cutlock.controller.local import build_local
from cutlock.errors import BundleNotFoundError, ConfigError, PlaneError, SaveError, WorkerError
from cutlock.plane.memory import MemoryBootstrap, MemoryPlane, MemoryStore
from cutlock.run.restore import verify_for_resume
from cutlock.run.save import FailedSave
from cutlock.workers.base import POLICY_FILES, WEIGHTS_FILE
from cutlock.workers.torch_trainer import LocalTrainer
from tests.support.bundles import fill, sample_cut, sample_info, save
from tests.support.commands import told
from tests.support.local_runs import Camera, Run, in_one_thread, killed, tiny_config
from tests.support.loop import WakingClock
from tests.support.lossy_disk import LossyDisk, PowerLoss
from tests.support.planes import MemoryHarness, harness_of, take_snapshot
from tests.support.power_loss import Loss, materialise
from tests.support.rig import Incarnation, Rig, rig_on
from tests.support.scripted import Hold
from tests.support.situations import EVERY_STEP

if TYPE_CHECKING:
    from tests.support.real_plane import RealCluster


def resumed_by_command(directory: Path, *arguments: str) -> click.testing.Result:
    runner = click.testing.CliRunner(env={"COLUMNS": "80"})
    result = runner.invoke(cutlock.cli.main, ["resume", str(directory), *arguments])
    assert result.exit_code == 0, result.output
    return result


class TestPointerAheadOfTheData:
    """FB-02: step 1 is complete, one bundle is kept, and the save of step 2 is under way."""

    @pytest.mark.parametrize("loss", [Loss("before", "lost"), Loss("now", "torn")], ids=str)
    def test_fb_02_a_power_loss_anywhere_leaves_one_of_the_two(
        self, ram_path: Path, loss: Loss
    ) -> None:
        template = ram_path / "template"
        save(template / "run", 1)
        found: list[str] = []
        published = 0
        while True:
            base = ram_path / str(len(found))
            shutil.copytree(template, base)
            disk = LossyDisk(base, dies_at=len(found) + 1)
            done: list[Path] = []
            try:
                done.append(save(base / "run", 2, fs=disk))
                prune(base / "run", 1, done[0], disk)
            except PowerLoss:
                after = base.with_suffix(".after")
                materialise(disk.crash_tree(loss), after)
                found.append(verify(latest(after / "run")).path.name)
                published += len(done)
            else:
                break
        assert {*found} == {"step_1", "step_2"}
        assert {*found[-published:]} == {"step_2"}
        assert len(found) - published > 30
        assert published > 10
        assert [path.name for path in (base / "run").iterdir()] == ["step_2"]

    def test_fb_02_a_kill_at_any_action_of_the_save_resumes_from_one_of_the_two(
        self, ram_path: Path
    ) -> None:
        config = tiny_config(epochs=1, checkpoint={"every": 1, "keep": 1})
        run = Run.create(ram_path / "run", config)
        saves = 0

        def third_save(number: int, action: Action, before: int) -> bool:
            nonlocal saves
            saves += action is Action.REQUEST_CUT
            return saves == 3

        camera = Camera(run, ram_path / "killed", third_save)
        run.first(config, camera)
        found = {}
        for kill in camera.kills:
            if kill.action not in found:
                plan = kill.run.plan()
                found[kill.action] = plan.bundle.name
                assert plan.snapshot.step == int(plan.bundle.name.removeprefix("step_"))
        assert found[Action.REQUEST_CUT] == found[Action.PUBLISH_BUNDLE] == "step_1"
        assert found[Action.PRUNE_BUNDLES] == found[Action.TRAIN_STEP] == "step_2"


class FourUnits(MemoryHarness):
    """A store of four writers, whose calls have a limit that a stalled one exceeds."""

    async def start(self) -> None:
        self._store = MemoryStore(4)
        self.bootstrap = MemoryBootstrap(self._store)

    async def connect(self, *, limit_s: float = 60.0) -> MemoryPlane:
        return await super().connect(limit_s=self.short_limit_s)


class TestWriterThatStalls:
    """FB-07: step 2 is saved; in the save of step 4 one writer gets no further and says nothing."""

    async def standing_before_step_4(self, rig: Rig, **changes: Any) -> Incarnation:
        rig.configure(task={"prompts": 12}, checkpoint={"every": 2}, **changes)
        return await rig.run_to(4)

    async def given_up(self, run: Incarnation, writer: str) -> None:
        """The save has failed by name, step 2 is the last bundle, and the run trains on."""
        failure = await run.logged(Action.FAIL_SAVE, step=4)
        assert writer in str(failure.args["error"])
        root = run.rig.directory.root
        assert verify(latest(root)).path.name == "step_2"
        await run.logged(Action.LAUNCH_GROUP, group=run.rig.batch(5)[0])

    async def went_on(self, run: Incarnation) -> None:
        await run.finish()
        assert latest(run.rig.directory.root).name == "step_6"
        run.rig.check_end(run)

    async def test_fb_07_a_storage_unit(self, root: Path) -> None:
        harness = FourUnits()
        await harness.start()
        async with rig_on(root, harness) as rig:
            run = await self.standing_before_step_4(rig, plane={"units": 4})
            stalled = rig.plane_holds.hold("snapshot", "unit", 3)
            run.cut.release()
            await self.given_up(run, "snapshot_rows did not end within")
            stalled.release()
            await self.went_on(run)

    async def test_fb_07_the_trainer(
        self, memory_rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = self.clock(memory_rig)
        run = await self.standing_before_step_4(memory_rig)
        stalled = Hold()
        with monkeypatch.context() as patch:
            patch.setattr(run.trainer, "save", lambda directory: stalled.stand())
            run.cut.release()
            await run.at(stalled)
            await clock.pass_by(299)
            assert run.controller.status().failed_saves == ()
            await clock.pass_by(1)
            await self.given_up(run, "writing the policy had not ended 300 s after")
        await self.went_on(run)

    async def test_fb_07_the_file_system(
        self, memory_rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = self.clock(memory_rig)
        run = await self.standing_before_step_4(memory_rig)
        seals = run.holds.hold(Action.WRITE_MANIFEST, step=4)
        run.cut.release()
        await run.at(seals)
        over = threading.Event()
        try:
            with monkeypatch.context() as patch:
                patch.setattr(BundleWriter, "seal", lambda *arguments, **named: over.wait())
                seals.release()
                await run.quiet()
                await clock.pass_by(300)
                await self.given_up(run, "sealing the bundle had not ended 300 s after")
        finally:
            over.set()
        await self.went_on(run)

    def clock(self, rig: Rig) -> WakingClock:
        clock = WakingClock()
        rig.now, rig.sleep = clock, clock.sleep
        return clock


class TestHalfWrittenLastCheckpoint:
    """FB-26: step 20 is complete; a kill came when the policy of step 25 was written."""

    CONFIG = tiny_config(
        epochs=1,
        checkpoint={"every": 20, "keep": 9},
        task={"prompts": 50, "length": 2, "vocabulary": 8},
    )

    @staticmethod
    def in_the_third_save(number: int, action: Action, before: int) -> bool:
        return action is Action.WRITE_SIDECARS and before == 2

    def test_fb_26_every_restart_uses_the_one_before_it(self, ram_path: Path) -> None:
        run = Run.create(ram_path / "run", self.CONFIG)
        camera = Camera(run, ram_path / "first", self.in_the_third_save)
        run.first(self.CONFIG, camera)
        half = camera.kills[0].run
        assert [path.name for path in (half.root / "tmp_step_25").iterdir()] != []
        assert half.plan().bundle.name == "step_20"
        again = Camera(half, ram_path / "second", lambda number, action, before: number == 9)
        half.resume(stops=again)
        twice = again.kills[0].run
        assert twice.plan().bundle.name == "step_20"
        twice.resume()
        assert twice.plan().bundle.name == "step_25"
        assert twice.audit().ok

    def test_fb_26_the_command_says_what_it_passes_over(self, ram_path: Path) -> None:
        run = Run.create(ram_path / "run", self.CONFIG)
        camera = Camera(run, ram_path / "first", self.in_the_third_save)

        async def shipped() -> None:
            await (await build_local(run.directory, self.CONFIG, stops=camera)).run()

        in_one_thread(shipped())
        half = camera.kills[0].run
        result = resumed_by_command(half.root)
        assert told(result) == (
            "warning: passing over tmp_step_25 (unpublished: a save that has not published)\n"
        )
        assert re.search(r"began with +│ step_20 ", result.stdout)
        assert latest(half.root).name == "step_25"
        assert half.audit().ok


class TestDebrisOfAnInterruptedSave:
    """FB-27: step 10 is complete, and a kill came in the middle of saving step 20."""

    def killed(self, root: Path) -> Run:
        config = tiny_config(
            epochs=1,
            checkpoint={"every": 10, "keep": 9},
            task={"prompts": 50, "length": 2, "vocabulary": 8},
        )
        return killed(root, config, Action.WRITE_MANIFEST, 2)

    def test_fb_27_the_run_saves_that_step_again(self, ram_path: Path) -> None:
        run = self.killed(ram_path)
        assert (run.root / "tmp_step_20" / LOADER).exists()
        assert run.plan().bundle.name == "step_10"
        run.resume()
        names = [bundle.path.name for bundle in scan(run.root).bundles]
        assert names == ["step_0", "step_10", "step_20", "step_25"]
        assert scan(run.root).debris == ()
        assert run.audit().ok

    def test_fb_27_to_name_it_is_an_error(self, ram_path: Path) -> None:
        run = self.killed(ram_path)
        with pytest.raises(BundleNotFoundError, match="tmp_step_20 is temporary and no published"):
            verify_for_resume(run.root / "tmp_step_20", lambda config: pytest.fail("launched"))

    def test_fb_27_a_save_replaces_it_and_says_so(self, tmp_path: Path) -> None:
        cut = sample_cut(20)
        dead = BundleWriter.begin(tmp_path, "run", 20)
        fill(dead, cut, sample_info(cut))
        writer = BundleWriter.begin(tmp_path, "run", 20)
        assert writer.reclaimed == (tmp_path / "tmp_step_20",)
        assert list(writer.path.iterdir()) == []

    def test_fb_27_a_published_name_without_a_manifest_is_no_hindrance_either(
        self, tmp_path: Path
    ) -> None:
        broken = save(tmp_path, 20)
        (broken / MANIFEST).unlink()
        assert verify(save(tmp_path, 20)).path == broken
        assert [debris.kind for debris in scan(tmp_path).debris] == [DebrisKind.ABANDONED]


class TestParticipantsAndTheDirectory:
    """FB-28: four write one checkpoint; one of them does it in a place of its own."""

    async def test_fb_28_all_are_told_one_directory(
        self, memory_rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = await memory_rig.run_to(1)
        told: dict[str, Path] = {}
        for part, name in (
            (run.trainer, "save"),
            (run.state.plane, "snapshot_index"),
            (run.state.plane, "snapshot_rows"),
        ):

            async def listen(path: Path, *more: Any, name: str = name, call: Any = None) -> None:
                told[name] = path
                await call(path, *more)

            original = getattr(part, name)
            monkeypatch.setattr(
                part, name, lambda *a, listen=listen, call=original: listen(*a, call=call)
            )
        run.cut.release()
        await run.published(1)
        place = memory_rig.directory.root / "tmp_step_1"
        assert told == {
            "save": place / POLICY,
            "snapshot_index": place / DATA_PLANE,
            "snapshot_rows": place / DATA_PLANE,
        }

    def test_fb_28_publication_counts_the_parts_that_are_expected(self, tmp_path: Path) -> None:
        cut = sample_cut()
        writer = BundleWriter.begin(tmp_path, "run", cut.step)
        fill(writer, cut, sample_info(cut))
        names = [f"{DATA_PLANE}/units/rank_{rank}" for rank in range(4)]
        for name in names[:3]:
            (writer.path / name).write_bytes(b"shard")
        (tmp_path / "a second later").mkdir()
        (tmp_path / "a second later" / "rank_3").write_bytes(b"shard")
        with pytest.raises(SaveError, match="rank_3 is missing; nothing was published"):
            writer.seal(cut.cut_id, rows=True, parts=names)
        with pytest.raises(BundleNotFoundError):
            latest(tmp_path)

    @pytest.mark.parametrize("name", POLICY_FILES)
    async def test_fb_28_a_file_of_the_trainer_elsewhere_fails_the_save_by_name(
        self, memory_rig: Rig, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        rig = memory_rig
        rig.configure(checkpoint=EVERY_STEP)
        run = await rig.run_to(2)
        write = run.trainer.save

        async def partly_elsewhere(directory: Path) -> Sequence[str]:
            names = await write(directory)
            (directory / name).rename(rig.directory.root / name)
            return names

        with monkeypatch.context() as patch:
            patch.setattr(run.trainer, "save", partly_elsewhere)
            run.cut.release()
            failure = await run.logged(Action.FAIL_SAVE, step=2)
        assert f"{POLICY}/{name} is missing" in str(failure.args["error"])
        assert latest(rig.directory.root).name == "step_1"
        await run.finish()
        rig.check_end(run)

    @pytest.mark.real
    async def test_fb_28_a_file_of_a_storage_unit_elsewhere_fails_the_snapshot_by_name(
        self, real_cluster: RealCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As a unit of another node does whose directory is its own."""
        from cutlock.plane import transfer_queue

        write = transfer_queue.write_concurrently

        async def partly_elsewhere(actor: Any, unit: str, path: str) -> bool:
            written = await write(actor, unit, path)
            if Path(path).name.startswith("su_1_"):
                Path(path).rename(tmp_path / "su_1")
            return written

        async with harness_of(real_cluster) as store:
            plane = await store.connect()
            await plane.put(["a", "b"], {"tokens": [torch.arange(3), torch.arange(5)]})
            with monkeypatch.context() as patch:
                patch.setattr(transfer_queue, "write_concurrently", partly_elsewhere)
                with pytest.raises(PlaneError, match=r"unit .* has written .*su_1_.* is not there"):
                    await take_snapshot(plane, tmp_path / DATA_PLANE)
            assert not (tmp_path / STAMP).exists()
            await take_snapshot(plane, tmp_path / "again")


class TestRotation:
    """FB-31: at most three bundles are kept, and six are saved."""

    def rotated(self, root: Path, steps: range) -> list[int]:
        """Save and prune; return how many bundles of the run there are after each."""
        counts = []
        for step in steps:
            published = save(root, step)
            removed = prune(root, 3, published)
            assert published not in removed
            assert verify(latest(root, "run")).path == published
            counts.append(len(scan(root, "run").bundles))
        return counts

    def test_fb_31_there_are_never_more_than_the_limit(self, ram_path: Path) -> None:
        assert self.rotated(ram_path, range(1, 7)) == [1, 2, 3, 3, 3, 3]
        names = [bundle.path.name for bundle in scan(ram_path).bundles]
        assert names == ["step_4", "step_5", "step_6"]

    def test_fb_31_an_old_checkpoint_with_a_higher_number_pushes_out_none_of_this_run(
        self, ram_path: Path
    ) -> None:
        foreign = save(ram_path, 900, run_id="another run")
        assert self.rotated(ram_path, range(1, 4)) == [1, 2, 3]
        writer = BundleWriter.begin(ram_path, "run", 4)
        writer.abandon()
        assert [bundle.path.name for bundle in scan(ram_path, "run").bundles] == [
            "step_1",
            "step_2",
            "step_3",
        ]
        assert self.rotated(ram_path, range(5, 7)) == [3, 3]
        assert verify(foreign)

    def test_fb_31_steps_that_are_saved_again_count_by_the_order_of_their_saves(
        self, ram_path: Path
    ) -> None:
        """Bundles of this run with higher numbers, left by a resume from before them."""
        assert self.rotated(ram_path, range(7, 10)) == [1, 2, 3]
        assert self.rotated(ram_path, range(1, 4)) == [3, 3, 3]
        names = [bundle.path.name for bundle in scan(ram_path).bundles]
        assert names == ["step_1", "step_2", "step_3"]

    def test_fb_31_to_keep_none_is_refused(self, ram_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"checkpoint\.keep = 0"):
            tiny_config(checkpoint={"keep": 0})
        published = save(ram_path, 1)
        with pytest.raises(ConfigError, match="keep is 0, which leaves no bundle"):
            prune(ram_path, 0, published)
        assert verify(published)

    async def test_fb_31_a_run_prunes_after_it_has_published(self, memory_rig: Rig) -> None:
        rig = memory_rig
        rig.configure(task={"prompts": 10}, checkpoint={"every": 1, "keep": 3})
        run = await rig.launch()
        await run.finish()
        kept, counts = 0, []
        for record in run.log.records:
            if record.action == Action.PUBLISH_BUNDLE:
                kept += 1
            if record.action == Action.PRUNE_BUNDLES:
                kept -= len(record.args["bundles"])  # type: ignore[arg-type]
                counts.append(kept)
        assert counts == [1, 2, 3, 3, 3, 3]


class Vanishing(RealFileSystem):
    """A disk from which somebody else removes what is to be renamed."""

    def rename(self, old: Path, new: Path) -> None:
        shutil.rmtree(old)
        super().rename(old, new)


class TestSaveThatFailsInTheBackground:
    """FB-33: step 1 is complete, one bundle is kept, and the save of step 2 fails."""

    @contextlib.contextmanager
    def slow_storage(self, monkeypatch: pytest.MonkeyPatch, step: int) -> Iterator[None]:
        """The policy of this save cannot be written."""
        save_policy = LocalTrainer.save

        async def fail(trainer: LocalTrainer, directory: Path) -> None:
            if directory.parent.name == f"tmp_step_{step}":
                raise WorkerError(f"{WEIGHTS_FILE} took too long")
            await save_policy(trainer, directory)

        with monkeypatch.context() as patch:
            patch.setattr(LocalTrainer, "save", fail)
            yield

    async def test_fb_33_it_is_told_at_once_and_the_bundle_before_it_stays_until_the_next(
        self, memory_rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rig = memory_rig
        rig.configure(checkpoint={"every": 1, "keep": 1})
        root = rig.directory.root
        with self.slow_storage(monkeypatch, 2):
            run = await rig.run_to(2)
            third = run.holds.hold(Action.REQUEST_CUT, step=3)
            run.cut.release()
            run.generator.finish_all()
            await run.at(third)
        failed = (FailedSave(2, f"{WEIGHTS_FILE} took too long"),)
        assert run.controller.status().failed_saves == failed
        assert verify(latest(root)).path.name == "step_1"
        third.release()
        await run.published(3)
        report = await run.finish()
        assert report.failed_saves == failed
        assert [bundle.path.name for bundle in scan(root).bundles] == ["step_4"]
        rig.check_end(run)

    def test_fb_33_the_command_says_it_at_the_end(
        self, ram_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = tiny_config(checkpoint={"every": 1, "keep": 1})
        run = Run.create(ram_path / "run", config)
        camera = Camera(run, ram_path, lambda number, action, before: number == 40)

        async def shipped() -> None:
            await (await build_local(run.directory, config, stops=camera)).run()

        in_one_thread(shipped())
        with self.slow_storage(monkeypatch, 2):
            result = resumed_by_command(camera.kills[0].run.root)
        assert told(result) == (
            f"warning: the save of step 2 failed: {WEIGHTS_FILE} took too long\n"
        )

    def test_fb_33_to_remove_what_is_gone_is_no_error(self, tmp_path: Path) -> None:
        gone, published = save(tmp_path, 1), save(tmp_path, 3)
        assert prune(tmp_path, 1, published, Vanishing()) == (gone,)
        assert [path.name for path in tmp_path.iterdir()] == ["step_3"]
