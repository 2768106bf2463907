"""The barrier without cancellation: exclusion, order, proofs, re-entry, measurements."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import doctest
from collections.abc import Awaitable, Callable, Coroutine
from itertools import product
from typing import Any

import pytest

from cutlock.barrier import LAST_CUTS, Barrier, Cut, CutTiming, KindStatistics, Slot
from cutlock.errors import DeadSectionError, ForeignSectionError, MisuseError, ReentryError
from tests.support.loop import Holder, VirtualClock, ask, at_once, holding, settle, turns

SIDES = ("slot", "cut")


@pytest.fixture
def barrier() -> Barrier:
    return Barrier()


async def end_all(holders: list[Holder]) -> None:
    for holder in holders:
        holder.leave()
    await asyncio.gather(*(holder.task for holder in holders))


class TestFastPath:
    @pytest.mark.parametrize("side", SIDES)
    def test_an_uncontended_section_needs_no_event_loop(self, barrier: Barrier, side: str) -> None:
        def use() -> None:
            section = ask(barrier, side)
            assert at_once(section.__aenter__()) is section
            assert section.alive
            at_once(section.__aexit__(None, None, None))
            assert not section.alive

        contextvars.Context().run(use)
        assert (barrier.slots, barrier.cut_open, barrier.waiting) == (0, False, ())

    def test_a_slot_beside_other_slots_does_not_suspend(self, barrier: Barrier) -> None:
        slots = [barrier.mutation("a") for _ in range(3)]
        contexts = [contextvars.Context() for _ in slots]
        for context, slot in zip(contexts, slots, strict=True):
            context.run(at_once, slot.__aenter__())
        assert barrier.slots == 3
        for context, slot in zip(contexts, slots, strict=True):
            context.run(at_once, slot.__aexit__(None, None, None))
        assert barrier.slots == 0

    def test_a_barrier_has_no_lock(self, barrier: Barrier) -> None:
        locks = (asyncio.Lock, asyncio.Condition, asyncio.Semaphore, asyncio.Event)
        assert not [part for part in vars(barrier).values() if isinstance(part, locks)]


class TestExclusion:
    async def test_writers_overlap(self, barrier: Barrier) -> None:
        holders = await holding(barrier, "a", "a", "b")
        assert all(holder.inside for holder in holders)
        assert barrier.slots == 3
        await end_all(holders)

    async def test_a_cut_waits_for_every_counted_slot(self, barrier: Barrier) -> None:
        first, second, cut = await holding(barrier, "a", "b", "cut")
        assert not cut.inside
        await first.left()
        await settle()
        assert not cut.inside
        await second.left()
        await settle()
        assert cut.inside
        assert barrier.cut_open
        await cut.left()

    async def test_a_requested_cut_closes_the_door(self, barrier: Barrier) -> None:
        first, cut, late = await holding(barrier, "a", "cut", "b")
        assert barrier.waiting == ("cut", "b")
        assert not late.inside
        await first.left()
        await settle()
        assert cut.inside
        assert not late.inside
        await cut.left()
        await settle()
        assert late.inside
        await late.left()

    @pytest.mark.parametrize("before", [(), ("a",), ("cut",)], ids="after {}".format)
    async def test_who_asks_while_a_cut_is_open_waits_however_the_cut_was_entered(
        self, barrier: Barrier, before: tuple[str, ...]
    ) -> None:
        *first, cut = await holding(barrier, *before, "cut")
        await end_all(first)
        await settle()
        assert cut.inside
        for name in ("a", "cut"):
            late = (await holding(barrier, name))[0]
            assert not late.inside
            late.task.cancel()
            await settle()
            assert cut.inside
        await cut.left()

    async def test_two_cuts_are_never_open_together(self, barrier: Barrier) -> None:
        first, second = await holding(barrier, "cut", "cut")
        assert (first.inside, second.inside) == (True, False)
        await first.left()
        await settle()
        assert second.inside
        await second.left()

    async def test_all_slots_that_waited_for_a_cut_enter_in_the_same_turn(
        self, barrier: Barrier
    ) -> None:
        cut, *slots = await holding(barrier, "cut", *"abcdefgh")
        await cut.left()
        assert barrier.slots == 8
        await turns(1)
        assert all(slot.inside for slot in slots)
        await end_all(slots)

    async def test_a_section_that_raised_has_ended(self, barrier: Barrier) -> None:
        for side in SIDES:
            with pytest.raises(RuntimeError, match="body"):
                async with ask(barrier, side):
                    raise RuntimeError("body")
        assert (barrier.slots, barrier.cut_open) == (0, False)


class TestOrder:
    async def test_slots_that_waited_through_a_cut_enter_before_a_cut_requested_later(
        self, barrier: Barrier
    ) -> None:
        first, slot, second = await holding(barrier, "cut", "a", "cut")
        await first.left()
        await settle()
        assert (slot.inside, second.inside) == (True, False)
        await slot.left()
        await settle()
        assert second.inside
        await second.left()

    async def test_a_slot_between_two_cuts_enters_between_them(self, barrier: Barrier) -> None:
        order: list[str] = []
        sections = [ask(barrier, name) for name in ("a", "cut", "b", "cut")]
        names = ["first slot", "first cut", "second slot", "second cut"]
        holders = []
        for section, name in zip(sections, names, strict=True):
            holders.append(Holder(section, lambda name=name: order.append(name)))
            await settle()
        for holder in holders:
            holder.leave()
        await end_all(holders)
        assert order == names

    async def test_steady_slots_cannot_starve_a_cut(self, barrier: Barrier) -> None:
        current, cut = await holding(barrier, "steady", "cut")
        late = []
        for _ in range(50):
            late.append(Holder(barrier.mutation("steady")))
            await turns(2)
        assert not any(holder.inside for holder in late)
        await current.left()
        await settle()
        assert cut.inside
        await cut.left()
        await settle()
        assert all(holder.inside for holder in late)
        await end_all(late)

    async def test_steady_cuts_cannot_starve_a_slot(self, barrier: Barrier) -> None:
        cuts = await holding(barrier, "cut", "cut")
        slot = Holder(barrier.mutation("a"))
        await settle()
        later = await holding(barrier, *["cut"] * 5)
        await cuts[0].left()
        await cuts[1].left()
        await settle()
        assert slot.inside
        assert not any(cut.inside for cut in later)
        await slot.left()
        await end_all(later)

    @pytest.mark.parametrize("held", SIDES)
    @pytest.mark.parametrize("asked", list(product(SIDES, repeat=5)), ids="-".join)
    async def test_every_order_of_requests_is_served_first_come_first_served(
        self, barrier: Barrier, held: str, asked: tuple[str, ...]
    ) -> None:
        queue = await holding(barrier, held, *asked)
        while queue:
            expected = leading(queue)
            assert [holder.inside for holder in queue] == [h in expected for h in queue]
            assert barrier.waiting == tuple(h.task.get_name() for h in queue[len(expected) :])
            await queue.pop(0).left()
            await settle()
        assert (barrier.slots, barrier.cut_open, barrier.waiting) == (0, False, ())


def leading(queue: list[Holder]) -> list[Holder]:
    """Who is inside, of all that are not gone, in the order of their requests."""
    if queue[0].task.get_name() == "cut":
        return queue[:1]
    inside = []
    for holder in queue:
        if holder.task.get_name() == "cut":
            break
        inside.append(holder)
    return inside


class TestProofs:
    async def test_a_live_section_of_the_right_side_is_accepted(self, barrier: Barrier) -> None:
        async with barrier.mutation("a") as slot:
            barrier.require_slot(slot)
            assert slot.barrier is barrier
        async with barrier.checkpoint() as cut:
            barrier.require_cut(cut)

    @pytest.mark.parametrize("side", SIDES)
    async def test_a_section_that_was_not_entered_proves_nothing(
        self, barrier: Barrier, side: str
    ) -> None:
        with pytest.raises(DeadSectionError, match=r"<new .*inside its `async with` block"):
            require(barrier, side, ask(barrier, side))

    @pytest.mark.parametrize("side", SIDES)
    async def test_a_section_that_waits_proves_nothing(self, barrier: Barrier, side: str) -> None:
        cut = (await holding(barrier, "cut"))[0]
        waiting = Holder(ask(barrier, side))
        await settle()
        with pytest.raises(DeadSectionError, match="<waiting "):
            require(barrier, side, waiting.section)
        await cut.left()
        await waiting.left()

    @pytest.mark.parametrize("side", SIDES)
    async def test_a_section_that_has_ended_proves_nothing(
        self, barrier: Barrier, side: str
    ) -> None:
        async with ask(barrier, side) as section:
            pass
        with pytest.raises(DeadSectionError, match="<dead "):
            require(barrier, side, section)

    @pytest.mark.parametrize("side", SIDES)
    async def test_a_section_of_another_barrier_proves_nothing(
        self, barrier: Barrier, side: str
    ) -> None:
        async with ask(Barrier(), side) as section:
            with pytest.raises(ForeignSectionError, match="of another barrier"):
                require(barrier, side, section)

    async def test_a_cut_is_no_slot(self, barrier: Barrier) -> None:
        async with barrier.checkpoint() as cut:
            with pytest.raises(ForeignSectionError, match=r"needs a slot, not <live cut>"):
                barrier.require_slot(cut)

    async def test_a_slot_is_no_cut(self, barrier: Barrier) -> None:
        async with barrier.mutation("a") as slot:
            with pytest.raises(ForeignSectionError, match=r"needs a cut, not <live slot 'a'>"):
                barrier.require_cut(slot)

    async def test_something_else_is_neither(self, barrier: Barrier) -> None:
        with pytest.raises(ForeignSectionError, match="not None"):
            barrier.require_slot(None)
        with pytest.raises(ForeignSectionError, match="not 3"):
            barrier.require_cut(3)

    @pytest.mark.parametrize("side", SIDES)
    async def test_a_section_is_entered_once(self, barrier: Barrier, side: str) -> None:
        section = ask(barrier, side)
        async with section:
            with pytest.raises(MisuseError, match="is entered once"):
                await section.__aenter__()
        with pytest.raises(MisuseError, match="is entered once"):
            await section.__aenter__()

    @pytest.mark.parametrize("side", SIDES)
    async def test_a_section_that_waits_is_not_entered_by_a_second_task(
        self, barrier: Barrier, side: str
    ) -> None:
        cut = (await holding(barrier, "cut"))[0]
        waiting = Holder(ask(barrier, side))
        await settle()
        with pytest.raises(MisuseError, match=r"<waiting .*is entered once"):
            await waiting.section.__aenter__()
        await cut.left()
        await waiting.left()
        assert (barrier.slots, barrier.cut_open) == (0, False)


def require(barrier: Barrier, side: str, section: Any) -> None:
    if side == "slot":
        barrier.require_slot(section)
    else:
        barrier.require_cut(section)


# Ways in which a holder may run something else: each returns what it raised.


async def in_this_task(work: Coroutine[Any, Any, None]) -> None:
    await work


async def in_a_new_task(work: Coroutine[Any, Any, None]) -> None:
    await asyncio.create_task(work)


async def in_gather(work: Coroutine[Any, Any, None]) -> None:
    await asyncio.gather(work)


async def in_a_task_group(work: Coroutine[Any, Any, None]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(work)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors


async def in_a_grandchild(work: Coroutine[Any, Any, None]) -> None:
    await asyncio.create_task(in_a_new_task(work))


async def from_a_thread(work: Coroutine[Any, Any, None]) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(work, loop).result())


WAYS = (in_this_task, in_a_new_task, in_gather, in_a_task_group, in_a_grandchild, from_a_thread)
Way = Callable[[Coroutine[Any, Any, None]], Awaitable[None]]


async def pass_through(section: Slot | Cut) -> None:
    async with section:
        pass


class TestReentry:
    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("wanted", SIDES)
    @pytest.mark.parametrize("held", SIDES)
    async def test_a_holder_is_refused_a_second_section(
        self, barrier: Barrier, held: str, wanted: str, way: Way
    ) -> None:
        async with ask(barrier, held):
            with pytest.raises(ReentryError, match=f"holds <live {held}.* asks for a {wanted}"):
                await way(pass_through(ask(barrier, wanted)))
            assert barrier.waiting == ()
        assert (barrier.slots, barrier.cut_open) == (0, False)
        await pass_through(ask(barrier, wanted))

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("wanted", SIDES)
    async def test_a_section_of_another_barrier_is_no_re_entry(
        self, barrier: Barrier, wanted: str, way: Way
    ) -> None:
        async with ask(Barrier(), "slot"):
            await way(pass_through(ask(barrier, wanted)))

    async def test_an_inner_section_of_another_barrier_does_not_hide_the_outer_one(
        self, barrier: Barrier
    ) -> None:
        async with barrier.mutation("outer"), Barrier().mutation("inner"):
            with pytest.raises(ReentryError):
                await pass_through(barrier.mutation("again"))

    async def test_the_end_of_an_inner_section_does_not_end_the_outer_one(
        self, barrier: Barrier
    ) -> None:
        async with barrier.mutation("outer"):
            await pass_through(Barrier().mutation("inner"))
            with pytest.raises(ReentryError):
                await pass_through(barrier.mutation("again"))

    @pytest.mark.parametrize("wanted", SIDES)
    @pytest.mark.parametrize("held", SIDES)
    async def test_a_child_may_enter_once_its_parent_has_left(
        self, barrier: Barrier, held: str, wanted: str
    ) -> None:
        go = asyncio.Event()

        async def child() -> None:
            await go.wait()
            await pass_through(ask(barrier, wanted))

        async with ask(barrier, held):
            task = asyncio.create_task(child())
            await settle()
        go.set()
        await task

    async def test_a_section_that_a_child_holds_is_not_its_parents(self, barrier: Barrier) -> None:
        child = (await holding(barrier, "child"))[0]
        async with barrier.mutation("parent"):
            assert barrier.slots == 2
        await child.left()

    async def test_a_task_that_was_started_before_the_section_may_enter(
        self, barrier: Barrier
    ) -> None:
        go = asyncio.Event()

        async def other() -> None:
            await go.wait()
            await pass_through(barrier.mutation("other"))

        task = asyncio.create_task(other())
        async with barrier.mutation("mine"):
            go.set()
            await task

    async def test_one_task_may_enter_one_section_after_another(self, barrier: Barrier) -> None:
        for side in (*SIDES, *SIDES):
            await pass_through(ask(barrier, side))

    async def test_what_a_slot_runs_may_not_enter_either(self, barrier: Barrier) -> None:
        async with barrier.mutation("a") as slot:
            with pytest.raises(ReentryError):
                await slot.run(pass_through(barrier.checkpoint()))


class TestStatistics:
    async def test_a_kind_counts_entries_and_the_time_that_it_waited(self) -> None:
        clock = VirtualClock()
        barrier = Barrier(clock)
        told: list[tuple[str, float]] = []
        barrier.on_wait = lambda kind, seconds: told.append((kind, seconds))
        cut, first = await holding(barrier, "cut", "commit")
        clock.advance(2)
        second = Holder(barrier.mutation("commit"))
        await settle()
        clock.advance(3)
        await cut.left()
        await settle()
        await end_all([first, second])
        await pass_through(barrier.mutation("commit"))
        await pass_through(barrier.mutation("evict"))
        commit, evict = barrier.statistics().slots["commit"], barrier.statistics().slots["evict"]
        assert (commit.entered, commit.waited) == (3, 2)
        assert (commit.waited_sum, commit.waited_max) == (8.0, 5.0)
        assert (evict.entered, evict.waited) == (1, 0)
        assert (evict.waited_sum, evict.waited_max) == (0.0, 0.0)
        assert (commit.queued, evict.queued) == (2, 0)
        assert told == [("commit", 5.0), ("commit", 3.0)]

    async def test_who_has_queued_is_counted_whether_it_has_entered_or_not(
        self, barrier: Barrier
    ) -> None:
        cut, *slots = await holding(barrier, "cut", "a", "a", "a")
        slots.pop().task.cancel()
        await cut.left()
        await end_all(slots)
        statistics = barrier.statistics().slots["a"]
        assert (statistics.queued, statistics.waited, statistics.entered) == (3, 2, 2)

    async def test_a_kind_of_which_nobody_has_asked_is_not_listed(self, barrier: Barrier) -> None:
        barrier.mutation("a")
        assert barrier.statistics().slots == {}

    async def test_a_cut_measures_drain_window_and_rest(self) -> None:
        clock = VirtualClock()
        barrier = Barrier(clock)
        slot, holder = await holding(barrier, "a", "cut")
        clock.advance(2)
        await slot.left()
        await settle()
        clock.advance(3)
        await holder.left()
        clock.advance(5)
        cut = holder.section
        assert isinstance(cut, Cut)
        assert cut.timing.asynchronous == 0.0
        cut.settled()
        assert (cut.timing.drain, cut.timing.exclusive, cut.timing.asynchronous) == (2, 3, 5)
        assert barrier.statistics().cuts == (cut.timing,)
        assert cut.timing == CutTiming(drain=2, exclusive=3, asynchronous=5)

    async def test_an_uncontended_cut_has_no_drain(self) -> None:
        clock = VirtualClock()
        barrier = Barrier(clock)
        async with barrier.checkpoint() as cut:
            clock.advance(1)
            assert (cut.timing.drain, cut.timing.exclusive) == (0, 0)
        assert (cut.timing.drain, cut.timing.exclusive) == (0, 1)

    async def test_a_cut_settles_only_after_its_window(self, barrier: Barrier) -> None:
        cut = barrier.checkpoint()
        with pytest.raises(MisuseError, match="<new cut> has not ended"):
            cut.settled()
        async with cut:
            with pytest.raises(MisuseError, match="<live cut> has not ended"):
                cut.settled()
        cut.settled()

    async def test_cuts_are_listed_in_the_order_in_which_they_were_entered(self) -> None:
        clock = VirtualClock()
        barrier = Barrier(clock)
        holders = await holding(barrier, "cut", "cut", "cut")
        for holder in holders:
            clock.advance(1)
            await holder.left()
            await settle()
        assert [timing.drain for timing in barrier.statistics().cuts] == [0, 1, 2]

    async def test_what_was_taken_does_not_change_any_more(self, barrier: Barrier) -> None:
        await pass_through(barrier.mutation("a"))
        before = barrier.statistics()
        await pass_through(barrier.mutation("a"))
        await pass_through(barrier.checkpoint())
        assert (before.slots["a"].entered, before.cuts, before.cuts_entered) == (1, (), 0)
        after = barrier.statistics()
        assert (after.slots["a"].entered, len(after.cuts), after.cuts_entered) == (2, 1, 1)

    async def test_what_was_taken_cannot_be_changed(self, barrier: Barrier) -> None:
        async with barrier.mutation("a"):
            pass
        async with barrier.checkpoint() as cut:
            pass
        taken = barrier.statistics()
        with pytest.raises(TypeError, match="does not support item assignment"):
            taken.slots["a"] = KindStatistics()  # type: ignore[index]
        for value, field in (
            (taken, "cuts_entered"),
            (taken.slots["a"], "entered"),
            (taken.cuts[0], "drain"),
            (cut.timing, "drain"),
        ):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(value, field, 7)

    async def test_the_last_cuts_are_kept_and_the_others_in_the_totals(self) -> None:
        clock = VirtualClock()
        barrier = Barrier(clock)
        for number in range(LAST_CUTS + 2):
            slot, cut = await holding(barrier, "a", "cut")
            clock.advance(number)
            await slot.left()
            await settle()
            clock.advance(2)
            await cut.left()
            assert isinstance(cut.section, Cut)
            clock.advance(1)
            cut.section.settled()
            clock.advance(1)
            cut.section.settled()  # later than was said
        count, taken = LAST_CUTS + 2, barrier.statistics()
        assert [timing.drain for timing in taken.cuts] == list(range(2, count))
        assert taken.cuts_entered == count
        assert taken.cuts_total == CutTiming(
            drain=sum(range(count)), exclusive=2 * count, asynchronous=2 * count
        )


def test_the_example_of_the_docstring_runs() -> None:
    example = doctest.DocTestFinder(recurse=False).find(Barrier, "Barrier")
    assert [doctest.DocTestRunner().run(test) for test in example] == [(0, 4)]


class TestCutRequested:
    async def test_it_returns_when_a_cut_queues(self, barrier: Barrier) -> None:
        slot = (await holding(barrier, "a"))[0]
        asked = asyncio.create_task(barrier.cut_requested())
        await settle()
        assert not asked.done()
        cut = Holder(barrier.checkpoint())
        await turns(2)
        assert asked.done()
        await end_all([slot, cut])

    async def test_it_returns_without_suspending_if_a_cut_queues_already(
        self, barrier: Barrier
    ) -> None:
        slot, cut = await holding(barrier, "a", "cut")
        at_once(barrier.cut_requested())
        await end_all([slot, cut])

    async def test_a_slot_that_queues_is_no_cut(self, barrier: Barrier) -> None:
        cut, slot = await holding(barrier, "cut", "a")
        asked = asyncio.create_task(barrier.cut_requested())
        await settle()
        assert not asked.done()
        asked.cancel()
        await asyncio.wait({asked})
        await end_all([cut, slot])

    async def test_one_cut_is_enough_for_everybody_who_asked(self, barrier: Barrier) -> None:
        slot = (await holding(barrier, "a"))[0]
        asked = [asyncio.create_task(barrier.cut_requested()) for _ in range(3)]
        await settle()
        cuts = [Holder(barrier.checkpoint()), Holder(barrier.checkpoint())]
        asked[1].cancel()
        await settle()
        assert [task.cancelled() for task in asked] == [False, True, False]
        assert all(task.done() for task in asked)
        await end_all([slot, *cuts])
