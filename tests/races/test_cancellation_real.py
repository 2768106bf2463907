"""Puts and clears of both planes that are cancelled on their way: a fixed sample of moments."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from cutlock.plane.base import DataPlane
from tests.support.bundles import prompt
from tests.support.loop import turns
from tests.support.parts import Parts
from tests.support.planes import PlaneHarness
from tests.support.tally import tally

TURNS = (1, 2, 5, 10, 30, 100)
"""After so many turns of the loop the cancellation comes; a call to TransferQueue takes more."""

moments = pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])


@pytest.fixture
async def plane(harness: PlaneHarness) -> DataPlane:
    return await harness.connect()


@pytest.fixture
def parts(plane: DataPlane) -> Parts:
    made = Parts()
    made.buffer._plane = plane
    return made


async def cancelled_after(count: int, work: Coroutine[Any, Any, object], times: int) -> bool:
    """Whether the work was still at it, and has ended as cancelled."""
    task = asyncio.create_task(work)
    await turns(count)
    for _ in range(times):
        task.cancel()
        await turns(count)
    await asyncio.wait({task})
    tally("cancellations tried", times)
    return task.cancelled()


async def check(parts: Parts, plane: DataPlane) -> None:
    assert set(await plane.list_keys()) == parts.owned()
    barrier = parts.barrier
    assert (barrier.slots, barrier.cut_open, barrier.waiting) == (0, False, ())
    async with barrier.checkpoint():
        assert not parts.buffer.committing


@moments
async def test_a_commit_that_is_cancelled_leaves_no_row_and_can_be_made_again(
    parts: Parts, plane: DataPlane, times: int
) -> None:
    records = await parts.admitted(*range(len(TURNS)))
    for number, (count, record) in enumerate(zip(TURNS, records, strict=True)):
        parts.buffer.reserve(record)
        cancelled = await cancelled_after(count, parts.commit(number), times)
        assert cancelled or count > 1
        if cancelled:
            assert prompt(number).key in parts.ledger
            await check(parts, plane)
            parts.buffer.reserve(record)
            await parts.commit(number)
        await check(parts, plane)
    assert len(parts.buffer.ready()) == len(TURNS)


@moments
async def test_an_eviction_that_is_cancelled_has_cleared_its_rows(
    parts: Parts, plane: DataPlane, times: int
) -> None:
    await parts.finished(*range(len(TURNS)))

    async def evict(group_id: str) -> None:
        async with parts.barrier.mutation("evict") as slot:
            await parts.buffer.evict(slot, 0, [group_id])

    for number, count in enumerate(TURNS):
        await cancelled_after(count, evict(prompt(number).key), times)
        assert prompt(number).key not in parts.buffer
        await check(parts, plane)
    assert await plane.list_keys() == []


@moments
async def test_a_clear_that_is_cancelled_has_cleared_its_rows_and_ended_the_claim(
    parts: Parts, plane: DataPlane, times: int
) -> None:
    await parts.finished(*range(len(TURNS)))

    async def clear(step: int) -> None:
        async with parts.barrier.mutation("clear") as slot:
            await parts.buffer.clear_claimed(slot, step)

    for number, count in enumerate(TURNS):
        async with parts.barrier.mutation("select") as slot:
            parts.buffer.select(slot, number, [prompt(number).key])
        await cancelled_after(count, clear(number), times)
        assert not parts.buffer.claimed
        await check(parts, plane)
    assert await plane.list_keys() == []
