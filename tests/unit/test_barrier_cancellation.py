"""Cancellation of the barrier: while waiting, at the hand-over, and while effects run."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable

import pytest

from cutlock.barrier import Barrier, Cut, Slot
from cutlock.errors import DeadSectionError
from tests.support.loop import Holder, ask, holding, is_free, settle, turns

SIDES = ("slot", "cut")


@pytest.fixture
def barrier() -> Barrier:
    return Barrier()


async def cancelled(*holders: Holder) -> None:
    """Wait for tasks that were cancelled, and show that they ended so."""
    await asyncio.wait([holder.task for holder in holders])
    assert all(holder.task.cancelled() for holder in holders)


class TestWaiting:
    async def test_a_slot_that_is_cancelled_while_it_waits_was_never_there(
        self, barrier: Barrier
    ) -> None:
        cut, slot, behind = await holding(barrier, "cut", "a", "b")
        slot.task.cancel()
        await cancelled(slot)
        assert barrier.waiting == ("b",)
        await cut.left()
        await settle()
        assert behind.inside
        assert barrier.slots == 1
        await behind.left()
        await is_free(barrier)

    async def test_a_cut_that_is_cancelled_while_it_waits_opens_the_door_again(
        self, barrier: Barrier
    ) -> None:
        slot, cut, *behind = await holding(barrier, "a", "cut", "b", "c")
        cut.task.cancel()
        await cancelled(cut)
        await settle()
        assert slot.inside
        assert all(holder.inside for holder in behind)
        assert barrier.slots == 3
        for holder in (slot, *behind):
            await holder.left()
        await is_free(barrier)

    async def test_the_lock_is_usable_after_a_waiting_cut_timed_out(self, barrier: Barrier) -> None:
        slot = (await holding(barrier, "a"))[0]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0), barrier.checkpoint():
                pytest.fail("a slot is live")
        await slot.left()
        assert barrier.slots == 0
        await is_free(barrier)

    @pytest.mark.parametrize("side", SIDES)
    async def test_a_second_cancellation_while_waiting_changes_nothing(
        self, barrier: Barrier, side: str
    ) -> None:
        cut, waiting = await holding(barrier, "cut", side)
        waiting.task.cancel()
        waiting.task.cancel()
        await cancelled(waiting)
        await cut.left()
        await is_free(barrier)

    async def test_a_cut_behind_a_cancelled_cut_still_waits_for_the_slot(
        self, barrier: Barrier
    ) -> None:
        slot, first, second = await holding(barrier, "a", "cut", "cut")
        first.task.cancel()
        await cancelled(first)
        assert not second.inside
        await slot.left()
        await settle()
        assert second.inside
        await second.left()
        await is_free(barrier)

    async def test_a_cancelled_section_leaves_no_trace_in_the_statistics(
        self, barrier: Barrier
    ) -> None:
        slot, cut, behind = await holding(barrier, "a", "cut", "b")
        behind.task.cancel()
        cut.task.cancel()
        await cancelled(cut, behind)
        await slot.left()
        assert barrier.statistics().cuts == ()
        assert (
            barrier.statistics().slots["b"].entered,
            barrier.statistics().slots["b"].waited,
        ) == (0, 0)

    @pytest.mark.parametrize("side", SIDES)
    async def test_a_cancelled_entry_is_not_entered_again(
        self, barrier: Barrier, side: str
    ) -> None:
        cut, waiting = await holding(barrier, "cut", side)
        waiting.task.cancel()
        await cancelled(waiting)
        assert repr(waiting.section).startswith("<dead ")
        await cut.left()

    @pytest.mark.parametrize("side", SIDES)
    async def test_a_coroutine_that_is_thrown_away_while_it_waits_takes_no_place(
        self, barrier: Barrier, side: str
    ) -> None:
        slot, cut = await holding(barrier, "a", "cut")
        entry = ask(barrier, side).__aenter__()
        entry.send(None)
        assert len(barrier.waiting) == 2
        entry.close()
        assert barrier.waiting == ("cut",)
        await slot.left()
        await cut.left()
        await is_free(barrier)


class TestHandOver:
    """The place is given and the task is cancelled before it runs: two things in one turn."""

    @pytest.mark.parametrize("times", [1, 2])
    async def test_a_slot_gives_its_place_back(self, barrier: Barrier, times: int) -> None:
        cut, slot, behind = await holding(barrier, "cut", "a", "cut")
        cut.leave()
        await turns(1)
        assert barrier.slots == 1
        assert not slot.inside
        for _ in range(times):
            slot.task.cancel()
        await cancelled(slot)
        await settle()
        assert behind.inside
        assert barrier.slots == 0
        await behind.left()
        await is_free(barrier)

    @pytest.mark.parametrize("times", [1, 2])
    async def test_a_cut_gives_its_place_back(self, barrier: Barrier, times: int) -> None:
        slot, cut, *behind = await holding(barrier, "a", "cut", "b", "c", "cut", "d")
        slot.leave()
        await turns(1)
        assert barrier.cut_open
        assert not cut.inside
        for _ in range(times):
            cut.task.cancel()
        await cancelled(cut)
        await settle()
        assert [holder.inside for holder in behind] == [True, True, False, False]
        for holder in behind:
            await holder.left()
        await is_free(barrier)

    @pytest.mark.parametrize("side", SIDES)
    async def test_cancelled_before_the_hand_over_in_the_same_turn(
        self, barrier: Barrier, side: str
    ) -> None:
        cut, waiting, behind = await holding(barrier, "cut", side, "b")
        waiting.task.cancel()
        cut.leave()
        await turns(1)
        await cancelled(waiting)
        await settle()
        assert behind.inside
        await behind.left()
        await is_free(barrier)

    async def test_a_whole_row_that_is_cancelled_at_the_hand_over_wakes_the_one_behind(
        self, barrier: Barrier
    ) -> None:
        cut, a, b, c, last = await holding(barrier, "cut", "a", "b", "c", "cut")
        cut.leave()
        await turns(1)
        assert barrier.slots == 3
        for holder in (a, b, c):
            holder.task.cancel()
        await cancelled(a, b, c)
        await settle()
        assert last.inside
        await last.left()
        await is_free(barrier)

    async def test_a_slot_that_comes_after_a_cancelled_queue_is_not_forgotten(
        self, barrier: Barrier
    ) -> None:
        slot, cut = await holding(barrier, "a", "cut")
        cut.task.cancel()
        late = Holder(barrier.mutation("late"))
        await slot.left()
        await settle()
        assert late.inside
        await late.left()
        await is_free(barrier)


class TestInside:
    @pytest.mark.parametrize("side", SIDES)
    async def test_a_holder_that_is_cancelled_leaves(self, barrier: Barrier, side: str) -> None:
        holder, behind = await holding(barrier, side, "cut")
        holder.task.cancel()
        await cancelled(holder)
        await settle()
        assert behind.inside
        await behind.left()
        await is_free(barrier)

    @pytest.mark.parametrize("side", SIDES)
    async def test_a_task_that_is_cancelled_before_it_ran_asked_for_nothing(
        self, barrier: Barrier, side: str
    ) -> None:
        holder = Holder(ask(barrier, side))
        holder.task.cancel()
        await cancelled(holder)
        assert barrier.statistics().slots == {}
        await is_free(barrier)


class Effect:
    """Something that cannot be stopped: it ends when the test says so."""

    def __init__(self, section: Slot | Cut) -> None:
        self._section = section
        self._end = asyncio.get_running_loop().create_future()
        self.ended_inside = False
        self.task = asyncio.ensure_future(self._work())

    async def _work(self) -> str:
        result: str = await self._end
        self.ended_inside = self._section.alive
        return result

    def end(self) -> None:
        self._end.set_result("effect")

    def fail(self) -> None:
        self._end.set_exception(OSError("effect"))


class TestEffects:
    async def test_the_result_of_an_effect_is_returned(self, barrier: Barrier) -> None:
        async def effect() -> int:
            await turns(2)
            return 7

        for side in SIDES:
            async with ask(barrier, side) as section:
                assert await section.run(effect()) == 7

    @pytest.mark.parametrize("side", SIDES)
    async def test_a_section_that_has_ended_holds_on_to_no_result(
        self, barrier: Barrier, side: str
    ) -> None:
        async with ask(barrier, side) as section:
            effect = asyncio.ensure_future(turns(1))
            await section.run(effect)
        kept = weakref.ref(effect)
        del effect
        gc.collect()
        assert kept() is None

    async def test_the_error_of_an_effect_is_raised(self, barrier: Barrier) -> None:
        async def effect() -> None:
            raise OSError("disk")

        async with barrier.mutation("a") as slot:
            with pytest.raises(OSError, match="disk"):
                await slot.run(effect())

    @pytest.mark.parametrize("times", [1, 2, 3])
    @pytest.mark.parametrize("side", SIDES)
    async def test_a_cancellation_is_delivered_after_the_effect_has_ended(
        self, barrier: Barrier, side: str, times: int
    ) -> None:
        section = ask(barrier, side)
        effect = Effect(section)

        async def use() -> None:
            async with section:
                await section.run(effect.task)

        task = asyncio.create_task(use())
        await settle()
        for _ in range(times):
            task.cancel()
            await settle()
        assert section.alive
        assert not task.done()
        effect.end()
        await asyncio.wait({task})
        assert task.cancelled()
        assert effect.ended_inside
        await is_free(barrier)

    @pytest.mark.parametrize("times", [1, 2])
    async def test_a_cancellation_outranks_the_error_of_the_effect_and_names_it(
        self, barrier: Barrier, times: int
    ) -> None:
        caught: list[BaseException] = []
        section = barrier.mutation("a")
        effect = Effect(section)

        async def use() -> None:
            async with section:
                try:
                    await section.run(effect.task)
                except asyncio.CancelledError as error:
                    caught.append(error)
                    raise

        task = asyncio.create_task(use())
        await settle()
        for _ in range(times):
            task.cancel()
            await settle()
        effect.fail()
        await asyncio.wait({task})
        assert task.cancelled()
        assert isinstance(caught[0].__cause__, OSError)
        await is_free(barrier)

    async def test_the_cancellation_of_the_caller_outranks_that_of_the_effect(
        self, barrier: Barrier
    ) -> None:
        caught: list[BaseException] = []
        effect: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def use() -> None:
            async with barrier.mutation("a") as slot:
                try:
                    await slot.run(effect)
                except asyncio.CancelledError as error:
                    caught.append(error)
                    raise

        task = asyncio.create_task(use())
        await settle()
        task.cancel("caller")
        await settle()
        effect.cancel("effect")
        await asyncio.wait({task})
        assert caught[0].args == ("caller",)
        await is_free(barrier)

    async def test_a_cancellation_that_comes_before_the_effect_starts_does_not_stop_it(
        self, barrier: Barrier
    ) -> None:
        done: list[str] = []

        async def effect() -> None:
            done.append("effect")

        async def use() -> None:
            async with barrier.mutation("a") as slot:
                current = asyncio.current_task()
                assert current is not None
                current.cancel()
                await slot.run(effect())

        task = asyncio.create_task(use())
        await asyncio.wait({task})
        assert task.cancelled()
        assert done == ["effect"]
        await is_free(barrier)

    async def test_a_cut_waits_for_the_effect_of_a_cancelled_slot(self, barrier: Barrier) -> None:
        section = barrier.mutation("a")
        effect = Effect(section)

        async def use() -> None:
            async with section:
                await section.run(effect.task)

        task = asyncio.create_task(use())
        await settle()
        cut = (await holding(barrier, "cut"))[0]
        task.cancel()
        await settle()
        assert not cut.inside
        effect.end()
        await settle()
        assert cut.inside
        await cut.left()
        await is_free(barrier)

    @pytest.mark.parametrize("side", SIDES)
    async def test_an_effect_that_nobody_awaited_is_awaited_at_the_exit(
        self, barrier: Barrier, side: str
    ) -> None:
        section = ask(barrier, side)
        effect = Effect(section)

        async def use() -> None:
            async with section:
                runner = asyncio.create_task(section.run(effect.task))
                await turns(2)
                runner.cancel()

        task = asyncio.create_task(use())
        await settle()
        assert section.alive
        effect.end()
        await task
        assert effect.ended_inside
        await is_free(barrier)

    async def test_effects_that_are_started_while_the_exit_waits_are_awaited_too(
        self, barrier: Barrier
    ) -> None:
        section = barrier.mutation("a")
        first, second = Effect(section), Effect(section)

        async def chain() -> None:
            await section.run(first.task)
            await section.run(second.task)

        async def use() -> None:
            async with section:
                chained.append(asyncio.create_task(chain()))
                await turns(2)

        chained: list[asyncio.Task[None]] = []
        task = asyncio.create_task(use())
        await settle()
        first.end()
        await settle()
        assert section.alive
        second.end()
        await task
        assert second.ended_inside
        await chained[0]

    async def test_many_effects_may_run_side_by_side(self, barrier: Barrier) -> None:
        async def effect(number: int) -> int:
            await turns(number)
            return number

        async with barrier.mutation("a") as slot:
            assert await asyncio.gather(*(slot.run(effect(n)) for n in (3, 1, 2))) == [3, 1, 2]

    @pytest.mark.parametrize("side", SIDES)
    async def test_a_cancellation_at_the_exit_is_delivered_after_the_exit(
        self, barrier: Barrier, side: str
    ) -> None:
        task, effect = await self._leaving(ask(barrier, side), lambda: None)
        task.cancel()
        await settle()
        assert barrier.slots or barrier.cut_open
        effect.end()
        await asyncio.wait({task})
        assert task.cancelled()
        await is_free(barrier)

    @pytest.mark.parametrize("side", SIDES)
    async def test_a_cancellation_at_the_exit_is_not_lost_when_the_body_has_failed(
        self, barrier: Barrier, side: str
    ) -> None:
        def fail() -> None:
            raise ValueError("body")

        task, effect = await self._leaving(ask(barrier, side), fail)
        task.cancel()
        await settle()
        effect.end()
        await asyncio.wait({task})
        assert task.cancelled()
        await is_free(barrier)

    @pytest.mark.parametrize("side", SIDES)
    async def test_the_error_of_the_body_is_raised_after_the_effects_have_ended(
        self, barrier: Barrier, side: str
    ) -> None:
        def fail() -> None:
            raise ValueError("body")

        task, effect = await self._leaving(ask(barrier, side), fail)
        assert not task.done()
        effect.end()
        with pytest.raises(ValueError, match="body"):
            await task
        await is_free(barrier)

    @pytest.mark.parametrize("side", SIDES)
    async def test_a_body_that_was_cancelled_ends_by_its_own_cancellation(
        self, barrier: Barrier, side: str
    ) -> None:
        def fail() -> None:
            raise asyncio.CancelledError("body")

        task, effect = await self._leaving(ask(barrier, side), fail)
        task.cancel("exit")
        await settle()
        effect.end()
        with pytest.raises(asyncio.CancelledError, match="body"):
            await task
        await is_free(barrier)

    async def _leaving(
        self, section: Slot | Cut, end_of_body: Callable[[], None]
    ) -> tuple[asyncio.Task[None], Effect]:
        """A task that has reached the end of its block, with an effect still running."""
        effect = Effect(section)

        async def use() -> None:
            async with section:
                runner = asyncio.create_task(section.run(effect.task))
                await turns(2)
                runner.cancel()
                end_of_body()

        task = asyncio.create_task(use())
        await settle()
        return task, effect

    @pytest.mark.parametrize("side", SIDES)
    async def test_a_dead_section_runs_nothing(self, barrier: Barrier, side: str) -> None:
        async with ask(barrier, side) as section:
            pass
        effect = asyncio.get_running_loop().create_future()
        for unusable in (section, ask(barrier, side)):
            with pytest.raises(DeadSectionError, match="runs no more effects"):
                await unusable.run(effect)

    async def test_work_in_a_thread_ends_before_the_slot_does(self, barrier: Barrier) -> None:
        go = threading.Event()
        alive: list[bool] = []
        section = barrier.mutation("a")

        def work() -> None:
            go.wait()
            alive.append(section.alive)

        async def use() -> None:
            async with section:
                await section.run(asyncio.to_thread(work))

        task = asyncio.create_task(use())
        await settle()
        task.cancel()
        await settle()
        assert section.alive
        go.set()
        await asyncio.wait({task})
        assert task.cancelled()
        assert alive == [True]
        await is_free(barrier)


async def by_timeout(entry: Awaitable[object]) -> None:
    async with asyncio.timeout(0):
        await entry


async def by_wait_for(entry: Awaitable[object]) -> None:
    await asyncio.wait_for(entry, 0.000001)


class TestTimeouts:
    @pytest.mark.parametrize("limited", [by_timeout, by_wait_for])
    @pytest.mark.parametrize("side", SIDES)
    async def test_an_entry_that_times_out_was_never_there(
        self, barrier: Barrier, side: str, limited: Callable[[Awaitable[object]], Awaitable[None]]
    ) -> None:
        cut = (await holding(barrier, "cut"))[0]
        with pytest.raises(TimeoutError):
            await limited(ask(barrier, side).__aenter__())
        assert barrier.waiting == ()
        await cut.left()
        await is_free(barrier)

    @pytest.mark.parametrize("side", SIDES)
    async def test_a_section_that_was_entered_in_time_is_left_by_the_caller(
        self, barrier: Barrier, side: str
    ) -> None:
        section = ask(barrier, side)
        await asyncio.wait_for(section.__aenter__(), 60)
        assert section.alive
        await section.__aexit__(None, None, None)
        await is_free(barrier)

    async def test_a_time_limit_around_an_effect_is_told_after_the_effect(
        self, barrier: Barrier
    ) -> None:
        section = barrier.mutation("a")
        effect = Effect(section)

        async def use() -> None:
            async with section, asyncio.timeout(0):
                await section.run(effect.task)

        task = asyncio.create_task(use())
        await settle()
        assert not task.done()
        effect.end()
        with pytest.raises(TimeoutError):
            await task
        assert effect.ended_inside

    async def test_a_task_group_that_fails_ends_its_waiting_slots(self, barrier: Barrier) -> None:
        cut = (await holding(barrier, "cut"))[0]

        async def fail() -> None:
            await turns(5)
            raise RuntimeError("sibling")

        async def run() -> None:
            async with asyncio.TaskGroup() as group:
                for name in "abc":
                    group.create_task(self._pass(barrier.mutation(name)))
                group.create_task(fail())

        with pytest.raises(ExceptionGroup):
            await run()
        assert barrier.waiting == ()
        await cut.left()
        await is_free(barrier)

    async def _pass(self, section: Slot | Cut) -> None:
        async with section:
            pass
