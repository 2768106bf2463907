"""The bond of the barrier alone: the real barrier, and broken ones, under the model's schedules.

Everyone of the model is a real task that enters a slot or a cut. Each has an event loop of its
own, so that who was handed a place goes on when the schedule says so and not before.

Source: `spec/Barrier.tla`, `spec/MutantBarrier.tla`; design, sections 5 and 13.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, NamedTuple

from cutlock.barrier import Barrier, Cut, Slot
from cutlock.bond.actors import Actor
from cutlock.bond.alphabet import Alphabet
from cutlock.bond.bond import Bond, Constants, Setting, Stepper
from cutlock.bond.patches import Patch
from cutlock.bond.subject import State
from cutlock.conformance.faults.sections import UNDRAINED
from cutlock.errors import ConfigError, NotEnabledError
from cutlock.shipped import shipped
from cutlock.tlc.values import Function, Value, to_tla

__all__ = ["BARRIER", "Crowd"]


class _Person:
    """One of those who enter and leave, as a task of its own."""

    def __init__(self, barrier: Barrier, name: str, *, saves: bool) -> None:
        self.actor = Actor(name)
        self._barrier = barrier
        self._saves = saves
        self._leaves: asyncio.Future[None] | None = None
        self.section: Slot | Cut | None = None

    @property
    def state(self) -> str:
        """In the words of the spec."""
        if self.actor.idle:
            return "idle"
        if self._leaves is not None:
            return "inside"
        return "waiting" if self.section in self._barrier._queue else "granted"

    def ask(self) -> None:
        """Ask for a place."""
        self.actor.begin(self._stay())

    async def _stay(self) -> None:
        barrier = self._barrier
        self.section = barrier.checkpoint() if self._saves else barrier.mutation("slot")
        async with self.section:
            self._leaves = asyncio.get_running_loop().create_future()
            try:
                await self._leaves
            finally:
                self._leaves = None

    def leave(self) -> None:
        """End the section."""
        assert self._leaves is not None
        self._leaves.set_result(None)
        self.actor.go_on()

    def cancel(self) -> None:
        """Be cancelled, and notice."""
        self.actor.cancel()
        self.actor.go_on()


class Crowd(Stepper):
    """A barrier, and all who use it.

    Whether asking for a place ends inside or in the queue is decided by the barrier.

    Args:
        constants: of the model; `Writers` enter slots, `Savers` cuts.

    Raises:
        ConfigError: there are no such constants.
    """

    def __init__(self, constants: Constants) -> None:
        self.barrier = Barrier(lambda: 0.0)
        self._savers = _named("Savers", constants)
        self._people = {
            name: _Person(self.barrier, to_tla(name), saves=name in self._savers)
            for name in sorted(_named("Writers", constants) | self._savers, key=to_tla)
        }

    def close(self) -> None:
        """Everybody is gone."""
        for person in self._people.values():
            person.actor.close()

    def enter_fast(self, who: Value) -> None:
        """Ask, and be let in."""
        self._require(who, "idle").ask()

    def wait(self, who: Value) -> None:
        """Ask, and be queued."""
        self._require(who, "idle").ask()

    def resume(self, who: Value) -> None:
        """Go on with a place that was handed over."""
        self._require(who, "granted").actor.go_on()

    def leave(self, who: Value) -> None:
        """End the section."""
        self._require(who, "inside").leave()

    def cancel_waiting(self, who: Value) -> None:
        """Be cancelled in the queue."""
        self._require(who, "waiting").cancel()

    def cancel_granted(self, who: Value) -> None:
        """Be cancelled in the turn of the hand-over."""
        self._require(who, "granted").cancel()

    def _require(self, who: Value, state: str) -> _Person:
        person = self._people[who]
        if person.state != state:
            raise NotEnabledError(f"{to_tla(who)} is {person.state}, not {state}")
        return person

    def state(self) -> dict[str, Value]:
        """The spec's variables."""
        names = {id(person.section): name for name, person in self._people.items()}
        return {
            "state": Function({name: person.state for name, person in self._people.items()}),
            "queue": tuple(names[id(section)] for section in self.barrier._queue),
            "slots": self.barrier.slots,
            "open": self.barrier.cut_open,
        }


def _named(name: str, constants: Constants) -> frozenset[Value]:
    people = constants.get(name)
    if not isinstance(people, frozenset):
        raise ConfigError(
            f"no {name} among {', '.join(constants)}; this is no model of the barrier"
        )
    return people


# The faults.


def _lets_slots_in() -> tuple[Patch, ...]:
    enters = Slot.__aenter__

    async def enter(slot: Slot) -> Slot:
        barrier = slot.barrier
        if barrier.cut_open:
            return await enters(slot)
        queue, barrier._queue = barrier._queue, OrderedDict()
        try:
            return await enters(slot)  # at once, so nobody sees the queue
        finally:
            barrier._queue = queue

    return (Patch(Slot, "__aenter__", enter),)


class _CutsFirst(OrderedDict[Any, Any]):
    def __setitem__(self, section: Any, place: Any) -> None:
        super().__setitem__(section, place)
        if isinstance(section, Cut):
            self.move_to_end(section, last=False)


def _cuts_overtake() -> tuple[Patch, ...]:
    waits = Barrier._wait

    async def wait(barrier: Barrier, section: Slot | Cut) -> float:
        if not isinstance(barrier._queue, _CutsFirst):
            barrier._queue = _CutsFirst(barrier._queue)
        return await waits(barrier, section)

    return (Patch(Barrier, "_wait", wait),)


def _cancelled(
    *, leaves_queue: bool = True, hands_over: bool = True, gives_back: bool = True
) -> tuple[Patch, ...]:
    """A wait that does less than it should when it is cancelled.

    Args:
        leaves_queue: is not in the queue any more.
        hands_over: gives free places to those behind a waiter that is gone.
        gives_back: of a place that was handed over in the turn of the cancellation.
    """

    async def wait(barrier: Barrier, section: Slot | Cut) -> float:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        barrier._queue[section] = place
        section._state = "waiting"
        try:
            # A cancelled place is noticed when it is to be handed over.
            await (place if leaves_queue else asyncio.shield(place))
        except asyncio.CancelledError:
            section._state = "dead"
            if section in barrier._queue:
                if leaves_queue:
                    del barrier._queue[section]
                if hands_over:
                    barrier._hand_over()
            elif gives_back and isinstance(section, Slot):
                barrier._slots -= 1
                barrier._hand_over()
            raise
        return 0.0

    return (Patch(Barrier, "_wait", wait),)


def _counts_anyone() -> tuple[Patch, ...]:
    leaves = Cut.__aexit__

    async def leave(cut: Cut, *error: Any) -> None:
        cut.barrier._slots -= 1
        await leaves(cut, *error)

    return (Patch(Cut, "__aexit__", leave),)


# The promises.


class _Look(NamedTuple):
    """What the promises are about."""

    slots: int
    """As the barrier counts them."""
    open: bool
    in_slots: int
    in_cuts: int
    waits_first: Value | None
    savers: frozenset[Value]


def _look(state: State, constants: Constants) -> _Look:
    writers, savers = _named("Writers", constants), _named("Savers", constants)
    inside = {who for who, where in state["state"].items() if where in {"granted", "inside"}}
    return _Look(
        slots=state["slots"],
        open=state["open"],
        in_slots=len(inside & writers),
        in_cuts=len(inside & savers),
        waits_first=next(iter(state["queue"]), None),
        savers=savers,
    )


_WHERE = frozenset({"idle", "waiting", "granted", "inside"})


def _type_ok(state: State, constants: Constants) -> bool:
    places = len(_named("Writers", constants))
    return _WHERE.issuperset(state["state"].values()) and 0 <= state["slots"] <= places


def _each_queued_once(state: State, constants: Constants) -> bool:
    waiting = [who for who, where in state["state"].items() if where == "waiting"]
    queue = state["queue"]
    return len(queue) == len(waiting) and set(queue) == set(waiting)


def _exclusion(state: State, constants: Constants) -> bool:
    look = _look(state, constants)
    return not look.in_cuts or (look.in_cuts == 1 and not look.in_slots)


def _balance(state: State, constants: Constants) -> bool:
    look = _look(state, constants)
    return look.slots == look.in_slots and look.open == bool(look.in_cuts)


def _no_idle_place(state: State, constants: Constants) -> bool:
    look = _look(state, constants)
    if look.waits_first is None or look.open:
        return True
    return look.waits_first in look.savers and look.slots > 0


# The bond.

_ACTIONS = ("EnterFast", "Wait", "Resume", "Leave", "CancelWaiting", "CancelGranted")


def _crowd(setting: Setting) -> Crowd:
    return Crowd(setting.constants)


BARRIER = Bond(
    name="barrier",
    alphabet=Alphabet(dict.fromkeys(_ACTIONS, ("who",))),
    manifest=shipped("model_check", "manifest.toml"),
    stepper=_crowd,
    observe=Crowd.state,
    promises={
        "TypeOK": _type_ok,
        "Exclusion": _exclusion,
        "Balance": _balance,
        "EachQueuedOnce": _each_queued_once,
        "NoIdlePlace": _no_idle_place,
    },
    faults={
        "barrier_does_not_drain": UNDRAINED.patches,
        "barrier_door_stays_shut": _cancelled(hands_over=False),
        "barrier_leaks_a_count": _cancelled(gives_back=False),
        "barrier_door_lets_slots_in": _lets_slots_in(),
        "barrier_cuts_overtake": _cuts_overtake(),
        "barrier_keeps_the_cancelled": _cancelled(leaves_queue=False),
        "barrier_counts_anyone": _counts_anyone(),
    },
)
"""The barrier and its spec. What is promised of no single state falls by going round."""
