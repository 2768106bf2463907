"""Public failures of checkpoints that several attempts or owners write, or that land late."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import combinations, count
from pathlib import Path
from typing import Any

import pytest

from cutlock.alphabet import Action
from cutlock.bundle.contents import decode_cut, read_training_info
from cutlock.bundle.files import REAL
from cutlock.bundle.layout import DATA_PLANE, POLICY
from cutlock.bundle.publication import latest, scan
from cutlock.bundle.verification import verify
from cutlock.bundle.writing import BundleWriter
from cutlock.controller.assembly import build_prompts
from cutlock.errors import (
    BundleCorruptError,
    BundleExistsError,
    ConfigError,
    PlaneError,
    SaveError,
)
from cutlock.run.directory import RunDirectory
from cutlock.workers.base import TRAINER_FILE, WEIGHTS_FILE
from tests.support.bundles import fill, sample_cut, sample_info, save
from tests.support.checks import trained
from tests.support.local_runs import Kill, Run, tiny_config
from tests.support.loop import WakingClock
from tests.support.lossy_disk import LossyDisk
from tests.support.power_loss import LOSSES, materialise
from tests.support.rig import Incarnation, Rig

EVERY_STEP = {"every": 1}


class TestTwoAttemptsInOneDirectory:
    """FB-47: A writes its part and B dies; the second attempt writes both, by other names."""

    def first(self, root: Path) -> BundleWriter:
        dead = BundleWriter.begin(root, "run", 7)
        (dead.directory(POLICY) / "a-0.91").write_bytes(b"of the first attempt")
        (dead.directory(DATA_PLANE) / "a-0.91").write_bytes(b"of the first attempt")
        return dead

    def second(self, root: Path) -> Path:
        cut = sample_cut(7)
        writer = BundleWriter.begin(root, "run", 7)
        for part in (POLICY, DATA_PLANE):
            for name in ("a-0.92", "b-0.92"):
                (writer.directory(part) / name).write_bytes(b"of the second attempt")
        fill(writer, cut, sample_info(cut))
        writer.seal(cut.cut_id, rows=True)
        return writer.publish()

    def names(self, bundle: Path) -> set[str]:
        return {path.name for path in bundle.rglob("*-0.9*")}

    @pytest.mark.parametrize("dies", ["in the save", "and its process with it"])
    def test_fb_47_of_two_attempts_a_bundle_holds_the_files_of_the_second_alone(
        self, tmp_path: Path, dies: str
    ) -> None:
        attempt = self.first(tmp_path)
        if dies == "in the save":
            attempt.abandon()
        bundle = self.second(tmp_path)
        assert self.names(bundle) == {"a-0.92", "b-0.92"}
        listed = {file.name for file in verify(bundle).manifest.files}
        assert not any("0.91" in name for name in listed)
        assert not scan(tmp_path).debris

    def test_fb_47_a_file_that_the_manifest_does_not_list_is_never_read(
        self, tmp_path: Path
    ) -> None:
        bundle = self.second(tmp_path)
        (bundle / POLICY / "a-0.91").write_bytes(b"of the first attempt")
        with pytest.raises(BundleCorruptError, match=r"policy/a-0\.91: is on disk, and not in the"):
            verify(bundle)

    async def test_fb_47_of_two_attempts_of_a_run_the_second_is_whole_and_alone(
        self, memory_rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rig = memory_rig
        run = await rig.run_to(1)
        store = rig.harness.bootstrap.store  # type: ignore[attr-defined]
        dump, tries = store.dump_unit, count()

        def unit_1_dies_once(unit: int) -> bytes:
            if unit == 1 and not next(tries):
                raise PlaneError("storage unit 1 died")
            content: bytes = dump(unit)
            return content

        monkeypatch.setattr(store, "dump_unit", unit_1_dies_once)
        run.cut.release()
        await run.logged(Action.FAIL_SAVE, step=1)
        run.controller.request_save()
        bundle = await run.published(1)
        assert next(tries) >= 2
        await rig.check_resume(run, bundle)


class TestFinalisedLater:
    """FB-49: saved at step 10; when the last files are written, the run stands at 12."""

    @pytest.mark.parametrize(
        "when",
        [
            Action.WRITE_POLICY,
            Action.WRITE_SIDECARS,
            Action.WRITE_MANIFEST,
            Action.PUBLISH_BUNDLE,
        ],
        ids=str,
    )
    async def test_fb_49_everything_in_a_bundle_is_of_its_cut_whenever_it_is_written(
        self, memory_rig: Rig, when: Action
    ) -> None:
        rig = memory_rig
        rig.configure(
            prompts_per_step=1, group_size=1, task={"prompts": 16}, buffer={"capacity": 6}
        )
        run = await rig.run_to(10)
        writing = run.holds.hold(when, step=10)
        before = await run.read_cut()
        run.cut.release()
        await run.at(writing)
        state = run.state
        state.step = 12
        state.version.raise_to(12)
        run.generator.finish_all()
        await run.quiet()
        assert state.sampler.cursor > before.cursor
        assert state.loader.position > before.loader.position
        assert state.commits > 10
        writing.release()
        bundle = await run.published(10)
        assert bundle.name == "step_10"
        assert rig.check_bundle(bundle) == before
        info = read_training_info(verify(bundle))
        assert (info.step, info.version, info.cursor) == (10, 10, before.cursor)
        assert info.trained_groups == 10
        await run.crash()
        resumed = await rig.resume(bundle)
        await resumed.finish()
        rig.check_end(resumed, audited=False)  # no run does by itself what was done here

    async def test_fb_49_the_trainer_does_not_train_before_its_save_is_published(
        self, memory_rig: Rig
    ) -> None:
        rig = memory_rig
        rig.configure(prompts_per_step=1, group_size=1, task={"prompts": 16})
        run = await rig.run_to(10)
        writing = run.holds.hold(Action.WRITE_POLICY)
        run.cut.release()
        await run.at(writing)
        run.generator.finish_all()
        await run.quiet()
        assert len(run.state.buffer.ready()) == 2
        assert len(trained(run.log.records)) == 10
        await run.finish()
        rig.check_end(run)


class TestOnePartFails:
    """FB-60: two writers, and the part of the second fails."""

    @pytest.mark.parametrize("part", ["unit 1", "the trainer", "the sidecars"])
    async def test_fb_60_everybody_goes_on_after_the_failure_of_one(
        self, memory_rig: Rig, monkeypatch: pytest.MonkeyPatch, part: str
    ) -> None:
        rig = memory_rig
        rig.configure(checkpoint=EVERY_STEP)
        run = await rig.run_to(1)
        waiting = rig.batch(1)
        break_part(rig, run, part, monkeypatch)
        opened = run.holds.hold(Action.OPEN_CUT, step=1)
        run.cut.release()
        await run.at(opened)
        run.generator.finish(*waiting)
        await run.quiet()
        assert run.state.barrier.waiting == ("group_commit",) * 2
        opened.release()
        failed = await run.logged(Action.FAIL_SAVE, step=1)
        assert "a bad day" in str(failed.args["error"])
        # Those who waited for the cut, the one who saved, and the next save.
        for group in waiting:
            await run.logged(Action.COMMIT_GROUP, group=group)
        await run.published(2)
        assert latest(rig.directory.root).name == "step_2"
        assert (run.state.barrier.slots, run.state.barrier.cut_open) == (0, False)
        await run.finish()
        rig.check_end(run)
        names = [bundle.path.name for bundle in scan(rig.directory.root).bundles]
        assert names == ["step_0", "step_2", "step_3", "step_4"]


def break_part(rig: Rig, run: Incarnation, part: str, patch: pytest.MonkeyPatch) -> None:
    """Let the next write of that part fail, once."""
    store = rig.harness.bootstrap.store  # type: ignore[attr-defined]
    where, name, error = {
        "unit 1": (store, "dump_unit", PlaneError("a bad day")),
        "the trainer": (run.trainer, "save", SaveError("a bad day")),
        "the sidecars": (BundleWriter, "write", SaveError("a bad day")),
    }[part]
    work, left = getattr(where, name), [error]

    def once(*arguments: Any) -> Any:
        if left and (part != "unit 1" or arguments == (1,)):
            raise left.pop()
        return work(*arguments)

    patch.setattr(where, name, once)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Open at the end, or a loop would wait for its thread for ever."""
    made = Gate(monkeypatch)
    yield made
    made.open()


class TestOvertaken:
    """FB-64: an older save is given up, a newer one succeeds, and then the older one goes on."""

    async def test_fb_64_a_cancelled_save_ends_before_its_caller_does(
        self, memory_rig: Rig, gate: Gate
    ) -> None:
        rig = memory_rig
        run = await rig.run_to(1)
        gate.close("rename")
        run.cut.release()
        await gate.reached()
        assert run.task is not None
        run.task.cancel()
        await run.quiet()
        assert not run.task.done()
        assert [path.name for path in rig.directory.root.glob("step_*")] == ["step_0"]
        gate.open()
        await asyncio.wait({run.task})
        assert run.task.cancelled()
        bundle = latest(rig.directory.root)
        assert bundle.name == "step_1"
        await run.crash()
        resumed = await rig.resume(bundle)
        await resumed.finish()
        rig.check_end(resumed)

    async def test_fb_64_a_save_that_is_cancelled_before_its_thread_has_begun_comes_to_nothing(
        self, memory_rig: Rig
    ) -> None:
        rig = memory_rig
        run = await rig.run_to(1)
        publishing = run.holds.hold(Action.PUBLISH_BUNDLE)
        run.cut.release()
        await run.at(publishing)
        await run.crash()
        assert latest(rig.directory.root).name == "step_0"
        resumed = await rig.resume(latest(rig.directory.root))
        await resumed.finish()
        rig.check_end(resumed)
        assert not scan(rig.directory.root).debris

    @pytest.mark.parametrize("stuck_in", ["rename", "sync_directory", "write_file"])
    async def test_fb_64_a_save_that_was_late_is_not_found_after_a_later_one(
        self, memory_rig: Rig, gate: Gate, stuck_in: str
    ) -> None:
        rig, clock = memory_rig, WakingClock()
        rig.sleep = clock.sleep
        rig.configure(checkpoint={"every": 1, "limit_s": 10.0})
        run = await rig.run_to(1)
        gate.close(stuck_in)
        run.cut.release()
        await gate.reached()
        await clock.pass_by(11)  # the save
        await run.logged(Action.FAIL_SAVE, step=1)
        await clock.pass_by(11)  # the removal of what it left
        run.generator.finish(*rig.batch(1))
        later = await run.published(2)
        gate.open()
        await gate.passed()
        await run.finish()
        rig.check_end(run)
        bundles = scan(rig.directory.root).bundles
        assert [b.path.name for b in bundles] == ["step_0", "step_2", "step_3", "step_4"]
        assert verify(later)

    async def test_fb_64_a_part_that_is_late_is_not_written_into_the_next_attempt(
        self, memory_rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two attempts at one step: what the first still writes is not in the second."""
        rig, clock = memory_rig, WakingClock()
        rig.sleep = clock.sleep
        rig.configure(checkpoint={"every": 1, "limit_s": 10.0})
        run = await rig.run_to(4)
        write, directories, writing = run.trainer.save, list[Path](), asyncio.Event()

        async def late_at_first(directory: Path) -> None:
            directories.append(directory)
            writing.set()
            if len(directories) == 1:
                await asyncio.Event().wait()
            await write(directory)

        monkeypatch.setattr(run.trainer, "save", late_at_first)
        sealed = run.holds.hold(Action.PUBLISH_BUNDLE, step=4)
        run.cut.release()
        await writing.wait()
        await clock.pass_by(11)
        await run.logged(Action.FAIL_SAVE, step=4)
        await run.at(sealed)
        # Somewhere a worker that nobody waits for any more gets on with the first attempt.
        for name in (WEIGHTS_FILE, TRAINER_FILE, "shard_of_the_first_attempt"):
            if directories[0].is_dir():
                (directories[0] / name).write_bytes(b"of the first attempt")
        sealed.release()
        await run.finish()
        bundle = latest(rig.directory.root)
        assert bundle.name == "step_4"
        assert verify(bundle)
        assert not list(bundle.rglob("shard_of_the_first_attempt"))
        assert directories[0] != directories[1]


class Gate:
    """When closed, the first such operation on the bundle of step 1 stands still in its thread."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._stands, self._open, self._passed = (threading.Event() for _ in range(3))

    def close(self, operation: str) -> None:
        work = getattr(type(REAL), operation)

        def stand(fs: object, *paths: Any) -> object:
            mine = not self._stands.is_set() and wanted(operation, *paths)
            if mine:
                self._stands.set()
                self._open.wait()
            try:
                return work(fs, *paths)
            finally:
                if mine:
                    self._passed.set()

        self._patch.setattr(type(REAL), operation, stand)

    async def reached(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._stands.wait)

    async def passed(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._passed.wait)

    def open(self) -> None:
        self._open.set()


def wanted(operation: str, path: Path, *more: Any) -> bool:
    """Whether a gate stands here: the publishing, the sync of its name, or one of its files."""
    match operation:
        case "rename":
            return bool(more[0].name == "step_1")
        case "sync_directory":
            return (path / "step_1").exists()
    return "tmp_step_1" in path.parent.name


class TestTwoOwnersOfOneDirectory:
    """FB-70: two processes have the same staging directory and the same final one."""

    TURNS = ("begin", "fill", "seal", "publish")

    def take(self, root: Path, cut_of: dict[str, Any], who: str, writers: dict[str, Any]) -> bool:
        """The next turn of one of them; whether it has published."""
        cut = cut_of[who]
        try:
            match next(writers.setdefault(f"{who} turn", iter(self.TURNS))):
                case "begin":
                    writers[who] = BundleWriter.begin(root, "run", 7)
                case "fill" if who in writers:
                    fill(writers[who], cut, sample_info(cut))
                case "seal" if who in writers:
                    writers[who].seal(cut.cut_id, rows=True)
                case "publish" if who in writers:
                    writers[who].publish()
                    return True
        except (SaveError, BundleExistsError, OSError):
            writers.pop(who, None)
        return False

    def test_fb_70_of_two_who_save_one_step_at_most_one_publishes_and_that_one_is_whole(
        self, ram_path: Path
    ) -> None:
        cuts = {"a": sample_cut(7, dropped=1), "b": sample_cut(7, dropped=2)}
        outcomes: Counter[int] = Counter()
        for number, places in enumerate(combinations(range(8), 4)):
            root, writers, published = ram_path / str(number), dict[str, Any](), []
            for place in range(8):
                who = "a" if place in places else "b"
                if self.take(root, cuts, who, writers):
                    published.append(who)
            outcomes[len(published)] += 1
            assert len(published) <= 1
            for who in published:
                assert decode_cut(verify(root / "step_7")) == cuts[who]
            if not published:
                # Nobody is harmed by that: the step is saved as soon as there is one owner.
                cut = cuts["a"]
                writer = BundleWriter.begin(root, "run", 7)
                fill(writer, cut, sample_info(cut))
                writer.seal(cut.cut_id, rows=True)
                assert verify(writer.publish())
        assert outcomes[1] > 0
        assert outcomes.total() == 70

    def test_fb_70_a_run_has_one_owner(self, tmp_path: Path) -> None:
        config = tiny_config()
        directory = RunDirectory(tmp_path / "run")
        directory.create(config, build_prompts(config))
        another = RunDirectory(tmp_path / "run")
        with (
            directory.lock(),
            pytest.raises(ConfigError, match="another controller runs"),
            another.lock(),
        ):
            pytest.fail("two owners")
        with another.lock():
            pass

    async def test_fb_70_a_final_directory_that_is_there_already_does_not_end_the_run(
        self, memory_rig: Rig
    ) -> None:
        rig = memory_rig
        rig.configure(checkpoint=EVERY_STEP)
        run = await rig.run_to(1)
        save(rig.directory.root, 2, run_id="another run")
        run.cut.release()
        await run.published(1)
        run.generator.finish_all()
        failed = await run.logged(Action.FAIL_SAVE, step=2)
        assert "step_2 is already there" in str(failed.args["error"])
        await run.finish()
        rig.check_end(run)
        found = scan(rig.directory.root, rig.directory.facts().run_id)
        assert [b.path.name for b in found.bundles] == ["step_0", "step_1", "step_3", "step_4"]

    def test_fb_70_a_rename_that_nobody_was_told_of_is_accepted_by_the_next_start(
        self, ram_path: Path
    ) -> None:
        config = tiny_config()
        run = Run.create(ram_path / "run", config)
        kills: list[Kill] = []

        class Renamed:
            """A kill right after the rename, before anything is noted of it."""

            async def reach(self, action: Action, /, **where: Any) -> None:
                if action is Action.PUBLISH_BUNDLE and where["step"] == 2:
                    copy = run.copy(ram_path / "copy")
                    (copy.root / "tmp_step_2").rename(copy.root / "step_2")
                    kills.append(Kill(0, action, copy))

        run.first(config, Renamed())
        (kill,) = kills
        assert kill.run.plan().bundle.name == "step_2"
        kill.run.resume()
        found = kill.run.audit()
        assert found.ok, found.problems
        assert found.trained_once == found.prompts == 10


class TestRenamedAndNotFlushed:
    """FB-82: success is reported, and the power goes."""

    class Deaf(LossyDisk):
        """A disk on which no name is made durable."""

        def sync_directory(self, path: Path) -> None:
            self._operation("sync", path)

    def found_after(self, disk_of: type[LossyDisk], root: Path, target: Path) -> Iterator[str]:
        """What each loss leaves as the latest after a save has said that it succeeded."""
        save(root, 7)
        disk = disk_of(root.parent)
        save(root, 8, fs=disk)
        for number, loss in enumerate(LOSSES):
            found = target / str(number)
            materialise(disk.crash_tree(loss), found)
            bundle = latest(found / root.name, "run")
            verify(bundle)
            yield bundle.name

    def test_fb_82_a_bundle_that_was_reported_is_there_after_any_power_loss(
        self, ram_path: Path
    ) -> None:
        root, target = ram_path / "disk" / "run", ram_path / "after"
        target.mkdir()
        assert {*self.found_after(LossyDisk, root, target)} == {"step_8"}

    def test_fb_82_the_disk_of_this_test_brings_the_old_one_back_if_no_name_is_flushed(
        self, ram_path: Path
    ) -> None:
        root, target = ram_path / "disk" / "run", ram_path / "after"
        target.mkdir()
        assert "step_7" in {*self.found_after(self.Deaf, root, target)}

    def test_fb_82_files_then_their_directories_then_the_rename_then_the_one_above(
        self, ram_path: Path
    ) -> None:
        (ram_path / "run").mkdir()
        disk = LossyDisk(ram_path)
        bundle = save(ram_path / "run", 8, fs=disk)
        *before, rename, last = disk.operations
        assert rename == "rename run/tmp_step_8 -> run/step_8"
        assert last == "sync run"
        parts = [path.relative_to(bundle) for path in bundle.rglob("*")]
        for part in (Path(), *parts):
            assert f"sync {Path('run/tmp_step_8') / part}" in before

    def test_fb_82_what_a_resume_needs_beside_the_bundles_is_flushed_too(
        self, ram_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[Path] = []
        fsync = os.fsync

        def note(descriptor: int) -> None:
            synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", note)
        config = tiny_config(max_steps=0)
        run = Run.create(ram_path / "run", config)
        root = run.root.resolve()
        # A name is flushed when the directory that holds it is, after the file.
        identity = next(path for path in synced if path.name.endswith("run.json"))
        assert root in synced[synced.index(identity) :]
        assert root.parent in synced
        seen: list[int] = []

        class AtPublication:
            async def reach(self, action: Action, /, **where: Any) -> None:
                if action is Action.PUBLISH_BUNDLE:
                    seen.append(len(synced))

        run.first(config, AtPublication())
        log = run.directory.log_path(1).resolve()
        assert {log, log.parent} <= {*synced[: seen[0]]}
        assert synced.index(log.parent) < len(synced[: seen[0]])
