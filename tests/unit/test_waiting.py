"""Waiting to the end under cancellation, and signals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from cutlock.waiting import (
    Signal,
    cancelled_by_nobody,
    mark_retrieved,
    until_any_done,
    until_done,
)
from tests.support.loop import settle

Futures = list["asyncio.Future[None]"]
Until = Callable[..., Coroutine[Any, Any, asyncio.CancelledError | None]]


def futures(count: int) -> Futures:
    return [asyncio.get_running_loop().create_future() for _ in range(count)]


class TestUntilDone:
    async def test_the_caller_looks_at_the_result(self) -> None:
        (future,) = futures(1)
        waiting = asyncio.create_task(until_done(future))
        await settle()
        assert not waiting.done()
        future.set_exception(OSError("no"))
        assert await waiting is None
        assert isinstance(future.exception(), OSError)

    async def test_it_waits_for_any(self) -> None:
        first, second = futures(2)
        waiting = asyncio.create_task(until_any_done(first, second))
        await settle()
        assert not waiting.done()
        second.cancel()
        assert await waiting is None
        assert not first.done()

    @pytest.mark.parametrize("until", [until_done, until_any_done])
    async def test_what_is_done_is_not_waited_for(self, until: Until) -> None:
        (done,) = futures(1)
        done.set_result(None)
        with pytest.raises(StopIteration) as returned:
            until(done).send(None)
        assert returned.value.value is None

    @pytest.mark.parametrize("until", [until_done, until_any_done])
    async def test_however_often_it_is_cancelled_it_waits_on_and_tells_of_the_last_time(
        self, until: Until
    ) -> None:
        (future,) = futures(1)
        waiting = asyncio.create_task(until(future))
        for message in ("first", "last"):
            await settle()
            waiting.cancel(message)
        await settle()
        assert not waiting.done()
        future.set_result(None)
        cancelled = await waiting
        assert cancelled is not None
        assert cancelled.args == ("last",)
        assert not future.cancelled()


class TestCancelledByNobody:
    async def test_a_call_that_cancels_itself_was_cancelled_by_nobody(self) -> None:
        (cancelled,) = futures(1)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert cancelled_by_nobody()

    async def test_a_task_that_was_told_to_end_is_cancelled(self) -> None:
        seen: list[bool] = []

        async def work() -> None:
            try:
                await futures(1)[0]
            finally:
                seen.append(cancelled_by_nobody())

        task = asyncio.create_task(work())
        await settle()
        task.cancel()
        await settle()
        assert seen == [False]

    def test_without_a_task_nobody_can_say(self) -> None:
        async def ask() -> bool:
            return cancelled_by_nobody()

        loop = asyncio.new_event_loop()
        told: list[bool] = []

        def outside() -> None:
            with pytest.raises(StopIteration) as returned:
                ask().send(None)
            told.append(returned.value.value)
            loop.stop()

        loop.call_soon(outside)
        loop.run_forever()
        loop.close()
        assert told == [False]


async def test_an_error_that_was_marked_is_not_reported() -> None:
    reported: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: reported.append(str(context)))
    marked, cancelled, other = futures(3)
    cancelled.cancel()
    mark_retrieved(cancelled)
    for future in (marked, other):
        future.set_exception(OSError("late"))
    mark_retrieved(marked)
    del marked, cancelled, future
    await settle()
    assert reported == []
    del other
    assert len(reported) == 1


class TestSignal:
    async def test_a_notification_wakes_everybody_who_waits(self) -> None:
        signal = Signal()
        waiting = [asyncio.create_task(signal.wait()) for _ in range(3)]
        await settle()
        assert signal.waiters == 3
        assert not any(task.done() for task in waiting)
        signal.notify()
        await settle()
        assert all(task.done() for task in waiting)

    async def test_a_notification_is_for_those_who_wait_already(self) -> None:
        signal = Signal()
        signal.notify()
        waiting = asyncio.create_task(signal.wait())
        await settle()
        assert not waiting.done()
        signal.notify()
        signal.notify()
        await waiting

    async def test_a_waiter_that_was_cancelled_is_forgotten(self) -> None:
        signal = Signal()
        first, second = (asyncio.create_task(signal.wait()) for _ in range(2))
        await settle()
        first.cancel()
        signal.notify()
        await settle()
        assert first.cancelled()
        assert second.done()
        assert not signal.waiters
