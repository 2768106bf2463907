from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from cutlock.bond.turns import InlineExecutor, TurnLoop
from cutlock.errors import ConformanceError


@pytest.fixture
def loop() -> Iterator[TurnLoop]:
    made = TurnLoop()
    yield made
    made.close()


async def after_turns(count: int) -> int:
    for _ in range(count):
        await asyncio.sleep(0)
    return count


def test_the_loop_turns_until_nothing_is_ready(loop: TurnLoop) -> None:
    task = loop.create_task(after_turns(50))
    loop.quiesce()
    assert task.result() == 50


def test_what_waits_for_something_is_left_waiting(loop: TurnLoop) -> None:
    future = loop.create_future()
    task = loop.create_task(asyncio.wait_for(future, 5.0))
    loop.quiesce()
    assert not task.done()
    future.set_result("came")
    loop.quiesce()
    assert task.result() == "came"


def test_time_passes_only_when_it_is_told_to(loop: TurnLoop) -> None:
    task = loop.create_task(asyncio.sleep(5.0, "slept"))
    loop.advance(4.9)
    assert not task.done()
    loop.advance(0.1)
    assert task.result() == "slept"


def test_work_for_a_thread_runs_at_once_in_the_only_thread(loop: TurnLoop) -> None:
    assert loop.complete(asyncio.to_thread(threading.get_ident)) == threading.get_ident()


def test_an_error_of_such_work_is_its_result(loop: TurnLoop) -> None:
    with pytest.raises(ZeroDivisionError):
        loop.complete(asyncio.to_thread(lambda: 1 // 0))
    with InlineExecutor() as executor:
        assert isinstance(executor.submit(int, "x").exception(), ValueError)


def test_a_task_that_polls_is_noticed(loop: TurnLoop) -> None:
    task = loop.create_task(after_turns(10**9))
    with pytest.raises(ConformanceError, match="polls"):
        loop.quiesce()
    task.cancel()
    loop.quiesce()


def test_work_that_waits_for_ever_is_not_completed(loop: TurnLoop) -> None:
    with pytest.raises(ConformanceError, match="does not come by itself"):
        loop.complete(asyncio.Event().wait())


def test_an_error_that_nobody_reads_is_kept(loop: TurnLoop) -> None:
    loop.call_soon(lambda: 1 // 0)
    loop.quiesce()
    (mishap,) = loop.mishaps
    assert "ZeroDivisionError" in mishap
