"""Saves that fail, and saves that are asked for at a bad moment."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError

from cutlock.alphabet import Action
from cutlock.bundle.files import REAL
from cutlock.bundle.publication import latest, scan
from cutlock.bundle.writing import BundleWriter
from cutlock.errors import (
    PlaneError,
    SaveError,
    WorkerError,
)
from cutlock.events import read_log
from tests.support.checks import WINDOW
from tests.support.loop import WakingClock
from tests.support.rig import LIMIT_S, Incarnation, Rig
from tests.support.scripted import HangingDisk, RefusingDisk
from tests.support.situations import (
    EVERY_STEP,
)


async def test_a_save_is_published_while_the_trainer_waits_for_a_group_that_never_comes(
    rig: Rig,
) -> None:
    missing, other = rig.batch(1)
    run = await rig.launch()
    await run.published(0)
    run.generator.finish(*rig.batch(0), other)
    await run.logged(Action.COMMIT_GROUP, group=other)
    await run.logged(Action.SYNC_WEIGHTS, version=1)
    await run.quiet()
    assert run.controller.status().waiting_for == "2 groups of step 1"
    run.controller.request_save()
    bundle = await run.published(1)
    snapshot = rig.check_bundle(bundle)
    assert [entry.group_id for entry in snapshot.index] == [other]
    assert missing in [record.group_id for record in snapshot.ledger]
    await rig.check_resume(run, bundle)


FAILURES = ("rows of the plane", "index of the plane", "list of the plane", "policy")


@pytest.mark.parametrize("part", FAILURES)
async def test_a_save_that_fails_leaves_the_run_going_and_the_last_bundle_in_place(
    rig: Rig, part: str
) -> None:
    rig.configure(checkpoint=EVERY_STEP)
    run = await rig.run_to(2)
    with fails(run, part):
        run.cut.release()
        await run.logged(Action.FAIL_SAVE, step=2)
    root = rig.directory.root
    assert latest(root).name == "step_1"
    assert rig.plan(root / "step_1").snapshot.step == 1
    await run.finish()
    rig.check_end(run)
    assert not (root / "tmp_step_2").exists()
    assert [bundle.path.name for bundle in scan(root).bundles] == [
        "step_0",
        "step_1",
        "step_3",
        "step_4",
    ]


@contextlib.contextmanager
def fails(run: Incarnation, part: str) -> Iterator[None]:
    """Let a part of every save fail."""
    error: Exception = PlaneError("the store has a bad day")
    where, name = {
        "rows of the plane": (run.state.plane, "snapshot_rows"),
        "index of the plane": (run.state.plane, "snapshot_index"),
        "list of the plane": (run.state.plane, "list_keys"),
        "policy": (run.trainer, "save"),
    }[part]
    if part == "policy":
        error = WorkerError("the trainer has a bad day")

    async def fail(*arguments: object) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, fail)
        yield


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES])
async def test_whatever_the_disk_refuses_the_run_goes_on_and_the_last_bundle_stays(
    memory_rig: Rig, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """One save per step; of the n-th the disk refuses the n-th operation, and what follows."""
    rig = memory_rig
    rig.configure(task={"prompts": 120}, checkpoint={"every": 1, "failures_in_a_row": 100})
    run = await rig.launch(started=False)
    first_step = run.holds.hold(Action.TRAIN_STEP)
    run.generator.finish_all()
    run.start()
    await run.published(0)
    await run.at(first_step)
    begin = BundleWriter.begin
    disks: list[Any] = []

    def on_a_refusing_disk(root: Path, run_id: str, step: int, **more: Any) -> BundleWriter:
        if disks:
            disks[-1].mend()
        disks.append(RefusingDisk(len(disks) + 1, code))
        return begin(root, run_id, step, disks[-1], **more)

    monkeypatch.setattr(BundleWriter, "begin", on_a_refusing_disk)
    first_step.release()
    await run.finish()
    rig.check_end(run)
    refused = [r for r in run.log.records if r.action == Action.FAIL_SAVE]
    refused_steps = [r.args["step"] for r in refused]
    assert all(os.strerror(code) in str(r.args["error"]) for r in refused)
    published = [r.args["step"] for r in run.log.records if r.action == Action.PUBLISH_BUNDLE]
    assert len(refused_steps) > 20
    assert refused_steps == list(range(1, len(refused_steps) + 1))
    assert sorted([*refused_steps, *published]) == list(range(61))
    assert [bundle.manifest.step for bundle in scan(rig.directory.root).bundles] == published
    assert scan(rig.directory.root).debris == ()


async def test_while_the_log_cannot_be_written_saves_fail_and_nothing_of_it_is_lost(
    memory_rig: Rig,
) -> None:
    """A disk that is full for everything: for the log and the metrics too."""
    rig = memory_rig
    rig.configure(checkpoint={"every": 1, "failures_in_a_row": 100})
    run = await rig.run_to(2)
    write, full = os.write, [True]

    def as_room_is(descriptor: int, data: bytes) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", as_room_is)
        run.cut.release()
        failed = await run.logged(Action.FAIL_SAVE, step=2)
        assert "the event log cannot be written: No space left" in str(failed.args["error"])
        assert len(list(read_log(run.log.path))) < len(run.log.records)
        full[0] = False
        await run.finish()
    rig.check_end(run)
    assert [record.seq for record in read_log(run.log.path)] == list(range(run.log.count))
    assert [bundle.manifest.step for bundle in scan(rig.directory.root).bundles] == [0, 1, 3, 4]


HANGS = {
    "making the bundle's directories": HangingDisk("make_directory"),
    "writing the sidecars": HangingDisk("write_file"),
    "sealing the bundle": HangingDisk("sync_file", 2),
    "publishing the bundle": HangingDisk("rename"),
    "publishing the bundle, which is renamed": HangingDisk("rename", last=True),
}


@pytest.mark.parametrize("part", HANGS)
async def test_a_save_slower_than_its_limit_is_given_up_and_publishes_nothing_later(
    memory_rig: Rig, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    rig, disk, clock = memory_rig, HANGS[part], WakingClock()
    rig.now, rig.sleep = clock, clock.sleep
    rig.configure(checkpoint={"every": 1, "limit_s": 100})
    begin = BundleWriter.begin

    def on_a_hanging_disk(root: Path, run_id: str, step: int, **more: Any) -> BundleWriter:
        return begin(root, run_id, step, disk if step == 2 else REAL, **more)

    monkeypatch.setattr(BundleWriter, "begin", on_a_hanging_disk)
    run = await rig.launch(started=False)
    run.generator.finish_all()
    run.start()
    try:
        assert await asyncio.to_thread(disk.hangs.wait, LIMIT_S)
        await clock.pass_by(99)
        assert not [r for r in run.log.records if r.action == Action.FAIL_SAVE]
        await clock.pass_by(1)
        failed = await run.logged(Action.FAIL_SAVE, step=2)
        said = f"{part.partition(',')[0]} had not ended 100 s after the save had begun"
        assert said in str(failed.args["error"])
        assert "checkpoint.limit_s" in str(failed.args["error"])
    finally:
        disk.release()
    assert await asyncio.to_thread(disk.ended.wait, LIMIT_S)
    await run.finish()
    rig.check_end(run)
    found = scan(rig.directory.root)
    assert [bundle.manifest.step for bundle in found.bundles] == [0, 1, 3, 4]
    # A directory that came too late was nobody's; the next start removes it.
    late = ["tmp_step_2"] if part.startswith("making") else []
    assert [debris.path.name for debris in found.debris] == late


async def test_too_many_failed_saves_in_a_row_end_the_run(rig: Rig) -> None:
    rig.configure(checkpoint={"every": 1, "failures_in_a_row": 2})
    run = await rig.run_to(1)
    run.generator.finish_all()
    with (
        fails(run, "rows of the plane"),
        pytest.raises(
            SaveError,
            match=r"2 saves in a row have failed \(checkpoint.failures_in_a_row = 2\); last "
            "bundle: step 0; resume the run when .* can be written; last error: the store has a",
        ),
    ):
        await run.finish()
    assert [r.args["step"] for r in run.log.records if r.action == Action.FAIL_SAVE] == [1, 2]
    bundle = latest(rig.directory.root)
    assert bundle.name == "step_0"
    resumed = await rig.resume(bundle)
    await resumed.finish()
    rig.check_end(resumed)


async def test_failed_saves_with_a_good_one_between_do_not_end_the_run(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.configure(checkpoint={"every": 1, "failures_in_a_row": 2})
    run = await rig.run_to(1)
    snapshot_index = run.state.plane.snapshot_index

    async def fail_now_and_then(directory: Path) -> None:
        if run.state.step in (1, 3):
            raise PlaneError("the store has a bad day")
        await snapshot_index(directory)

    monkeypatch.setattr(run.state.plane, "snapshot_index", fail_now_and_then)
    report = await run.finish()
    assert report.ended == "exhausted"
    assert [r.args["step"] for r in run.log.records if r.action == Action.FAIL_SAVE] == [1, 3]
    rig.check_end(run)


WRITES = (
    Action.WRITE_POLICY,
    Action.WRITE_SIDECARS,
    Action.WRITE_MANIFEST,
    Action.PUBLISH_BUNDLE,
)


@pytest.mark.parametrize("point", [*WINDOW, *WRITES], ids=str)
async def test_a_save_that_fails_at_any_stop_point_is_given_up_and_the_run_goes_on(
    memory_rig: Rig, point: Action
) -> None:
    rig = memory_rig
    rig.configure(checkpoint=EVERY_STEP)
    run = await rig.run_to(2)
    run.holds.fail(point, SaveError("it has a bad day"))
    run.cut.release()
    await run.logged(Action.FAIL_SAVE, step=2)
    root = rig.directory.root
    assert latest(root).name == "step_1"
    assert run.saver.capture is None
    assert not run.state.barrier.cut_open
    await run.finish()
    rig.check_end(run)
    assert scan(root).debris == ()


async def test_the_last_save_is_tried_again_until_it_succeeds(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.configure(checkpoint=EVERY_STEP)
    run = await rig.run_to(4)
    save, left = run.trainer.save, [WorkerError("a bad day"), WorkerError("another")]

    async def fail_twice(directory: Path) -> None:
        if left:
            raise left.pop()
        await save(directory)

    monkeypatch.setattr(run.trainer, "save", fail_twice)
    report = await run.finish()
    assert report.ended == "exhausted"
    assert [r.args["step"] for r in run.log.records if r.action == Action.FAIL_SAVE] == [4, 4]
    assert latest(rig.directory.root).name == "step_4"
    rig.check_end(run)


@pytest.mark.parametrize("cut", ["full", "narrow"])
@pytest.mark.parametrize("call", ["copy", "save", "snapshot_index", "snapshot_rows"])
async def test_a_trainer_or_store_that_cancels_its_own_call_fails_the_save_and_not_the_run(
    memory_rig: Rig, monkeypatch: pytest.MonkeyPatch, cut: str, call: str
) -> None:
    rig = memory_rig
    rig.configure(checkpoint={**EVERY_STEP, "cut": cut})
    run = await rig.run_to(2)

    async def cancel(*arguments: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        where: Any = run.state.plane if call.startswith("snapshot") else run.trainer
        patch.setattr(where, call, cancel)
        run.cut.release()
        failed = await run.logged(Action.FAIL_SAVE, step=2)
    assert "cancelled its own call" in str(failed.args["error"])
    await run.finish()
    rig.check_end(run)
    assert [bundle.manifest.step for bundle in scan(rig.directory.root).bundles] == [0, 1, 3, 4]


@pytest.mark.parametrize("cut", ["full", "narrow"])
@pytest.mark.parametrize("call", ["copy", "save"])
async def test_whatever_a_trainer_raises_in_a_save_fails_the_save_and_not_the_run(
    memory_rig: Rig, monkeypatch: pytest.MonkeyPatch, cut: str, call: str
) -> None:
    rig = memory_rig
    rig.configure(checkpoint={**EVERY_STEP, "cut": cut})
    run = await rig.run_to(2)

    async def refuse(*arguments: object) -> None:
        raise SafetensorError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(run.trainer, call, refuse)
        run.cut.release()
        failed = await run.logged(Action.FAIL_SAVE, step=2)
    assert re.match(
        r"the trainer failed in (copying|writing) the policy: "
        r"SafetensorError\('No space left on device'\); ",
        str(failed.args["error"]),
    )
    await run.finish()
    rig.check_end(run)
    assert [bundle.manifest.step for bundle in scan(rig.directory.root).bundles] == [0, 1, 3, 4]


async def test_a_last_save_that_never_succeeds_is_an_error_of_the_run(rig: Rig) -> None:
    rig.configure(checkpoint=EVERY_STEP)
    run = await rig.run_to(4)
    with (
        fails(run, "policy"),
        pytest.raises(SaveError, match=r"3 saves in a row have failed .*; last bundle: step 3; "),
    ):
        await run.finish()
