"""The counterexamples of the barrier alone, on the real barrier and on broken ones.

Everyone of the model is a real task that enters a slot or a cut. Each has an event loop of its
own, so that who was handed a place goes on when the counterexample says so and not before.

Source: `spec/Barrier.tla`, `spec/BarrierMutants.tla`; design, sections 5 and 13.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from cutlock.barrier import Barrier, Cut, Slot
from cutlock.conformance.faults.sections import UNDRAINED
from cutlock.conformance.faults.switch import NONE, Patch, Switch
from cutlock.conformance.observation.compare import differences
from cutlock.conformance.replay.counterexample import Ending, OnStep, Replayed, cut_short
from cutlock.conformance.stepping.turns import TurnLoop
from cutlock.errors import ConfigError, NotEnabledError
from cutlock.tlc.config import read_config
from cutlock.tlc.itf import Counterexample
from cutlock.tlc.values import Function, Value, parse_value, to_tla

__all__ = ["BARRIER_FAULTS", "Crowd", "replay_barrier_example"]


class _Person:
    """One of those who enter and leave, as a task of its own."""

    def __init__(self, barrier: Barrier, *, saves: bool) -> None:
        self._barrier = barrier
        self._saves = saves
        self._loop = TurnLoop()
        self._task: asyncio.Task[None] | None = None
        self._leaves: asyncio.Future[None] | None = None
        self.section: Slot | Cut | None = None

    @property
    def state(self) -> str:
        """In the words of the spec."""
        if self._task is None or self._task.done():
            return "idle"
        if self._leaves is not None:
            return "inside"
        return "waiting" if self.section in self._barrier._queue else "granted"

    def ask(self) -> None:
        """Ask for a place."""
        self._task = self._loop.create_task(self._stay())
        self._loop.quiesce()

    async def _stay(self) -> None:
        barrier = self._barrier
        self.section = barrier.checkpoint() if self._saves else barrier.mutation("slot")
        async with self.section:
            self._leaves = asyncio.get_running_loop().create_future()
            try:
                await self._leaves
            finally:
                self._leaves = None

    def go_on(self) -> None:
        """Run again, after a place was handed over."""
        self._loop.quiesce()

    def leave(self) -> None:
        """End the section."""
        assert self._leaves is not None
        self._leaves.set_result(None)
        self._loop.quiesce()

    def cancel(self) -> None:
        """Be cancelled, and notice."""
        assert self._task is not None
        self._task.cancel()
        self._loop.quiesce()

    def close(self) -> None:
        """Be gone."""
        if self._task is not None:
            self._task.cancel()
        self._loop.quiesce()
        self._loop.close()


class Crowd:
    """A barrier, and all who use it; use it with `with`.

    Args:
        writers: those who enter slots.
        savers: those who enter cuts.
    """

    def __init__(self, writers: frozenset[Value], savers: frozenset[Value]) -> None:
        self.barrier = Barrier(lambda: 0.0)
        self._people = {
            name: _Person(self.barrier, saves=name in savers)
            for name in sorted(writers | savers, key=to_tla)
        }

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *error: object) -> None:
        for person in self._people.values():
            person.close()

    def do(self, action: str, who: Value) -> None:
        """Perform one action of `spec/Barrier.tla`.

        Whether asking for a place ends inside or in the queue is decided by the barrier.

        Raises:
            NotEnabledError: that one does not stand where the action could happen.
        """
        needed, act = _ACTIONS[action]
        person = self._people[who]
        if person.state != needed:
            raise NotEnabledError(f"{to_tla(who)} is {person.state}, not {needed}")
        act(person)

    def holders(self, kind: type[Slot | Cut]) -> list[Value]:
        """Who has a place of that kind, those included who have not gone on with it yet."""
        return [
            name
            for name, person in self._people.items()
            if isinstance(person.section, kind) and person.state in {"granted", "inside"}
        ]

    def state(self) -> dict[str, Value]:
        """The spec's variables."""
        names = {id(person.section): name for name, person in self._people.items()}
        return {
            "state": Function({name: person.state for name, person in self._people.items()}),
            "queue": tuple(names[id(section)] for section in self.barrier._queue),
            "slots": self.barrier.slots,
            "open": self.barrier.cut_open,
        }


_ACTIONS: Mapping[str, tuple[str, Any]] = MappingProxyType(
    {
        "EnterFast": ("idle", _Person.ask),
        "Wait": ("idle", _Person.ask),
        "Resume": ("granted", _Person.go_on),
        "Leave": ("inside", _Person.leave),
        "CancelWaiting": ("waiting", _Person.cancel),
        "CancelGranted": ("granted", _Person.cancel),
    }
)


# The faults.


def _lets_slots_in() -> Switch:
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

    return Switch(patches=(Patch(Slot, "__aenter__", enter),))


class _CutsFirst(OrderedDict[Any, Any]):
    def __setitem__(self, section: Any, place: Any) -> None:
        super().__setitem__(section, place)
        if isinstance(section, Cut):
            self.move_to_end(section, last=False)


def _cuts_overtake() -> Switch:
    waits = Barrier._wait

    async def wait(barrier: Barrier, section: Slot | Cut) -> float:
        if not isinstance(barrier._queue, _CutsFirst):
            barrier._queue = _CutsFirst(barrier._queue)
        return await waits(barrier, section)

    return Switch(patches=(Patch(Barrier, "_wait", wait),))


def _cancelled(*, hands_over: bool, gives_back: bool) -> Switch:
    """A wait that does less than it should when it is cancelled.

    Args:
        hands_over: gives free places to those behind a waiter that is gone.
        gives_back: of a place that was handed over in the turn of the cancellation.
    """

    async def wait(barrier: Barrier, section: Slot | Cut) -> float:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        barrier._queue[section] = place
        section._state = "waiting"
        try:
            await place
        except asyncio.CancelledError:
            section._state = "dead"
            if barrier._queue.pop(section, None):
                if hands_over:
                    barrier._hand_over()
            elif gives_back and isinstance(section, Slot):
                barrier._slots -= 1
                barrier._hand_over()
            raise
        return 0.0

    return Switch(patches=(Patch(Barrier, "_wait", wait),))


BARRIER_FAULTS: Mapping[str, Switch] = MappingProxyType(
    {
        "barrier_does_not_drain": UNDRAINED,
        "barrier_door_stays_shut": _cancelled(hands_over=False, gives_back=True),
        "barrier_leaks_a_count": _cancelled(hands_over=True, gives_back=False),
        "barrier_door_lets_slots_in": _lets_slots_in(),
        "barrier_cuts_overtake": _cuts_overtake(),
    }
)
"""By the mutant that each answers to."""


# The replay.


def replay_barrier_example(
    example: Counterexample,
    config: Path,
    *,
    faulty: bool = False,
    on_step: OnStep = lambda number, step, what: None,
) -> Replayed:
    """Do the steps of a counterexample of the barrier; see `replay_example`.

    A behaviour that never ends goes round once more.

    Args:
        config: of its model.
        faulty: switch in the fault that answers to the model.

    Raises:
        ConfigError: no fault answers to the model, or the configuration has no such constants.
        ToolError: it breaks nothing, so it was cut short.
    """
    if example.model not in BARRIER_FAULTS:
        raise ConfigError(
            f"{example.model!r} is no mutant of the barrier; there are: {', '.join(BARRIER_FAULTS)}"
        )
    switch = BARRIER_FAULTS[example.model] if faulty else NONE
    writers, savers = _everyone(config)
    if example.loop is None and _holds(example.property, _of_state(example, writers, savers)):
        raise cut_short(example)
    with switch.applied(), Crowd(writers, savers) as crowd:
        return _replay(example, crowd, example.model if faulty else None, on_step)


def _everyone(config: Path) -> tuple[frozenset[Value], frozenset[Value]]:
    tokens = read_config(config)["constants"]
    found = []
    for name in ("Writers", "Savers"):
        if name not in tokens:
            raise ConfigError(f"{config}: no {name}; this is not a model of the barrier")
        begin = tokens.index("{", tokens.index(name))
        found.append(parse_value(" ".join(tokens[begin : tokens.index("}", begin) + 1])))
    writers, savers = found
    assert isinstance(writers, frozenset)
    assert isinstance(savers, frozenset)
    return writers, savers


def _replay(example: Counterexample, crowd: Crowd, fault: str | None, on_step: OnStep) -> Replayed:
    steps = list(enumerate(example.steps[1:], 1))
    if example.loop is not None:
        steps += list(enumerate(example.steps))[example.loop :]
    diverged: int | None = None
    shown: tuple[str, ...] = ()
    ending, why = Ending.KEPT, f"{example.property} has held after every step"
    number, step = 0, example.steps[0]
    for number, step in steps:
        try:
            crowd.do(step.action.name, step.action.arguments["who"])
        except NotEnabledError as error:
            ending, why = Ending.REFUSED, str(error)
            on_step(number, step, ending)
            break
        found = tuple(map(str, differences(step.state, crowd.state())))
        if found and diverged is None:
            diverged, shown = number, found
        if not _holds(example.property, _of_crowd(crowd)):
            ending, why = Ending.BROKEN, f"{example.property} does not hold"
            on_step(number, step, ending)
            break
        on_step(number, step, "differs" if diverged == number else "done")
    else:
        if example.loop is not None and diverged is None:
            ending, why = Ending.BROKEN, f"{example.property} does not hold: this goes on for ever"
    return Replayed(
        model=example.model,
        promise=example.property,
        fault=fault,
        length=len(example.steps) - 1,
        ending=ending,
        step=number,
        action=str(step.action),
        diverged=diverged,
        differences=shown,
        why=why,
    )


class _Look(NamedTuple):
    """What the promises are about, of the real barrier or of a state of the model."""

    slots: int
    """As the barrier counts them."""
    open: bool
    in_slots: int
    in_cuts: int
    waits_first: type[Slot | Cut] | None


def _of_crowd(crowd: Crowd) -> _Look:
    barrier = crowd.barrier
    return _Look(
        slots=barrier.slots,
        open=barrier.cut_open,
        in_slots=len(crowd.holders(Slot)),
        in_cuts=len(crowd.holders(Cut)),
        waits_first=next((type(section) for section in barrier._queue), None),
    )


def _of_state(
    example: Counterexample, writers: frozenset[Value], savers: frozenset[Value]
) -> _Look:
    """The last state of a counterexample."""
    last: Mapping[str, Any] = example.steps[-1].state
    inside = {who for who, state in last["state"].items() if state in {"granted", "inside"}}
    first = next(iter(last["queue"]), None)
    return _Look(
        slots=last["slots"],
        open=last["open"],
        in_slots=len(inside & writers),
        in_cuts=len(inside & savers),
        waits_first=None if first is None else Cut if first in savers else Slot,
    )


def _holds(promise: str, look: _Look) -> bool:
    asked = _PROMISES.get(promise)
    return asked is None or asked(look)


def _exclusion(look: _Look) -> bool:
    return not look.in_cuts or (look.in_cuts == 1 and not look.in_slots)


def _balance(look: _Look) -> bool:
    return look.slots == look.in_slots and look.open == bool(look.in_cuts)


def _no_idle_place(look: _Look) -> bool:
    if look.waits_first is None or look.open:
        return True
    return look.waits_first is Cut and look.slots > 0


_PROMISES: Mapping[str, Callable[[_Look], bool]] = MappingProxyType(
    {"Exclusion": _exclusion, "Balance": _balance, "NoIdlePlace": _no_idle_place}
)
"""Those that can be asked of one state; the others fall by going round."""
