"""Narrow cuts of real runs: everything moves while a save is written, on both planes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cutlock.alphabet import Action
from cutlock.bundle.publication import latest, scan
from cutlock.errors import PlaneError, PlaneLostError, SaveError, WorkerError
from tests.support.checks import BACKGROUND, groups_of, trained
from tests.support.mutations import MUTATIONS, Mutation, standing
from tests.support.rig import Incarnation, Rig
from tests.support.scripted import Hold

NARROW = {"every": 1, "cut": "narrow"}
OF_THE_ROLLOUT_PUMP = [mutation for mutation in MUTATIONS if not mutation.foreign]
ALL_STOPS = (Action.TAKE_CUT, Action.COPY_POLICY, *BACKGROUND)


async def meet(rig: Rig, mutation: Mutation, point: Action) -> tuple[Incarnation, Path]:
    """Make the change while a narrow save of step 1 stands at `point`; let the save go on."""
    rig.configure(**{**mutation.changes, "checkpoint": {"cut": "narrow"}})
    async with standing(rig, mutation, point) as (run, stands, script):
        seen = run.log.count
        await anext(script)
        if point is Action.TAKE_CUT and mutation.kind == "loader_advance":
            await run.quiet()
            assert run.state.barrier.waiting == ("loader_advance",)
        else:
            await run.logged(mutation.action, after=seen)
        stands.release()
        return run, await run.published(1)


def lost_before(run: Incarnation, mutation: Mutation) -> int:
    """Prompts that a run which is resumed from the bundle has lost."""
    cut = next(r.seq for r in run.log.records if r.action == Action.TAKE_CUT and r.args["step"])
    change = next((r.seq for r in run.log.records if r.action == mutation.action), cut)
    return mutation.lost if change < cut else mutation.lost_anyway


@pytest.mark.parametrize("mutation", OF_THE_ROLLOUT_PUMP, ids=str)
@pytest.mark.parametrize("point", [Action.TAKE_CUT, Action.SAVE_UNIT], ids=str)
async def test_a_change_is_before_a_narrow_cut_or_after_it_as_a_whole(
    rig: Rig, mutation: Mutation, point: Action
) -> None:
    run, bundle = await meet(rig, mutation, point)
    await rig.check_resume(run, bundle, lost=lost_before(run, mutation))


@pytest.mark.parametrize("mutation", OF_THE_ROLLOUT_PUMP, ids=str)
@pytest.mark.parametrize(
    "point", [a for a in ALL_STOPS if a not in {Action.TAKE_CUT, Action.SAVE_UNIT}], ids=str
)
async def test_a_change_goes_on_wherever_a_narrow_save_stands(
    memory_rig: Rig, mutation: Mutation, point: Action
) -> None:
    run, bundle = await meet(memory_rig, mutation, point)
    await memory_rig.check_resume(run, bundle, lost=lost_before(run, mutation))


# The run trains what the save is writing.


async def saving(rig: Rig, point: Action, **checkpoint: Any) -> tuple[Incarnation, Hold]:
    """A run whose save of step 1 holds two finished groups and stands at `point`."""
    rig.configure(checkpoint={**NARROW, "keep": 100, **checkpoint})
    run = await rig.run_to(1)
    await run.commit(*rig.batch(1))
    stands = run.holds.hold(point, **({"step": 1} if point not in STEPLESS else {}))
    run.cut.release()
    await run.at(stands)
    return run, stands


STEPLESS = {Action.SAVE_PLANE, Action.SAVE_UNIT}


async def trains_beside(run: Incarnation) -> None:
    """Return when the next step is trained and its rows are wanted cleared."""
    await run.logged(Action.CLEAR_ROWS, step=1)
    await run.logged(Action.SYNC_WEIGHTS, version=2)


async def test_rows_that_are_trained_while_their_units_write_stay_until_these_have_ended(
    rig: Rig,
) -> None:
    run, stands = await saving(rig, Action.SAVE_UNIT)
    rows = await run.rows()
    await trains_beside(run)
    captured = {key for entry in run.saver.capture.index or () for key in entry.row_keys}
    assert captured == set(run.state.plane.pinned) == set(run.state.plane.deferred)
    assert captured <= set(await run.state.plane.list_keys())
    stands.release()
    flushed = await run.logged(Action.FLUSH_DEFERRED)
    assert sorted(flushed.args["groups"]) == sorted(rig.batch(1))
    bundle = await run.published(1)
    assert captured.isdisjoint(await run.state.plane.list_keys())
    assert not run.state.plane.pinned
    snapshot = rig.check_bundle(bundle)
    assert sorted(entry.group_id for entry in snapshot.index) == sorted(rig.batch(1))
    await rig.check_resume(run, bundle, rows)


@pytest.mark.parametrize("point", BACKGROUND, ids=str)
async def test_a_narrow_save_is_of_its_step_however_far_the_run_is_when_it_is_written(
    memory_rig: Rig, point: Action
) -> None:
    rig = memory_rig
    run, stands = await saving(rig, point)
    await trains_beside(run)
    assert run.state.step == 2
    stands.release()
    bundle = await run.published(1)
    assert rig.check_bundle(bundle).step == 1
    await rig.check_resume(run, bundle)


async def test_the_trainer_is_copied_before_the_train_pump_goes_on(memory_rig: Rig) -> None:
    rig = memory_rig
    run, stands = await saving(rig, Action.COPY_POLICY)
    await run.quiet()
    assert trained(run.log.records) == sorted(rig.batch(0))
    stands.release()
    await rig.check_resume(run, await run.published(1))


async def test_the_next_save_waits_until_the_last_one_is_over(memory_rig: Rig) -> None:
    rig = memory_rig
    run, stands = await saving(rig, Action.WRITE_MANIFEST)
    prunes = run.holds.hold(Action.PRUNE_BUNDLES)
    stands.release()
    await run.at(prunes)
    await trains_beside(run)
    run.generator.finish_all()
    await run.quiet()
    assert [r.args["step"] for r in run.log.records if r.action == Action.REQUEST_CUT] == [0, 1]
    assert run.state.step == 2
    prunes.release()
    await run.finish()
    rig.check_end(run)
    published = [r.args["step"] for r in run.log.records if r.action == Action.PUBLISH_BUNDLE]
    assert published == [0, 1, 2, 3, 4]


async def test_a_run_that_ends_while_its_save_is_written_waits_for_it(rig: Rig) -> None:
    rig.configure(checkpoint={**NARROW, "keep": 100}, max_steps=2)
    run = await rig.run_to(1)
    run.generator.finish_all()
    last = run.holds.hold(Action.WRITE_SIDECARS, step=2)
    run.cut.release()
    await run.at(last)
    await run.quiet()
    assert run.task is not None
    assert not run.task.done()
    last.release()
    report = await run.finish()
    assert report.ended == "max_steps"
    assert latest(rig.directory.root).name == "step_2"
    assert [timing.step for timing in report.saves] == [0, 1, 2]


# It fails.


@pytest.mark.parametrize("point", ALL_STOPS, ids=str)
async def test_a_narrow_save_that_fails_anywhere_is_given_up_and_the_run_goes_on(
    memory_rig: Rig, point: Action
) -> None:
    rig = memory_rig
    run, stands = await saving(rig, point)
    if point in BACKGROUND:
        await trains_beside(run)
    stands.release(SaveError("it has a bad day"))
    await run.logged(Action.FAIL_SAVE, step=1)
    root = rig.directory.root
    assert latest(root).name == "step_0"
    await run.finish()
    rig.check_end(run)
    assert scan(root).debris == ()
    assert [bundle.manifest.step for bundle in scan(root).bundles] == [0, 2, 3, 4]
    assert not run.state.plane.pinned
    assert not run.state.plane.deferred
    assert await run.state.plane.list_keys() == []


@pytest.mark.parametrize("call", ["snapshot_index", "snapshot_rows", "list_keys", "policy"])
async def test_a_part_that_fails_in_a_narrow_save_costs_that_save_only(
    rig: Rig, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, stands = await saving(rig, Action.SAVE_PLANE)
    await trains_beside(run)
    where: Any = run.trainer if call == "policy" else run.state.plane
    name, failure = ("save", WorkerError) if call == "policy" else (call, PlaneError)

    async def fail(*arguments: object) -> None:
        raise failure("it has a bad day")

    with monkeypatch.context() as patch:
        patch.setattr(where, name, fail)
        stands.release()
        failed = await run.logged(Action.FAIL_SAVE, step=1)
    assert failed.args["error"] == "it has a bad day"
    await run.finish()
    rig.check_end(run)
    assert scan(rig.directory.root).debris == ()
    assert await run.state.plane.list_keys() == []


async def test_too_many_failures_of_narrow_saves_end_the_run_with_their_name(
    memory_rig: Rig,
) -> None:
    rig = memory_rig
    run, stands = await saving(rig, Action.WRITE_SIDECARS, failures_in_a_row=1)
    await trains_beside(run)
    stands.release(SaveError("it has a bad day"))
    with pytest.raises(SaveError, match="1 saves in a row have failed"):
        await run.finish()
    ended = run.log.records[-1]
    assert ended.action == Action.END_RUN
    assert str(ended.args["reason"]).startswith("SaveError: 1 saves")
    await rig_resumes(rig)


async def test_a_store_that_is_lost_while_its_units_write_ends_the_run_with_its_name(
    memory_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = memory_rig
    run, stands = await saving(rig, Action.SAVE_UNIT)
    await trains_beside(run)
    monkeypatch.setattr(run.state.plane._plane._probe, "_lost", "unit 1 is dead; resume")  # type: ignore[attr-defined]
    stands.release()
    with pytest.raises(PlaneLostError, match="unit 1 is dead; resume"):
        await run.finish()
    assert "PlaneLostError" in str(run.log.records[-1].args["reason"])
    assert not [r for r in run.log.records if r.action == Action.FAIL_GROUP]
    await rig_resumes(rig)


async def rig_resumes(rig: Rig) -> None:
    bundle = latest(rig.directory.root)
    rig.check_bundle(bundle)
    resumed = await rig.resume(bundle)
    await resumed.finish()
    rig.check_end(resumed)


@pytest.mark.parametrize("point", ALL_STOPS, ids=str)
async def test_a_run_that_is_cancelled_while_a_narrow_save_stands_anywhere_is_resumed(
    memory_rig: Rig, point: Action
) -> None:
    rig = memory_rig
    run, _ = await saving(rig, point)
    if point in BACKGROUND:
        await trains_beside(run)
    await run.crash()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    assert not [task for task in tasks if task.get_name().startswith("save of step")]
    await rig_resumes(rig)
    assert groups_of(rig.incarnations[-1].log.records, Action.TRAIN_STEP)


@pytest.mark.parametrize("failures", [1, 2])
async def test_clears_that_fail_after_a_failed_save_are_made_up_by_a_later_one_and_told(
    memory_rig: Rig, failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = memory_rig
    run, stands = await saving(rig, Action.SAVE_PLANE, failures_in_a_row=9)
    await trains_beside(run)
    plane: Any = run.state.plane
    captured = set(plane.deferred)
    clears = plane._plane.clear
    left = failures

    async def fail(*arguments: object) -> None:
        raise PlaneError("it has a bad day")

    async def clear(keys: Sequence[str]) -> None:
        nonlocal left
        if captured.issubset(keys) and left:
            left -= 1
            raise PlaneError("it has a bad day")
        await clears(keys)

    monkeypatch.setattr(plane._plane, "clear", clear)
    with monkeypatch.context() as patch:
        patch.setattr(plane, "snapshot_index", fail)
        stands.release()
        await run.logged(Action.FAIL_SAVE, step=1)
    await run.finish()
    rig.check_end(run)
    assert not left
    flushed = [r.args["groups"] for r in run.log.records if r.action == Action.FLUSH_DEFERRED]
    assert sorted(flushed[0]) == sorted(rig.batch(1))
    assert await plane.list_keys() == []
