"""Where the pumps and the save stand before an action, and what they look at again after it."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from cutlock.alphabet import Action
from cutlock.bundle.contents import decode_cut
from cutlock.bundle.verification import verify
from cutlock.errors import InventoryError
from cutlock.records import Phase
from cutlock.run.capture import Capture
from tests.support.checks import WINDOW, groups_of
from tests.support.mutations import (
    EPOCH,
    FAILS,
    SPARES,
    STALE,
    stale_in_flight,
    two_stale_groups,
)
from tests.support.rig import Incarnation, Rig
from tests.support.samplers import AdmitOnly
from tests.support.scripted import Hold


def actions(run: Incarnation, *wanted: Action) -> list[str]:
    return [record.action for record in run.log.records if record.action in wanted]


# The rollout pump.


async def test_before_the_gate_the_pump_holds_a_place_and_no_slot(memory_rig: Rig) -> None:
    rig = memory_rig
    gate: list[Hold] = []

    async def prepare(run: Incarnation) -> None:
        gate.append(run.holds.hold(Action.OPEN_GATE, admission=1))

    run = await rig.run_to(1, prepare)
    await run.at(gate[0])
    assert (run.state.permits.held, run.state.barrier.slots) == (1, 0)
    assert actions(run, Action.OPEN_GATE) == [Action.OPEN_GATE]
    run.cut.release()
    bundle = await run.published(1)
    snapshot = rig.check_bundle(bundle)
    assert [(r.group_id, r.phase) for r in snapshot.ledger] == [
        (group, Phase.RESERVED) for group in rig.batch(1)
    ]
    await rig.check_resume(run, bundle)


async def test_the_gate_is_found_open_before_the_admission_is_announced(memory_rig: Rig) -> None:
    rig = memory_rig
    run = await rig.launch(started=False)
    hold = run.holds.hold(Action.COMMIT_ADMISSION, admission=2)
    run.start()
    await run.published(0)
    await run.quiet()
    # Cursor 1, version 0 and a window of one: the gate is shut.
    assert run.state.sampler.cursor == 1
    assert not hold.reached.is_set()
    run.generator.finish(*rig.batch(0))
    await run.at(hold)
    assert run.state.barrier.slots == 0
    last = await run.logged(Action.OPEN_GATE, admission=2)
    assert last.args["version"] == run.state.version.value == 1
    assert run.state.sampler.cursor == 1
    await run.finish()
    rig.check_end(run)


async def test_an_admission_without_the_split_is_announced_in_its_slot(memory_rig: Rig) -> None:
    rig = memory_rig
    rig.configure_custom(AdmitOnly, buffer={"capacity": 8})
    run = await rig.launch(started=False)
    gate = run.holds.hold(Action.OPEN_GATE, admission=0)
    hold = run.holds.hold(Action.COMMIT_ADMISSION, admission=0)
    run.start()
    await run.at(gate)
    assert run.state.barrier.slots == 0
    gate.release()
    await run.at(hold)
    assert run.state.barrier.slots == 1
    assert actions(run, Action.OPEN_GATE, Action.COMMIT_ADMISSION) == [Action.OPEN_GATE]
    await run.finish()
    rig.check_end(run)


async def test_a_cut_waits_for_the_epoch_to_be_raised(memory_rig: Rig) -> None:
    rig = memory_rig
    rig.configure(**EPOCH.changes)
    advance: list[Hold] = []

    async def prepare(run: Incarnation) -> None:
        advance.append(run.holds.hold(Action.RESERVE_BATCH, skip=2))

    run = await rig.run_to(1, prepare)
    raising = run.holds.hold(Action.RAISE_EPOCH, epoch=1)
    advance[0].release()
    await run.at(raising)
    assert (run.state.loader.epoch, run.state.loader.position) == (0, 6)
    assert actions(run, Action.RAISE_EPOCH) == []
    run.cut.release()
    await run.quiet()
    assert run.state.barrier.waiting == ("cut",)
    raising.release()
    bundle = await run.published(1)
    snapshot = rig.check_bundle(bundle)
    assert (snapshot.loader.epoch, snapshot.loader.position) == (1, 0)
    await rig.check_resume(run, bundle)


async def test_an_empty_spare_pool_is_not_drained(memory_rig: Rig) -> None:
    rig = memory_rig
    run = await rig.launch(started=False)
    hold = run.holds.hold(Action.DRAIN_SPARE_POOL)
    report = await run.finish()
    assert not hold.reached.is_set()
    assert "spare_drain" not in report.slots
    rig.check_end(run)


async def test_a_spare_pool_is_drained_until_it_is_empty_and_no_more(memory_rig: Rig) -> None:
    rig = memory_rig
    rig.configure(buffer=SPARES)
    run = await rig.launch(started=False)
    hold = run.holds.hold(Action.DRAIN_SPARE_POOL, skip=1)
    report = await run.finish()
    assert not hold.reached.is_set()
    assert report.slots["spare_drain"].entered == 1
    assert actions(run, Action.DRAIN_SPARE_POOL) == [Action.DRAIN_SPARE_POOL]
    rig.check_end(run)


# The train pump looks again.


async def test_a_save_that_is_asked_for_before_a_selection_comes_first(rig: Rig) -> None:
    run = await rig.launch(started=False)
    hold = run.holds.hold(Action.SELECT_GROUPS, step=1)
    run.generator.finish(*rig.batch(0), *rig.batch(1))
    run.start()
    await run.at(hold)
    run.controller.request_save()
    hold.release()
    bundle = await run.published(1)
    snapshot = rig.check_bundle(bundle)
    assert sorted(entry.group_id for entry in snapshot.index) == sorted(rig.batch(1))
    await rig.check_resume(run, bundle)


async def test_a_save_that_is_asked_for_before_an_eviction_comes_first(rig: Rig) -> None:
    async with two_stale_groups(rig) as run:
        first, other = rig.batch(1)
        hold = run.holds.hold(Action.EVICT_GROUPS)
        run.generator.finish(first)
        await run.at(hold)
        assert run.state.barrier.slots == 0
        run.controller.request_save()
        hold.release()
        bundle = await run.published(1)
        snapshot = rig.check_bundle(bundle)
        assert [entry.group_id for entry in snapshot.index] == [first]
        assert [record.group_id for record in snapshot.ledger] == [other]
        await rig.check_resume(run, bundle, lost=2)


async def test_what_has_come_before_an_eviction_is_evicted_with_it(memory_rig: Rig) -> None:
    rig = memory_rig
    async with two_stale_groups(rig) as run:
        first, second = rig.batch(1)
        hold = run.holds.hold(Action.EVICT_GROUPS)
        run.generator.finish(first)
        await run.at(hold)
        run.generator.finish(second)
        await run.logged(Action.COMMIT_GROUP, group=second)
        hold.release()
        evicted = await run.logged(Action.EVICT_GROUPS)
        assert evicted.args["groups"] == [first, second]
        await run.finish()
    rig.check_end(run, lost=2)


async def test_what_has_turned_stale_before_a_selection_is_evicted_first(memory_rig: Rig) -> None:
    rig = memory_rig
    rig.configure(**{**STALE, "task": {"prompts": 6}})
    run = await rig.launch(started=False)
    launches = [run.holds.hold(Action.LAUNCH_GROUP, group=group) for group in rig.batch(1)]
    gate = run.holds.hold(Action.OPEN_GATE, admission=2)
    select = run.holds.hold(Action.SELECT_GROUPS, step=1)
    run.generator.finish(*rig.batch(0), *rig.batch(2))
    run.start()
    await run.logged(Action.SYNC_WEIGHTS, version=1)
    gate.release()
    await run.at(select)
    run.generator.finish(*rig.batch(1))
    for hold, group in zip(launches, rig.batch(1), strict=True):
        hold.release()
        await run.logged(Action.COMMIT_GROUP, group=group)
    select.release()
    await run.finish()
    chosen = (Action.EVICT_GROUPS, Action.SELECT_GROUPS)
    assert actions(run, *chosen)[1:] == [*chosen]
    assert groups_of(run.log.records, Action.EVICT_GROUPS) == rig.batch(1)
    rig.check_end(run, lost=2)


async def test_a_step_that_needs_more_groups_by_now_is_not_selected_yet(memory_rig: Rig) -> None:
    """Under `weight_fifo` a batch of the same version belongs to the step that waits."""
    rig = memory_rig
    rig.configure(sampler={"name": "weight_fifo", "window": 1}, failures=FAILS)
    lost, first = rig.batch(0)
    run = await rig.launch(started=False)
    reserve = run.holds.hold(Action.RESERVE_BATCH, skip=1)
    select = run.holds.hold(Action.SELECT_GROUPS, step=0)
    run.generator.fail(lost)
    run.generator.finish(lost)
    run.start()
    await run.logged(Action.DROP_GROUP, group=lost)
    run.generator.finish(first)
    await run.at(select)
    reserve.release()
    await run.logged(Action.COMMIT_ADMISSION, admission=1)
    select.release()
    await run.quiet()
    assert actions(run, Action.SELECT_GROUPS) == []
    assert run.controller.status().waiting_for == "2 groups of step 0"
    run.generator.finish(rig.batch(1)[0])
    selected = await run.logged(Action.SELECT_GROUPS, step=0)
    assert selected.args["groups"] == [first, rig.batch(1)[0]]
    await run.finish()
    rig.check_end(run, lost=1)


async def test_rollouts_that_begin_before_the_weight_sync_are_aborted_in_the_order_of_dispatch(
    memory_rig: Rig,
) -> None:
    rig = memory_rig
    rig.configure(**STALE, seed=3)
    assert rig.batch(1) != sorted(rig.batch(1))
    run = await rig.launch(started=False)
    sync = run.holds.hold(Action.SYNC_WEIGHTS, version=1)
    script = stale_in_flight(run)
    await anext(script)
    run.start()
    await run.published(0)
    run.generator.finish(*rig.batch(0))
    await run.at(sync)
    await anext(script)
    await script.aclose()
    assert groups_of(run.log.records, Action.ABORT_STALE) == []
    sync.release()
    await run.logged(Action.SYNC_WEIGHTS, version=1)
    assert groups_of(run.log.records, Action.ABORT_STALE) == rig.batch(1)
    await run.finish()
    assert run.generator.versions == [0, 1]
    rig.check_end(run, lost=2)


async def test_the_version_has_not_moved_when_it_is_announced(memory_rig: Rig) -> None:
    rig = memory_rig
    run = await rig.launch(started=False)
    hold = run.holds.hold(Action.RAISE_VERSION, version=1)
    run.generator.finish(*rig.batch(0))
    run.start()
    await run.at(hold)
    assert (run.state.step, run.state.version.value) == (0, 0)
    assert run.log.records[-1].action == Action.CLEAR_ROWS
    await run.finish()
    rig.check_end(run)


# The save.


async def test_a_request_for_a_cut_is_recorded_when_it_is_made(memory_rig: Rig) -> None:
    run = await memory_rig.run_to(1)
    assert len(actions(run, Action.REQUEST_CUT)) == 1
    assert not run.state.barrier.cut_open
    run.cut.release()
    await run.published(1)
    assert len(actions(run, Action.REQUEST_CUT)) == 2


async def test_what_a_save_has_read_can_be_looked_at_until_it_is_published(
    memory_rig: Rig,
) -> None:
    rig = memory_rig
    run = await rig.run_to(1)
    points = [*WINDOW, Action.WRITE_POLICY, Action.PUBLISH_BUNDLE]
    holds = {point: run.holds.hold(point) for point in (*points, Action.PRUNE_BUNDLES)}
    run.cut.release()
    read: list[int] = []
    for point in points:
        await run.at(holds[point])
        assert run.saver.capture is not None
        read.append(_reads(run.saver.capture))
        snapshot = run.saver.capture.snapshot(rows=True) if read[-1] == 5 else None
        holds[point].release()
    assert read == [0, 0, 1, 2, 3, 4, 5, 5, 5, 5]
    await run.at(holds[Action.PRUNE_BUNDLES])
    assert run.saver.capture is None
    assert decode_cut(verify(rig.directory.root / "step_1")) == snapshot


def _reads(capture: Capture) -> int:
    return sum(value is not None for value in dataclasses.asdict(capture).values())


async def test_rows_that_come_just_before_the_plane_is_saved_are_noticed(memory_rig: Rig) -> None:
    run = await memory_rig.run_to(1)
    hold = run.holds.hold(Action.SAVE_PLANE)
    run.cut.release()
    await run.at(hold)
    await run.state.plane.put(["nobody's"], {"reward": [torch.tensor([1.0])]})
    hold.release()
    with pytest.raises(InventoryError, match=r"not in the index \[\"nobody's\"\]"):
        await run.finish()


async def test_rows_that_nobody_owns_are_noticed_when_no_rows_are_saved(memory_rig: Rig) -> None:
    memory_rig.configure(checkpoint={"rows": False})
    run = await memory_rig.run_to(1)
    await run.state.plane.put(["nobody's"], {"reward": [torch.tensor([1.0])]})
    run.cut.release()
    with pytest.raises(InventoryError, match=r"not in the index \[\"nobody's\"\]"):
        await run.finish()
