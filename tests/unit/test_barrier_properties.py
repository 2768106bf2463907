"""The barrier under random schedules, against a reference model of two lines.

The model is the list of all requests that are not gone, in the order in which they came:
a cut at its head is alone inside; otherwise the slots before the first cut are inside.
Everybody else waits. Nothing else is needed, because entry is first come, first served.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutlock.barrier import Barrier, Cut, Slot
from tests.support.loop import StepLoop

ENOUGH_TURNS = 25


def inside(requests: list[Party]) -> list[Party]:
    """The reference model: who holds, of all that are not gone."""
    if requests and requests[0].is_cut:
        return requests[:1]
    return list(takewhile(lambda party: not party.is_cut, requests))


class Party:
    """A task that asks for a section and holds it until it is told to go.

    `stubborn`: what it does inside cannot be stopped, so a cancellation has to wait.
    """

    def __init__(self, world: World, section: Slot | Cut, stubborn: bool) -> None:
        self.section = section
        self.is_cut = isinstance(section, Cut)
        self.stubborn = stubborn
        self.name = "cut" if isinstance(section, Cut) else section.kind
        self.busy = False
        self._world = world
        self._go: asyncio.Future[None] = world.loop.loop.create_future()
        self.task = world.loop.loop.create_task(self._live())

    async def _live(self) -> None:
        async with self.section:
            self._world.entered.append(self)
            self._world.check_exclusion()
            self.busy = True
            if self.stubborn:
                await self.section.run(self._go)
            else:
                await self._go

    def go(self) -> None:
        if not self._go.done():
            self._go.set_result(None)


class World:
    """A barrier, the requests that are not gone, and who entered in which order."""

    def __init__(self, loop: StepLoop) -> None:
        self.loop = loop
        self.barrier = Barrier()
        self.requests: list[Party] = []
        self.entered: list[Party] = []
        self._number = 0
        self._asked: list[Party] = []

    def ask(self, *, cut: bool, stubborn: bool) -> None:
        self._number += 1
        barrier = self.barrier
        section = barrier.checkpoint() if cut else barrier.mutation(f"slot {self._number}")
        party = Party(self, section, stubborn)
        self.requests.append(party)
        self._asked.append(party)

    def leave(self, choice: int) -> None:
        holders = inside(self.requests)
        if holders:
            party = holders[choice % len(holders)]
            party.go()
            self.requests.remove(party)

    def cancel(self, choice: int) -> None:
        if not self.requests:
            return
        party = self.requests[choice % len(self.requests)]
        party.task.cancel()
        if not (party.stubborn and party.busy):
            self.requests.remove(party)

    def close(self) -> None:
        """Let everybody go, whatever has failed."""
        for party in self._asked:
            party.go()
            self.loop.turn(3)

    def check_exclusion(self) -> None:
        alive = [party for party in self.entered if party.section.alive]
        cuts = [party for party in alive if party.is_cut]
        assert len(cuts) <= 1
        assert not cuts or len(alive) == 1
        assert self.barrier.cut_open >= bool(cuts)
        assert self.barrier.slots >= len(alive) - len(cuts) >= 0
        assert not (self.barrier.cut_open and self.barrier.slots)

    def check_against_the_model(self) -> None:
        """After everything has settled."""
        self.check_exclusion()
        holders = inside(self.requests)
        assert [party for party in self.requests if party.section.alive] == holders
        assert self.barrier.slots == sum(not party.is_cut for party in holders)
        assert self.barrier.cut_open == any(party.is_cut for party in holders)
        waiting = self.requests[len(holders) :]
        assert self.barrier.waiting == tuple(party.name for party in waiting)
        # No lost wake-up: whoever waits has somebody inside to wait for.
        assert holders or not waiting
        # First come, first served between cuts and everybody else that ever came. Slots that
        # are inside together may resume in any order.
        places = [self._asked.index(party) for party in self.entered]
        for position, party in enumerate(self.entered):
            if party.is_cut:
                assert max(places[:position], default=-1) < places[position]
                assert min(places[position + 1 :], default=len(self._asked)) > places[position]

    def turn(self, count: int = 1) -> None:
        for _ in range(count):
            self.loop.turn()
            self.check_exclusion()


asks = st.tuples(st.just("ask"), st.booleans(), st.booleans())
leaves = st.tuples(st.just("leave"), st.integers(0, 7))
cancels = st.tuples(st.just("cancel"), st.integers(0, 7))
some_turns = st.tuples(st.just("turn"), st.integers(1, 3))
schedules = st.lists(
    st.tuples(asks | leaves | cancels | some_turns, st.booleans()), min_size=1, max_size=60
)


def perform(world: World, step: tuple[object, ...]) -> None:
    match step:
        case ("ask", bool(cut), bool(stubborn)):
            world.ask(cut=cut, stubborn=stubborn)
        case ("leave", int(choice)):
            world.leave(choice)
        case ("cancel", int(choice)):
            world.cancel(choice)
        case ("turn", int(count)):
            world.turn(count)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(schedules)
def test_every_schedule_ends_as_the_model_says(
    schedule: list[tuple[tuple[object, ...], bool]],
) -> None:
    with StepLoop() as loop, closing(World(loop)) as world:
        for step, settle in schedule:
            perform(world, step)
            if settle:
                world.turn(ENOUGH_TURNS)
                world.check_against_the_model()
        world.turn(ENOUGH_TURNS)
        world.check_against_the_model()
        while world.requests:
            world.leave(0)
            world.turn(ENOUGH_TURNS)
            world.check_against_the_model()
        assert (world.barrier.slots, world.barrier.cut_open) == (0, False)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=12), st.data())
def test_nobody_is_left_behind_when_all_but_one_are_cancelled_at_any_turn(
    kinds: list[bool], data: st.DataObject
) -> None:
    with StepLoop() as loop, closing(World(loop)) as world:
        for cut in kinds:
            world.ask(cut=cut, stubborn=False)
            world.turn(data.draw(st.integers(0, 2)))
        kept = world.requests[data.draw(st.integers(0, len(kinds) - 1))]
        for party in list(world.requests):
            if party is not kept:
                world.cancel(world.requests.index(party))
                world.turn(data.draw(st.integers(0, 2)))
        world.turn(ENOUGH_TURNS)
        assert kept.section.alive
        world.check_against_the_model()
