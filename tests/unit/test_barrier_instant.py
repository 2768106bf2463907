"""Instant cuts: only slots that span an await wait for them, and are waited for."""

from __future__ import annotations

import asyncio
import contextvars
from functools import partial

import pytest

from cutlock.barrier import Barrier
from cutlock.errors import ReentryError
from tests.support.loop import Holder, at_once, settle


@pytest.fixture
def barrier() -> Barrier:
    return Barrier(instant=True)


async def hold(barrier: Barrier, name: str) -> Holder:
    """A task that has asked: `cut`, `span` for a slot across awaits, `step` for another one."""
    ways = {
        "cut": barrier.checkpoint,
        "span": partial(barrier.mutation, name),
        "step": partial(barrier.atomic_mutation, name),
    }
    holder = Holder(ways[name](), name=name)
    await settle()
    return holder


async def test_a_cut_does_not_wait_for_a_slot_of_one_step(barrier: Barrier) -> None:
    step, cut = await hold(barrier, "step"), await hold(barrier, "cut")
    assert step.inside
    assert cut.inside
    await asyncio.gather(step.left(), cut.left())


async def test_a_slot_of_one_step_enters_while_a_cut_waits_and_while_it_is_open(
    barrier: Barrier,
) -> None:
    span, cut = await hold(barrier, "span"), await hold(barrier, "cut")
    first = await hold(barrier, "step")
    assert first.inside
    assert not cut.inside
    await span.left()
    await settle()
    second = await hold(barrier, "step")
    assert cut.inside
    assert second.inside
    await asyncio.gather(first.left(), cut.left(), second.left())


async def test_a_cut_waits_for_a_slot_that_spans_an_await_and_keeps_later_ones_out(
    barrier: Barrier,
) -> None:
    span, cut, later = [await hold(barrier, name) for name in ("span", "cut", "span")]
    assert (cut.inside, later.inside) == (False, False)
    await span.left()
    await settle()
    assert (cut.inside, later.inside) == (True, False)
    await cut.left()
    await settle()
    assert later.inside
    await later.left()


async def test_a_cancelled_slot_of_one_step_leaves_the_counts_as_they_were(
    barrier: Barrier,
) -> None:
    step = await hold(barrier, "step")
    step.task.cancel()
    await settle()
    assert (barrier.slots, barrier.cut_open, barrier.waiting) == (0, False, ())


def test_a_slot_of_one_step_is_proof_and_is_measured(barrier: Barrier) -> None:
    def use() -> None:
        slot = barrier.atomic_mutation("step")
        at_once(slot.__aenter__())
        barrier.require_slot(slot)
        at_once(slot.__aexit__(None, None, None))

    contextvars.Context().run(use)
    assert barrier.statistics().slots["step"].entered == 1


async def test_a_cut_inside_a_slot_of_one_step_is_refused(barrier: Barrier) -> None:
    async with barrier.atomic_mutation("step"):
        with pytest.raises(ReentryError):
            await barrier.checkpoint().__aenter__()


@pytest.mark.parametrize("cuts", [0, 1])
async def test_a_slot_inside_a_slot_of_one_step_is_refused(barrier: Barrier, cuts: int) -> None:
    for _ in range(cuts):
        async with barrier.checkpoint():
            pass
    async with barrier.atomic_mutation("step"):
        assert barrier.slots == 0
        for again in (barrier.mutation, barrier.atomic_mutation):
            with pytest.raises(ReentryError):
                await again("again").__aenter__()


async def test_a_slot_of_one_step_inside_a_cut_is_refused(barrier: Barrier) -> None:
    async with barrier.checkpoint():
        with pytest.raises(ReentryError):
            await barrier.atomic_mutation("step").__aenter__()


async def test_slots_of_one_kind_are_measured_together_whether_they_span_or_not(
    barrier: Barrier,
) -> None:
    for mutation in (barrier.mutation, barrier.atomic_mutation, barrier.mutation):
        async with mutation("a") as slot:
            assert slot.kind == "a"
    assert barrier.statistics().slots["a"].entered == 3


async def test_without_instant_cuts_every_slot_is_counted() -> None:
    barrier = Barrier()
    step, cut = await hold(barrier, "step"), await hold(barrier, "cut")
    assert step.inside
    assert not cut.inside
    await step.left()
    await settle()
    assert cut.inside
    await cut.left()
