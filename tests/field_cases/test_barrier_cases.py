"""Public failures of locks: waiting, cancellation, hand-over, order, and what is held meanwhile."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import cutlock
from cutlock.alphabet import Action
from cutlock.barrier import Barrier
from cutlock.run.state import Permits
from cutlock.samplers.base import TrainerVersion
from cutlock.waiting import Signal
from tests.support.checks import groups_of, trained
from tests.support.loop import Holder, ask, holding, is_free, settle, turns
from tests.support.rig import Incarnation, Rig

SIDES = ("slot", "cut")


@pytest.fixture
def barrier() -> Barrier:
    return Barrier()


class TestCancelledWhileWaiting:
    """FB-51: one holds, one of the other side waits and is cancelled."""

    @pytest.mark.parametrize(("holds", "waits"), [("slot", "cut"), ("cut", "slot")])
    @pytest.mark.parametrize("asks_next", SIDES)
    async def test_fb_51_a_cancelled_wait_leaves_the_barrier_as_if_it_had_never_come(
        self, barrier: Barrier, holds: str, waits: str, asks_next: str
    ) -> None:
        holder, waiting = await holding(barrier, holds, waits)
        waiting.task.cancel()
        await settle()
        assert waiting.task.cancelled()
        assert (barrier.slots, barrier.cut_open) == (holds == "slot", holds == "cut")
        assert barrier.waiting == ()
        await holder.left()
        (after,) = await holding(barrier, asks_next)
        assert after.inside
        await after.left()
        await is_free(barrier)

    @pytest.mark.parametrize(("holds", "waits"), [("slot", "cut"), ("cut", "slot")])
    async def test_fb_51_a_wait_that_is_timed_out_leaves_the_barrier_as_if_it_had_never_come(
        self, barrier: Barrier, holds: str, waits: str
    ) -> None:
        (holder,) = await holding(barrier, holds)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0), ask(barrier, waits):
                pytest.fail(f"a {holds} is live")
        await holder.left()
        await is_free(barrier)

    async def test_fb_51_slots_that_stood_behind_the_cancelled_cut_go_on_at_once(
        self, barrier: Barrier
    ) -> None:
        reader, writer, *behind = await holding(barrier, "slot", "cut", "slot", "slot")
        writer.task.cancel()
        await settle()
        assert [holder.inside for holder in (reader, *behind)] == [True, True, True]
        for holder in (reader, *behind):
            await holder.left()
        await is_free(barrier)


class TestAfterThePause:
    """FB-59: eight were let in before the pause, and eight are afterwards."""

    async def test_fb_59_all_who_waited_through_a_cut_are_let_in_when_it_leaves(
        self, barrier: Barrier
    ) -> None:
        cut, *waiting = await holding(barrier, "cut", *["slot"] * 8)
        cut.leave()
        await turns(2)  # one in which the cut leaves, one in which all are inside
        assert [holder.inside for holder in waiting] == [True] * 8
        for holder in waiting:
            await holder.left()
        await is_free(barrier)

    @pytest.mark.parametrize("sampler", ["windowed", "in_order"])
    @pytest.mark.parametrize("kept_out", ["the commits", "the admissions"])
    async def test_fb_59_a_pump_that_a_cut_has_drained_is_full_again_afterwards(
        self, memory_rig: Rig, sampler: str, kept_out: str
    ) -> None:
        rig = memory_rig
        rig.configure(
            task={"prompts": 24},
            # The gate of `in_order` lets in eight; `windowed` has none, and is to evict nothing.
            sampler={"name": sampler, "window": 3 if sampler == "in_order" else 12},
            buffer={"capacity": 8},
        )
        run = await rig.launch(started=False)
        step = 1 if kept_out == "the commits" else 4
        cut = run.holds.hold(Action.OPEN_CUT, step=step)
        run.start()
        await run.published(0)
        await run.quiet()
        assert run.engine.in_flight == 8
        first = groups_of(run.log.records, Action.LAUNCH_GROUP)
        if kept_out == "the commits":
            # The six that are finished during the cut are committed after it, all at once.
            run.generator.finish(*rig.batch(0))
            await run.logged(Action.SYNC_WEIGHTS, version=1)
            run.controller.request_save()
            await run.at(cut)
            run.generator.finish(*first)
        else:
            # Nothing is in flight when the cut is open: admission stands before its door.
            admission = run.holds.hold(Action.RESERVE_BATCH)
            run.generator.finish(*first)
            await run.logged(Action.SYNC_WEIGHTS, version=4)
            run.controller.request_save()
            await run.at(cut)
            admission.release()
        await run.quiet()
        assert run.state.barrier.waiting
        cut.release()
        await run.published(step)
        await run.logged(Action.SYNC_WEIGHTS, version=4)
        await run.quiet()
        assert run.engine.in_flight == 8
        assert groups_of(run.log.records, Action.LAUNCH_GROUP)[:8] == first
        assert not {*first} & {*run.engine.attempts}
        await run.finish()
        rig.check_end(run)


class TestNoOrderedChannel:
    """FB-62: two saves back to back, each with work in the background and an end of its own."""

    async def test_fb_62_what_is_written_in_the_background_holds_nothing_of_the_barrier(
        self, memory_rig: Rig
    ) -> None:
        rig = memory_rig
        run = await rig.run_to(1)
        background = [
            run.holds.hold(action)
            for action in (
                Action.WRITE_POLICY,
                Action.WRITE_SIDECARS,
                Action.WRITE_MANIFEST,
                Action.PUBLISH_BUNDLE,
                Action.PRUNE_BUNDLES,
            )
        ]
        run.cut.release()
        for hold in background:
            await run.at(hold)
            await run.quiet()
            await is_free(run.state.barrier)
            hold.release()
        await run.published(1)
        await run.finish()
        rig.check_end(run)

    async def test_fb_62_a_save_that_is_asked_for_during_a_save_begins_when_that_has_ended(
        self, memory_rig: Rig
    ) -> None:
        rig = memory_rig
        rig.configure(checkpoint={"every": 1})
        run = await rig.run_to(1)
        writing = run.holds.hold(Action.WRITE_SIDECARS)
        run.cut.release()
        await run.at(writing)
        run.generator.finish_all()
        run.controller.request_save()
        await run.quiet()
        # The trainer is the one who saves, so neither a step nor a cut overtakes the save.
        assert len(trained(run.log.records)) == 2
        await run.finish()
        rig.check_end(run)
        order = [(r.action, r.args["step"]) for r in run.log.records if r.action in SAVE]
        assert order == [(action, step) for step in range(5) for action in SAVE]


SAVE = (Action.REQUEST_CUT, Action.CLOSE_CUT, Action.WRITE_SIDECARS, Action.PUBLISH_BUNDLE)


class TestMovesAndTheCut:
    """FB-72: the reader of several values, and a dispatcher that moves between the reads."""

    @pytest.mark.parametrize(
        ("first", "second"),
        [(Action.READ_CURSOR, Action.READ_LOADER), (Action.READ_LOADER, Action.READ_LEDGER)],
        ids=str,
    )
    async def test_fb_72_no_prompt_is_handed_out_between_two_reads_of_a_cut(
        self, memory_rig: Rig, first: Action, second: Action
    ) -> None:
        rig = memory_rig
        rig.configure(prompts_per_step=1, sampler={"window": 4})

        async def four_are_out(run: Incarnation) -> None:
            run.pump_hold = run.holds.hold(Action.RESERVE_BATCH, skip=4)

        run = await rig.run_to(0, four_are_out)
        await run.at(run.pump_hold)
        between = run.holds.hold(second)
        run.cut.release()
        await run.at(between)
        await run.logged(first)
        run.pump_hold.release()  # prompt 4 is wanted now
        await run.quiet()
        assert run.state.barrier.waiting == ("loader_advance",)
        assert run.state.loader.position == 4
        between.release()
        bundle = await run.published(0)
        cut = rig.check_bundle(bundle)
        assert cut.loader.position == 4
        assert [record.group_id for record in cut.ledger] == rig.served[:4]
        await run.quiet()
        await rig.check_resume(run, bundle)

    async def test_fb_72_who_waits_at_the_gate_holds_no_slot_and_keeps_no_cut_waiting(
        self, memory_rig: Rig
    ) -> None:
        rig = memory_rig
        rig.configure(buffer={"capacity": 8})
        run = await rig.launch()
        await run.published(0)
        await run.quiet()
        # Two batches are out; the third has a place, and the gate is shut for it.
        assert run.state.sampler.cursor == 1
        assert len(run.state.ledger.reserved()) == 1
        assert run.state.permits.held == 4 + 1
        assert (run.state.barrier.slots, run.state.barrier.waiting) == (0, ())
        cut = asyncio.ensure_future(run.read_cut())
        await turns(3)
        assert cut.done()
        assert (cut.result().cursor, cut.result().loader.position) == (1, 6)
        await run.finish()
        rig.check_end(run)


class TestNotifiedAndCancelled:
    """FB-76: A is woken and cancelled before it runs; B must not sleep on."""

    @pytest.mark.parametrize(
        ("holds", "sides"),
        [
            ("slot", ("cut", "cut")),
            ("slot", ("cut", "slot")),
            ("cut", ("cut", "cut")),
            ("cut", ("cut", "slot")),
            ("cut", ("slot", "cut")),
            ("cut", ("slot", "slot")),
        ],
        ids=str,
    )
    async def test_fb_76_a_place_that_was_handed_to_a_cancelled_task_goes_to_the_next(
        self, barrier: Barrier, holds: str, sides: tuple[str, str]
    ) -> None:
        holder, first, second = await holding(barrier, holds, *sides)
        holder.leave()
        await turns()  # it leaves, and hands over
        assert (barrier.slots > 0, barrier.cut_open) == (sides[0] == "slot", sides[0] == "cut")
        assert not first.inside
        assert not second.inside
        first.task.cancel()
        await settle()
        assert first.task.cancelled()
        assert second.inside
        await second.left()
        await is_free(barrier)

    @pytest.mark.parametrize("what", ["a place in the buffer", "a signal", "a version"])
    async def test_fb_76_whatever_else_is_waited_for_wakes_the_next_when_the_first_is_cancelled(
        self, what: str
    ) -> None:
        permits, signal, version = Permits(1), Signal(), TrainerVersion()
        await permits.acquire()
        wait: Callable[[], Awaitable[None]]
        wait, wake = {
            "a place in the buffer": (permits.acquire, permits.release),
            "a signal": (signal.wait, signal.notify),
            "a version": (
                lambda: version.wait_for(lambda now: now >= 1),
                lambda: version.raise_to(1),
            ),
        }[what]
        first, second = (asyncio.ensure_future(wait()) for _ in range(2))
        await settle()
        wake()
        first.cancel()
        await settle()
        assert first.cancelled()
        assert second.done()

    def test_fb_76_the_barrier_is_built_on_none_of_the_primitives_that_lost_wake_ups(self) -> None:
        """So it is the same on a Python with the flaw and on one without."""
        source = Path(cutlock.__file__).parent
        used = {
            node.attr
            for file in ("barrier.py", "waiting.py")
            for node in ast.walk(ast.parse((source / file).read_text()))
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "asyncio"
        }
        assert "Future" in used
        assert not used & {"Condition", "Event", "Lock", "Semaphore", "Queue", "Barrier"}


class TestEnteredThroughAWrapper:
    """FB-78: the section is entered by a helper, perhaps in a task of its own, and left here."""

    @pytest.mark.parametrize("side", SIDES)
    @pytest.mark.parametrize("waits", [False, True])
    @pytest.mark.parametrize("how", ["wait_for", "a task", "timeout"])
    async def test_fb_78_a_section_that_a_timeout_wrapper_has_entered_is_left_by_the_caller(
        self, barrier: Barrier, side: str, waits: bool, how: str
    ) -> None:
        section = ask(barrier, side)
        holder = (await holding(barrier, "cut"))[0] if waits else None
        if holder is not None:
            asyncio.get_running_loop().call_soon(holder.leave)
        if how == "wait_for":
            await asyncio.wait_for(section.__aenter__(), 10)
        elif how == "a task":
            await asyncio.ensure_future(section.__aenter__())
        else:
            async with asyncio.timeout(10):
                await section.__aenter__()
        assert section.alive
        assert (barrier.slots, barrier.cut_open) == (side == "slot", side == "cut")
        require = barrier.require_slot if side == "slot" else barrier.require_cut
        require(section)  # type: ignore[arg-type]
        await section.__aexit__(None, None, None)
        if holder is not None:
            await holder.task
        await is_free(barrier)

    @pytest.mark.parametrize("side", SIDES)
    async def test_fb_78_a_wrapper_that_gives_up_waiting_leaves_nothing_held(
        self, barrier: Barrier, side: str
    ) -> None:
        (holder,) = await holding(barrier, "cut")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask(barrier, side).__aenter__(), 0.001)
        assert barrier.waiting == ()
        await holder.left()
        await is_free(barrier)


class TestSteadySlots:
    """FB-80: slots keep arriving, each before the one before it has left."""

    async def test_fb_80_a_cut_is_taken_when_those_leave_that_came_before_it(
        self, barrier: Barrier
    ) -> None:
        (first,) = await holding(barrier, "slot")
        (cut,) = await holding(barrier, "cut")
        later: list[Holder] = []
        for _ in range(20):
            later += await holding(barrier, "slot")
            assert not later[-1].inside
        assert not cut.inside
        await first.left()
        await settle()
        assert cut.inside
        assert not any(slot.inside for slot in later)
        await cut.left()
        await settle()
        assert all(slot.inside for slot in later)
        for slot in later:
            await slot.left()
        await is_free(barrier)

    async def test_fb_80_a_save_is_taken_while_rollouts_keep_coming(self, memory_rig: Rig) -> None:
        """Every task that could enter a slot wants to, all the time, and the cut still comes."""
        rig = memory_rig
        run = await rig.run_to(1)
        barrier, going, entered = run.state.barrier, True, 0

        async def keeps_coming() -> None:
            nonlocal entered
            while going:
                async with barrier.mutation("steady"):
                    entered += 1
                    await turns(3)

        for place in range(4):
            run.spawn(keeps_coming())
            await turns(place)
        await turns(12)
        assert entered >= 8
        run.cut.release()
        bundle = await run.published(1)
        going = False
        await run.others()
        await rig.check_resume(run, bundle)
