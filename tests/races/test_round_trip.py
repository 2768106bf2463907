"""Save, restore, save again, and train what is left: from every state, under every sampler."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from cutlock.alphabet import Action
from cutlock.bundle.artifacts import LEDGER, MANIFEST, POLICY, SIDECARS, STAMP, TRAINING_INFO
from cutlock.bundle.contents import decode_cut, read_training_info
from cutlock.bundle.publication import latest, scan
from cutlock.bundle.verification import verify
from cutlock.bundle.writing import BundleWriter
from cutlock.controller.config import RunConfig
from cutlock.controller.core import Controller
from cutlock.controller.restore import (
    PlaneConnected,
    PlaneReady,
    Restored,
    ResumePlan,
    connect_plane,
    load_plane,
    restore_state,
)
from cutlock.errors import (
    BundleCorruptError,
    CapacityError,
    ConfigMismatchError,
    CutlockError,
    DropBudgetError,
    MisuseError,
    PlaneError,
    PlaneTouchedError,
    RestoreError,
    SaveError,
    WorkerError,
)
from cutlock.plane.base import DataPlane
from cutlock.workers.base import WEIGHTS_FILE
from tests.support.bundles import reseal
from tests.support.checks import (
    assert_rows,
    groups_of,
    lost_on_purpose,
    trained,
    trained_per_step,
)
from tests.support.mutations import FAILS, SPARES
from tests.support.planes import MemoryHarness
from tests.support.rig import Incarnation, Rig, config_of, rig_on
from tests.support.samplers import NotRestorable
from tests.support.scripted import RefusingDisk
from tests.support.situations import (
    EVERY_STEP,
    SAMPLERS,
    SITUATIONS,
    Situation,
    more_groups_than_places,
    with_sampler,
)


async def uninterrupted(root: Path, situation: Situation, sampler: str) -> Incarnation:
    """A run that was never saved before its end nor resumed, on the memory plane."""
    harness = MemoryHarness()
    await harness.start()
    async with rig_on(root, harness) as rig:
        situation.configure(rig, sampler)
        run = await rig.launch(started=False)
        situation.script(rig, run)
        await run.finish()
        return run


async def bundle_of(rig: Rig, situation: Situation, sampler: str) -> Path:
    """Save in the situation, and end the run that saved."""
    situation.configure(rig, sampler)
    run = await situation.reach(rig)
    run.cut.release()
    bundle = await run.published(situation.step)
    snapshot = rig.check_bundle(bundle)
    assert situation.holds(snapshot, sampler), snapshot
    await run.crash()
    return bundle


@pytest.mark.parametrize("situation", SITUATIONS, ids=str)
@pytest.mark.parametrize("sampler", SAMPLERS)
async def test_a_restored_run_is_the_saved_one_and_trains_what_is_left_once(
    rig: Rig, root: Path, sampler: str, situation: Situation
) -> None:
    bundle = await bundle_of(rig, situation, sampler)
    resumed = await rig.resume(bundle, with_rows=situation.with_rows, started=False)
    snapshot = resumed.plan.snapshot
    if situation.with_rows:
        assert snapshot == decode_cut(verify(bundle))
    assert_rows(snapshot.index, resumed.loaded)
    assert await resumed.read_cut() == snapshot
    assert resumed.state.permits.held == len(snapshot.index)

    again = await resumed.save_into(root.parent / "again")
    assert decode_cut(verify(again)) == snapshot

    # The first restore has changed nothing that a second one would see.
    resumed = await rig.resume(bundle, with_rows=situation.with_rows, started=False)
    assert resumed.plan.snapshot == snapshot
    assert await resumed.read_cut() == snapshot
    await resumed.finish()
    rig.check_end(resumed, lost=len(situation.failing))

    whole = await uninterrupted(root.parent / "whole", situation, sampler)
    assert Counter(trained(resumed.history)) == Counter(trained(whole.history))
    assert sorted(lost_on_purpose(resumed.history)) == sorted(lost_on_purpose(whole.history))
    if sampler == "in_order":
        assert trained_per_step(resumed.history) == trained_per_step(whole.history)


@pytest.mark.parametrize("sampler", SAMPLERS)
async def test_a_run_with_fewer_places_than_unfinished_groups_trains_them_all(
    rig: Rig, sampler: str
) -> None:
    situation = more_groups_than_places(sampler)
    bundle = await bundle_of(rig, situation, sampler)
    assert situation.resumed_with is not None
    config = config_of(rig.kind, **with_sampler(situation.resumed_with, sampler))
    resumed = await rig.resume(bundle, config, started=False)
    assert config.capacity() < len(resumed.plan.snapshot.ledger)
    assert await resumed.read_cut() == resumed.plan.snapshot
    await resumed.finish()
    # Under a narrower window the weights of the third batch are too old by the time it trains.
    rig.check_end(resumed, lost=2 if sampler == "weight_fifo" else 0)
    launched = groups_of(resumed.log.records, Action.LAUNCH_GROUP)
    assert launched == [*rig.batch(1), *rig.batch(2), *rig.batch(3)]


async def test_a_run_that_is_killed_after_every_step_trains_what_one_that_lives_on_does(
    rig: Rig, root: Path
) -> None:
    await killed_after_every_step(rig, root, "in_order")


@pytest.mark.parametrize("sampler", SAMPLERS)
async def test_a_run_that_is_killed_after_every_step_trains_the_same_under_every_sampler(
    memory_rig: Rig, root: Path, sampler: str
) -> None:
    await killed_after_every_step(memory_rig, root, sampler)


async def killed_after_every_step(rig: Rig, root: Path, sampler: str) -> None:
    situation = Situation(
        "killed often",
        lambda run: run.quiet(),
        lambda cut, _: True,
        changes={
            "task": {"prompts": 10},
            "epochs": 2,
            "buffer": SPARES,
            "checkpoint": EVERY_STEP,
        },
    )
    situation.configure(rig, sampler)
    run = await rig.run_to(1)
    positions = []
    for step in range(1, 7):
        run.cut.release()
        bundle = await run.published(step)
        loader = rig.check_bundle(bundle).loader
        positions.append((loader.epoch, loader.position))
        await run.crash()
        run = await rig.resume(bundle, started=False)
        run.cut = run.holds.hold(Action.REQUEST_CUT, step=step + 1)
        run.generator.finish_all()
        run.start()
        await run.at(run.cut)
    await run.finish()
    assert positions == sorted(positions)
    rig.check_end(run)
    whole = await uninterrupted(root.parent / "whole", situation, sampler)
    assert Counter(trained(run.history)) == Counter(trained(whole.history))
    if sampler == "in_order":
        assert trained_per_step(run.history) == trained_per_step(whole.history)


async def test_what_was_admitted_is_launched_first_and_then_what_was_reserved(rig: Rig) -> None:
    """Admitted in the order of dispatch, reserved once per admission, and only then the loader.

    A substitute stands last in the ledger and belongs to the oldest step.
    """
    rig.configure(task={"prompts": 12}, buffer=SPARES, failures=FAILS)
    spares, second, third, fourth = (rig.batch(number) for number in range(1, 5))

    run = await rig.run_to(1)
    await run.logged(Action.RESERVE_BATCH, groups=fourth)
    run.generator.fail(second[0])
    run.generator.finish(second[0])
    await run.logged(Action.SUBSTITUTE_GROUP, group=second[0])
    await run.quiet()
    run.cut.release()
    bundle = await run.published(1)
    await run.crash()
    ledger = [record.group_id for record in rig.check_bundle(bundle).ledger]
    assert ledger == [second[1], *third, *fourth, spares[0]]

    resumed = await rig.resume(bundle)
    await resumed.finish()
    records = resumed.log.records
    launched = groups_of(records, Action.LAUNCH_GROUP)
    assert launched[:6] == [second[1], spares[0], *third, *fourth]
    admitted = [r for r in records if r.action == Action.COMMIT_ADMISSION]
    assert admitted[0].args["groups"] == fourth
    assert admitted[0].args["admission"] == 3
    first_read = next(
        r.seq for r in records if r.action in (Action.RESERVE_BATCH, Action.FILL_SPARE_POOL)
    )
    assert admitted[0].seq < first_read
    rig.check_end(resumed, lost=1)


async def test_a_run_goes_back_to_an_older_bundle_and_saves_the_same_steps_again(
    rig: Rig,
) -> None:
    rig.configure(checkpoint=EVERY_STEP)
    run = await rig.run_to(3)
    run.cut.release()
    await run.published(3)
    await run.crash()
    root = rig.directory.root
    resumed = await rig.resume(root / "step_1")
    await resumed.finish()
    rig.check_end(resumed)
    found = scan(root, rig.directory.facts().run_id)
    assert [bundle.path.name for bundle in found.bundles] == [
        "step_0",
        "step_1",
        "step_2",
        "step_3",
        "step_4",
    ]
    assert [debris.path.name for debris in found.debris] == [
        "abandoned_step_2",
        "abandoned_step_3",
    ]
    for bundle in found.bundles[2:]:
        assert read_training_info(verify(bundle.path)).incarnation == resumed.number
        rig.check_bundle(bundle.path)
    assert latest(root).name == "step_4"


async def test_a_run_that_ended_goes_on_with_more_epochs(rig: Rig) -> None:
    rig.configure(task={"prompts": 5})
    run = await rig.launch()
    await run.finish()
    rig.configure(task={"prompts": 5}, epochs=2)
    resumed = await rig.resume(rig.directory.root / "step_3", rig.config)
    report = await resumed.finish()
    assert report.ended == "exhausted"
    assert sorted(trained_per_step(resumed.log.records)) == [3, 4, 5]
    rig.check_end(resumed)


async def test_a_run_that_ended_at_its_budget_goes_on_with_a_larger_one(rig: Rig) -> None:
    rig.configure(max_steps=2)
    run = await rig.launch()
    assert (await run.finish()).ended == "max_steps"
    assert rig.plan(rig.directory.root / "step_2").finished
    rig.configure()
    plan = rig.plan(rig.directory.root / "step_2", rig.config)
    assert not plan.finished
    resumed = await rig.resume(plan.bundle, rig.config)
    assert (await resumed.finish()).ended == "exhausted"
    rig.check_end(resumed)


async def test_a_run_that_ended_for_want_of_a_drop_budget_tries_the_group_again(
    rig: Rig,
) -> None:
    rig.configure(failures={"attempts": 2, "drop_budget": 0})
    run = await rig.launch(started=False)
    run.generator.fail(rig.batch(2)[0])
    with pytest.raises(DropBudgetError, match="failed 2 times and failures"):
        await run.finish()
    resumed = await rig.resume(latest(rig.directory.root))
    await resumed.finish()
    rig.check_end(resumed)


# What a restore refuses.


class Untouched:
    """Shows that a refusal has changed nothing: no file, no row, no client, no launch."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._files = self._read()
        self._starts = len(rig.incarnations)

    async def check(self) -> None:
        assert self._read() == self._files
        assert len(self._rig.incarnations) == self._starts
        await self._rig.harness.bootstrap.require_untouched()

    def _read(self) -> dict[str, bytes]:
        root = self._rig.directory.root
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in root.rglob("*")
            if path.is_file()
        }


async def refused(
    rig: Rig, bundle: Path, error: type[CutlockError], says: str, config: RunConfig | None = None
) -> None:
    await rig.harness.start()
    before = Untouched(rig)
    with pytest.raises(error, match=says):
        await rig.resume(bundle, config)
    await before.check()


async def three_ready(rig: Rig) -> Path:
    """A bundle with three finished groups: one of the next step, two of the step after it."""
    run = await rig.run_to(1)
    ready = [rig.batch(1)[0], *rig.batch(2)]
    run.generator.finish(*ready)
    for group in ready:
        await run.logged(Action.COMMIT_GROUP, group=group)
    run.cut.release()
    bundle = await run.published(1)
    await run.crash()
    return bundle


CHANGED = {
    "capacity": (
        {"sampler": {"window": 0}},
        CapacityError,
        "holds 3 finished groups and the buffer capacity is 2; .*at least 4",
    ),
    "group size": ({"group_size": 4}, ConfigMismatchError, "group_size was 2 .* and is 4 now"),
    "prompts per step": (
        {"prompts_per_step": 4},
        ConfigMismatchError,
        "prompts_per_step was 2 .* and is 4 now",
    ),
    "sampler": (
        {"sampler": {"name": "ready_first"}},
        ConfigMismatchError,
        "sampler.name was 'in_order' .* and is 'ready_first' now",
    ),
    "seed": ({"seed": 1}, ConfigMismatchError, "seed was 0 .* and is 1 now"),
    "data set": (
        {"task": {"prompts": 9}},
        ConfigMismatchError,
        "the data set was .* and is .*9 prompts",
    ),
    "units": ({"plane": {"units": 3}}, ConfigMismatchError, "plane.units was 2 .* and is 3 now"),
}


@pytest.mark.parametrize("change", CHANGED)
async def test_a_changed_configuration_is_refused_with_both_values_and_the_way_out(
    memory_rig: Rig, change: str
) -> None:
    bundle = await three_ready(memory_rig)
    changes, error, says = CHANGED[change]
    config = config_of(memory_rig.kind, **changes)
    await refused(memory_rig, bundle, error, says, config)


async def test_fewer_epochs_than_the_bundle_stands_in_are_refused(rig: Rig) -> None:
    rig.configure(task={"prompts": 2}, epochs=4)
    run = await rig.run_to(1)
    await run.logged(Action.RAISE_EPOCH, epoch=3)
    run.cut.release()
    bundle = await run.published(1)
    await run.crash()
    config = config_of(rig.kind, task={"prompts": 2}, epochs=2)
    await refused(rig, bundle, ConfigMismatchError, "epochs is 2 and the bundle stands in", config)


async def test_finished_groups_that_would_keep_an_older_step_out_are_refused(
    memory_rig: Rig,
) -> None:
    """They fit, but the step that trains next would have no place to be finished in."""
    rig = memory_rig
    rig.configure(sampler={"window": 2})
    run = await rig.run_to(1)
    later = [*rig.batch(2), *rig.batch(3)]
    run.generator.finish(*later)
    for group in later:
        await run.logged(Action.COMMIT_GROUP, group=group)
    run.cut.release()
    bundle = await run.published(1)
    await run.crash()
    narrow = config_of(rig.kind, sampler={"window": 1})
    await refused(rig, bundle, CapacityError, "at least 6, or with --without-rows", narrow)
    wide = config_of(rig.kind, sampler={"window": 1}, buffer={"capacity": 6})
    resumed = await rig.resume(bundle, wide)
    await resumed.finish()
    rig.check_end(resumed)


async def test_finished_groups_are_refused_under_a_sampler_that_does_not_restore_them(
    rig: Rig,
) -> None:
    rig.configure_custom(NotRestorable)
    bundle = await three_ready(rig)
    await refused(rig, bundle, RestoreError, "3 finished groups .*restorable = False")
    resumed = await rig.resume(bundle, with_rows=False)
    await resumed.finish()
    rig.check_end(resumed)


async def test_an_unknown_phase_is_refused(rig: Rig) -> None:
    bundle = await three_ready(rig)
    ledger = bundle / LEDGER
    ledger.write_bytes(ledger.read_bytes().replace(b"ADMITTED", b"LAUNCHED"))
    reseal(bundle)
    await refused(rig, bundle, BundleCorruptError, f"{LEDGER}.*LAUNCHED.*step_0")


@pytest.mark.parametrize(
    "name", [*SIDECARS, TRAINING_INFO, MANIFEST, STAMP, f"{POLICY}/{WEIGHTS_FILE}"]
)
@pytest.mark.parametrize("damage", ["missing", "altered"])
async def test_a_damaged_file_is_refused_by_name_with_the_last_bundle_that_verifies(
    memory_rig: Rig, name: str, damage: str
) -> None:
    rig = memory_rig
    rig.configure(checkpoint=EVERY_STEP)
    run = await rig.run_to(2)
    run.cut.release()
    bundle = await run.published(2)
    await run.crash()
    file = bundle / name
    if damage == "missing":
        file.unlink()
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    says = f"step_2.*{re.escape(name)}.*the last bundle that verifies is step_1"
    await refused(rig, bundle, BundleCorruptError, says)
    resumed = await rig.resume(rig.directory.root / "step_1")
    await resumed.finish()


@pytest.mark.parametrize("with_rows", [True, False])
async def test_a_store_that_another_client_is_connected_to_is_refused(
    rig: Rig, with_rows: bool
) -> None:
    bundle = await three_ready(rig)
    plan = rig.plan(bundle, with_rows=with_rows)
    await rig.harness.start()
    await rig.harness.connect()
    with pytest.raises(PlaneTouchedError, match="1 other clients"):
        await rig.launch(plan)


@pytest.mark.parametrize("with_rows", [True, False])
async def test_a_store_with_rows_of_somebody_else_is_refused_and_keeps_them(
    rig: Rig, with_rows: bool
) -> None:
    bundle = await three_ready(rig)
    plan = rig.plan(bundle, with_rows=with_rows)
    await rig.harness.start()
    other = await rig.harness.connect()
    await other.put(["foreign"], {"reward": [torch.tensor([1.0])]})
    starts = len(rig.incarnations)
    with pytest.raises(PlaneTouchedError, match="index counter at 1"):
        await rig.launch(plan)
    assert await other.list_keys() == ["foreign"]
    assert len(rig.incarnations) == starts


async def test_no_stage_of_a_restore_is_made_by_hand(memory_rig: Rig) -> None:
    rig = memory_rig
    bundle = await three_ready(rig)
    await rig.harness.start()
    plan = rig.plan(bundle)
    plane = await rig.harness.connect()
    for make in (
        lambda: ResumePlan(object(), bundle, rig.config, plan.snapshot, plan.info, 1),
        lambda: PlaneReady(object(), plan),
        lambda: PlaneConnected(object(), PlaneReady(object(), plan), plane),
        lambda: Restored(object(), rig.incarnations[0].state, 1),
    ):
        with pytest.raises(MisuseError, match="is not made by hand"):
            make()


async def test_stages_of_a_restore_do_not_run_in_another_order(memory_rig: Rig) -> None:
    rig = memory_rig
    bundle = await three_ready(rig)
    await rig.harness.start()
    bootstrap, connected = rig.harness.bootstrap, []

    async def connect() -> DataPlane:
        connected.append(await rig.harness.connect())
        return connected[-1]

    plan: Any = rig.plan(bundle)
    state = rig.incarnations[0].state
    with pytest.raises(MisuseError, match=r"load_plane.* takes a ResumePlan"):
        await load_plane(await load_plane(None, bootstrap), bootstrap)  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match=r"connect_plane.* takes a PlaneReady"):
        await connect_plane(plan, connect)
    assert not connected
    await bootstrap.require_untouched()
    ready: Any = await load_plane(plan, bootstrap)
    with pytest.raises(MisuseError, match=r"restore_state.* takes a PlaneConnected"):
        await restore_state(ready, state)
    there: Any = await connect_plane(ready, connect)
    with pytest.raises(MisuseError, match="another plane"):
        await restore_state(there, state)
    with pytest.raises(MisuseError, match="Controller takes a Restored"):
        Controller(there, None, None, None, bundle.parent)  # type: ignore[arg-type]


# Saves that fail, and saves that are asked for at a bad moment.


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
    assert not (root / "tmp_step_2").exists()
    assert rig.plan(root / "step_1").snapshot.step == 1
    await run.finish()
    rig.check_end(run)
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


async def test_whatever_the_disk_refuses_the_run_goes_on_and_the_last_bundle_stays(
    memory_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One save per step; of the n-th the disk refuses the n-th operation."""
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

    def on_a_refusing_disk(root: Path, run_id: str, step: int) -> BundleWriter:
        disks.append(RefusingDisk(len(disks) + 1))
        return begin(root, run_id, step, disks[-1])

    monkeypatch.setattr(BundleWriter, "begin", on_a_refusing_disk)
    first_step.release()
    await run.finish()
    rig.check_end(run)
    refused_steps = [r.args["step"] for r in run.log.records if r.action == Action.FAIL_SAVE]
    published = [r.args["step"] for r in run.log.records if r.action == Action.PUBLISH_BUNDLE]
    assert len(refused_steps) > 20
    assert sorted([*refused_steps, *published]) == list(range(61))
    assert latest(rig.directory.root).name == f"step_{published[-1]}"
    assert scan(rig.directory.root).debris == ()


async def test_too_many_failed_saves_in_a_row_end_the_run(rig: Rig) -> None:
    rig.configure(checkpoint={"every": 1, "failures_in_a_row": 2})
    run = await rig.run_to(1)
    run.generator.finish_all()
    with (
        fails(run, "rows of the plane"),
        pytest.raises(
            SaveError,
            match=r"2 saves in a row have failed \(checkpoint.failures_in_a_row = 2\); "
            "last bundle: step 0; last error: the store has a bad day",
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


async def test_a_last_save_that_fails_is_an_error_of_the_run(rig: Rig) -> None:
    rig.configure(checkpoint=EVERY_STEP)
    run = await rig.run_to(4)
    with (
        fails(run, "policy"),
        pytest.raises(SaveError, match=r"the last save, of step 4, failed; .* since 3 again"),
    ):
        await run.finish()
