"""Places in the buffer, and the signal that wakes whoever waits for a change."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutlock.errors import InvariantError
from cutlock.run.state import Permits
from tests.support.loop import StepLoop, at_once, settle


class TestPermits:
    def test_a_free_place_is_taken_without_suspending(self) -> None:
        permits = Permits(2)
        at_once(permits.acquire())
        at_once(permits.acquire())
        assert permits.held == 2

    async def test_who_finds_no_place_waits_for_one_in_the_order_of_asking(self) -> None:
        permits = Permits(1)
        await permits.acquire()
        waiting = [asyncio.create_task(permits.acquire()) for _ in range(3)]
        for served in range(3):
            await settle()
            assert [task.done() for task in waiting] == [n < served for n in range(3)]
            permits.release()
        await asyncio.gather(*waiting)
        permits.release()
        assert permits.held == 0

    async def test_all_places_that_become_free_are_filled_at_once(self) -> None:
        permits = Permits(8)
        for _ in range(8):
            await permits.acquire()
        waiting = [asyncio.create_task(permits.acquire()) for _ in range(10)]
        await settle()
        permits.release(8)
        await settle()
        assert sum(task.done() for task in waiting) == 8
        assert permits.held == 8
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)

    async def test_a_place_that_is_given_to_a_cancelled_task_goes_to_the_next(self) -> None:
        permits = Permits(1)
        await permits.acquire()
        first, second = (asyncio.create_task(permits.acquire()) for _ in range(2))
        await settle()
        permits.release()
        first.cancel()
        await settle()
        assert first.cancelled()
        assert second.done()
        assert permits.held == 1

    async def test_restored_groups_hold_places_before_anybody_asks(self) -> None:
        permits = Permits(3)
        permits.take(0)
        permits.take(2)
        at_once(permits.acquire())
        waiting = asyncio.create_task(permits.acquire())
        await settle()
        assert not waiting.done()
        assert permits.held == 3
        permits.release(2)
        await waiting
        assert permits.held == 2
        at_once(permits.acquire())

    def test_more_restored_groups_than_places_are_refused_with_the_numbers(self) -> None:
        permits = Permits(3)
        permits.take(1)
        with pytest.raises(
            InvariantError, match=r"3 places wanted and 2 of 3 free; raise buffer.capacity to 4"
        ):
            permits.take(3)
        assert permits.held == 1
        at_once(permits.acquire())

    def test_no_more_places_are_given_back_than_were_taken(self) -> None:
        permits = Permits(3)
        at_once(permits.acquire())
        with pytest.raises(InvariantError, match="2 places given back and only 1 are taken"):
            permits.release(2)
        permits.release(0)
        permits.release()
        assert permits.held == 0


steps = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "release", "cancel", "turn"]), st.integers(0, 9)),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 3), st.integers(0, 3), steps)
def test_no_place_is_lost_or_given_twice_by_any_schedule(
    capacity: int, restored: int, schedule: list[tuple[str, int]]
) -> None:
    with StepLoop() as loop:
        permits = Permits(capacity)
        permits.take(min(restored, capacity))
        tasks: list[asyncio.Task[None]] = []
        for step, choice in schedule:
            waiting = [task for task in tasks if not task.done()]
            match step:
                case "ask":
                    tasks.append(loop.loop.create_task(permits.acquire()))
                case "release" if permits.held:
                    permits.release(choice % permits.held + 1)
                case "cancel" if waiting:
                    waiting[choice % len(waiting)].cancel()
                case "turn":
                    loop.turn(choice)
            assert 0 <= permits.held <= capacity
        loop.turn(25)
        waiting = [task for task in tasks if not task.done()]
        assert permits.held == capacity or not waiting
        served = [task for task in tasks if task.done() and not task.cancelled()]
        given = permits.held
        while waiting:
            permits.release(permits.held)
            loop.turn(25)
            assert waiting[0].done()
            waiting = [task for task in waiting if not task.done()]
        assert all(task.done() for task in tasks)
        assert given <= len(served) + restored
