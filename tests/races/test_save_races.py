"""A real save against every change that may meet it, in both orders, on both planes."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from cutlock.alphabet import Action
from cutlock.records import Phase
from tests.support.checks import WINDOW, assert_quiet_window, groups_of, trained_per_step
from tests.support.mutations import (
    ADMISSION,
    ADVANCE,
    COMMIT,
    MUTATIONS,
    Mutation,
    meet,
    two_stale_groups,
)
from tests.support.rig import Incarnation, Rig
from tests.support.samplers import AdmitOnly
from tests.support.scripted import Hold

IN_A_COMMIT = (Action.PUT_ROWS, Action.COMMIT_GROUP)
"""Stop points inside the slot of a commit: before its rows are put, and after."""

IN_A_PUT = (("reserve", None), ("store", 0), ("store", 1), ("notify", None), ("tag", None))
IN_A_CLEAR = (("mark", None), ("delete", 0), ("delete", 1), ("free", None))


# The window first: the change waits.


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
async def test_a_change_waits_for_the_window_and_the_bundle_is_of_one_instant(
    rig: Rig, mutation: Mutation
) -> None:
    await change_in_the_window(rig, mutation, Action.SAVE_PLANE)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
@pytest.mark.parametrize("point", [a for a in WINDOW if a is not Action.SAVE_PLANE], ids=str)
async def test_a_change_waits_wherever_the_window_stands(
    memory_rig: Rig, mutation: Mutation, point: Action
) -> None:
    await change_in_the_window(memory_rig, mutation, point)


async def change_in_the_window(rig: Rig, mutation: Mutation, point: Action) -> None:
    rows: dict[str, Any] = {}

    async def inside(run: Incarnation) -> None:
        assert run.state.barrier.waiting == (mutation.kind,)
        assert_quiet_window(run.log.records)
        rows.update(await run.rows())

    run, bundle = await meet(rig, mutation, point, inside)
    assert_quiet_window(run.log.records)
    closed = await run.logged(Action.CLOSE_CUT, step=1)
    await run.logged(mutation.action, after=closed.seq)
    await rig.check_resume(
        run, bundle, rows, lost=mutation.lost_anyway, audited=not mutation.foreign
    )


@pytest.mark.parametrize("mutation", [m for m in MUTATIONS if not m.foreign], ids=str)
async def test_the_run_that_was_saved_loses_nothing_either(
    memory_rig: Rig, mutation: Mutation
) -> None:
    run, _ = await meet(memory_rig, mutation, Action.SAVE_PLANE)
    await run.finish()
    memory_rig.check_end(run, lost=mutation.lost)


@pytest.mark.parametrize("sampler", ["windowed", "ready_first", "weight_fifo"])
@pytest.mark.parametrize("mutation", [COMMIT, ADMISSION, ADVANCE], ids=str)
async def test_a_change_waits_under_every_sampler(
    memory_rig: Rig, mutation: Mutation, sampler: str
) -> None:
    changes: dict[str, Any] = {"sampler": {"name": sampler}}
    if sampler == "windowed":
        # As many places, and as wide a window, as lets the script run and drops nothing.
        changes = {"sampler": {"name": sampler, "window": 3}, "buffer": {"capacity": 6}}
    varied = dataclasses.replace(mutation, changes=changes)
    await change_in_the_window(memory_rig, varied, Action.READ_LOADER)


async def test_a_save_is_published_while_a_sampler_waits_at_its_gate_in_a_slot(
    rig: Rig,
) -> None:
    """The gate opens only when the trainer moves, and the trainer is the one who saves."""
    rig.configure_custom(AdmitOnly, buffer={"capacity": 8})
    run = await rig.run_to(1)
    await run.logged(Action.RESERVE_BATCH, groups=rig.batch(3))
    await run.quiet()
    assert (run.state.barrier.slots, run.state.barrier.waiting) == (1, ())
    run.cut.release()
    bundle = await run.published(1)
    snapshot = rig.check_bundle(bundle)
    reserved = [r.group_id for r in snapshot.ledger if r.phase is Phase.RESERVED]
    assert reserved == rig.batch(3)
    assert_quiet_window(run.log.records)
    await rig.check_resume(run, bundle)


async def test_all_kinds_of_changes_wait_at_once_and_enter_in_the_order_of_their_arrival(
    rig: Rig,
) -> None:
    first, second = rig.batch(1)
    advance: list[Hold] = []

    async def prepare(run: Incarnation) -> None:
        advance.append(run.holds.hold(Action.RESERVE_BATCH, skip=2))

    run = await rig.run_to(1, prepare)
    await run.at(advance[0])
    await run.logged(Action.LAUNCH_GROUP, group=second)
    window = run.holds.hold(Action.READ_INDEX)
    run.cut.release()
    await run.at(window)
    for fire in (
        lambda: run.generator.finish(second),
        lambda: advance[0].release(),
        lambda: run.generator.finish(first),
    ):
        fire()
        await run.quiet()
    assert run.state.barrier.waiting == ("group_commit", "loader_advance", "group_commit")
    assert_quiet_window(run.log.records)
    window.release()
    bundle = await run.published(1)
    snapshot = rig.check_bundle(bundle)
    assert snapshot.index == ()
    assert [record.group_id for record in snapshot.ledger] == [first, second]
    await rig.check_resume(run, bundle)


# The change first: the cut waits.


@pytest.mark.parametrize("point", IN_A_COMMIT, ids=str)
async def test_a_commit_that_has_begun_is_in_the_bundle(rig: Rig, point: Action) -> None:
    group = rig.batch(1)[0]
    run = await rig.run_to(1)
    hold = run.holds.hold(point, group=group)
    await commit_is_drained(run, group, hold)


@pytest.mark.parametrize(("phase", "unit"), IN_A_PUT)
async def test_a_put_that_has_begun_is_in_the_bundle(
    memory_rig: Rig, phase: str, unit: int | None
) -> None:
    run = await memory_rig.run_to(1)
    hold = memory_rig.plane_holds.hold("put", phase, unit)
    await commit_is_drained(run, memory_rig.batch(1)[0], hold)


async def commit_is_drained(run: Incarnation, group: str, hold: Hold) -> None:
    rig, later = run.rig, run.rig.batch(1)[1]
    run.generator.finish(group)
    await run.at(hold)
    run.cut.release()
    await run.quiet()
    assert run.state.barrier.waiting == ("cut",)
    run.generator.finish(later)
    await run.quiet()
    # The door is closed: what comes after the request does not hold the cut up.
    assert run.state.barrier.waiting == ("cut", "group_commit")
    hold.release()
    bundle = await run.published(1)
    snapshot = rig.check_bundle(bundle)
    assert [entry.group_id for entry in snapshot.index] == [group]
    assert snapshot.ledger[0].group_id == later
    assert_quiet_window(run.log.records)
    await rig.check_resume(run, bundle)


async def test_a_save_waits_for_a_put_that_the_store_does_not_answer(rig: Rig) -> None:
    group = rig.batch(1)[0]
    run = await rig.run_to(1)
    await run.logged(Action.LAUNCH_GROUP, group=group)
    with rig.harness.stalled():
        run.generator.finish(group)
        await run.quiet()
        run.cut.release()
        await run.quiet()
        assert run.state.barrier.waiting == ("cut",)
        assert group in run.state.buffer.committing
    bundle = await run.published(1)
    assert [entry.group_id for entry in rig.check_bundle(bundle).index] == [group]
    await rig.check_resume(run, bundle)


@pytest.mark.parametrize(("phase", "unit"), IN_A_PUT[1:])
async def test_a_save_waits_for_the_rollback_of_a_failed_put(
    memory_rig: Rig, phase: str, unit: int | None
) -> None:
    group = memory_rig.batch(1)[0]
    run = await memory_rig.run_to(1)
    rollback = run.holds.hold(Action.ROLLBACK_GROUP, group=group)
    retry = run.holds.hold(Action.LAUNCH_GROUP, group=group)
    memory_rig.plane_holds.fail("put", phase)
    run.generator.finish(group)
    await run.at(rollback)
    run.cut.release()
    await run.quiet()
    assert run.state.barrier.waiting == ("cut",)
    rollback.release()
    bundle = await run.published(1)
    await run.at(retry)
    snapshot = memory_rig.check_bundle(bundle)
    assert snapshot.index == ()
    assert snapshot.ledger[0].group_id == group
    await memory_rig.check_resume(run, bundle)


@pytest.mark.parametrize(("phase", "unit"), IN_A_CLEAR)
async def test_a_save_waits_for_an_eviction_by_another_task(
    memory_rig: Rig, phase: str, unit: int | None
) -> None:
    rig, groups = memory_rig, memory_rig.batch(1)
    run = await rig.run_to(1)
    await run.commit(*groups)

    async def evict() -> None:
        async with run.state.barrier.mutation("evict") as slot:
            await run.state.buffer.evict(slot, 1, groups)

    hold = rig.plane_holds.hold("clear", phase, unit)
    run.spawn(evict())
    await run.at(hold)
    run.cut.release()
    await run.quiet()
    assert run.state.barrier.waiting == ("cut",)
    hold.release()
    bundle = await run.published(1)
    assert rig.check_bundle(bundle).index == ()
    await run.crash()
    resumed = await rig.resume(bundle, started=False)
    assert resumed.loaded == []


# Cancellation in the middle of a commit, with a save waiting.


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("point", [*IN_A_COMMIT, Action.ROLLBACK_GROUP], ids=str)
async def test_a_commit_that_is_cancelled_while_a_save_waits_leaves_no_rows(
    rig: Rig, point: Action, times: int
) -> None:
    group = rig.batch(1)[0]
    run = await rig.run_to(1)
    if point is Action.ROLLBACK_GROUP:
        begun = run.holds.hold(Action.COMMIT_GROUP, group=group)
        run.generator.finish(group)
        await run.at(begun)
        run.engine.attempts[group].task.cancel()
    hold = run.holds.hold(point, group=group)
    await commit_is_cancelled(run, group, hold, times)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(("phase", "unit"), IN_A_PUT)
async def test_a_put_that_is_cancelled_while_a_save_waits_leaves_no_rows(
    memory_rig: Rig, phase: str, unit: int | None, times: int
) -> None:
    run = await memory_rig.run_to(1)
    hold = memory_rig.plane_holds.hold("put", phase, unit)
    await commit_is_cancelled(run, memory_rig.batch(1)[0], hold, times)


async def commit_is_cancelled(run: Incarnation, group: str, hold: Hold, times: int) -> None:
    rig = run.rig
    run.generator.finish(group)
    await run.at(hold)
    run.cut.release()
    await run.quiet()
    assert run.state.barrier.waiting == ("cut",)
    task = run.engine.attempts[group].task
    for _ in range(times):
        task.cancel()
        await run.quiet()
    hold.release()
    bundle = await run.published(1)
    await asyncio.wait({task})
    assert task.cancelled()
    snapshot = rig.check_bundle(bundle)
    assert snapshot.index == ()
    assert (snapshot.ledger[0].group_id, snapshot.ledger[0].phase) == (group, Phase.ADMITTED)
    await rig.check_resume(run, bundle)


async def test_a_put_that_is_cancelled_in_a_store_that_does_not_answer_leaves_no_rows(
    rig: Rig,
) -> None:
    group = rig.batch(1)[0]
    run = await rig.run_to(1)
    await run.logged(Action.LAUNCH_GROUP, group=group)
    with rig.harness.stalled():
        run.generator.finish(group)
        await run.quiet()
        run.cut.release()
        run.engine.attempts[group].task.cancel()
        await run.quiet()
        assert run.state.barrier.waiting == ("cut",)
    bundle = await run.published(1)
    assert rig.check_bundle(bundle).index == ()
    await rig.check_resume(run, bundle)


# What is stale, against commits and requests for a save.


async def test_a_group_that_is_committed_while_another_is_aborted_is_left_alone(
    rig: Rig,
) -> None:
    async with two_stale_groups(rig) as run:
        first, second = rig.batch(1)
        hold = run.holds.hold(Action.ABORT_STALE, group=first)
        run.spawn(run.engine.abort_stale(run.state.version.value))
        await run.at(hold)
        run.generator.finish(second)
        await run.logged(Action.COMMIT_GROUP, group=second)
        hold.release()
        await run.others()
        await run.finish()
    assert groups_of(run.log.records, Action.ABORT_STALE) == [first]
    assert groups_of(run.log.records, Action.EVICT_GROUPS) == [second]
    rig.check_end(run, lost=2)


async def test_a_group_that_is_committed_while_another_is_evicted_is_evicted_too(
    memory_rig: Rig,
) -> None:
    rig = memory_rig
    async with two_stale_groups(rig) as run:
        first, second = rig.batch(1)
        hold = rig.plane_holds.hold("clear", "mark")
        run.generator.finish(first)
        await run.at(hold)
        run.generator.finish(second)
        await run.logged(Action.COMMIT_GROUP, group=second)
        await run.quiet()
        assert run.state.settled
        hold.release()
        await run.finish()
    assert groups_of(run.log.records, Action.EVICT_GROUPS) == [first, second]
    rig.check_end(run, lost=2)


async def test_a_save_that_is_asked_for_during_an_eviction_is_published(
    memory_rig: Rig,
) -> None:
    rig = memory_rig
    async with two_stale_groups(rig) as run:
        first, missing = rig.batch(1)
        hold = rig.plane_holds.hold("clear", "mark")
        run.generator.finish(first)
        await run.at(hold)
        run.controller.request_save()
        hold.release()
        bundle = await run.published(1)
        snapshot = rig.check_bundle(bundle)
        assert [record.group_id for record in snapshot.ledger] == [missing]
        await rig.check_resume(run, bundle, lost=2)


# The fault that all this is about.


@pytest.mark.parametrize("point", WINDOW, ids=str)
async def test_a_batch_that_is_admitted_around_a_save_is_not_dropped_on_resume(
    memory_rig: Rig, point: Action
) -> None:
    await the_old_fault(memory_rig, point)


async def test_a_batch_that_is_admitted_around_a_save_is_not_dropped_on_the_real_store(
    rig: Rig,
) -> None:
    await the_old_fault(rig, Action.READ_LOADER)


async def the_old_fault(rig: Rig, point: Action) -> None:
    """Gate window 1, four prompts a step, trainer at step 7, cursor 6; then a save."""
    rig.configure(prompts_per_step=4, task={"prompts": 40})
    admission: list[Hold] = []

    async def prepare(run: Incarnation) -> None:
        admission.append(run.holds.hold(Action.COMMIT_ADMISSION, admission=7))

    run = await rig.run_to(7, prepare)
    await run.at(admission[0])
    assert (run.state.version.value, run.state.sampler.cursor) == (7, 6)
    window = run.holds.hold(point)
    run.cut.release()
    await run.at(window)
    run.generator.finish_all()
    admission[0].release()
    await run.quiet()
    assert run.state.barrier.waiting == ("admission",)
    window.release()
    bundle = await run.published(7)
    await run.logged(Action.COMMIT_ADMISSION, stamp=7)
    snapshot = rig.check_bundle(bundle)
    assert (snapshot.version, snapshot.cursor, snapshot.index) == (7, 6, ())
    assert {(r.phase, r.stamp) for r in snapshot.ledger} == {(Phase.RESERVED, None)}
    resumed = await rig.check_resume(run, bundle)
    first = await resumed.logged(Action.COMMIT_ADMISSION)
    assert (first.args["stamp"], first.args["groups"]) == (7, rig.batch(7))
    assert trained_per_step(resumed.log.records)[7] == sorted(rig.batch(7))
