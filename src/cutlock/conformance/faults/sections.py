"""Slots and cuts that are taken away, or end too early or too late."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import cast

from cutlock.alphabet import Action
from cutlock.barrier import Barrier, Cut, Slot
from cutlock.conformance.faults.switch import (
    TRUSTS_THE_CUT,
    Fault,
    Patch,
    Reaching,
    Switch,
    built,
    nothing,
)
from cutlock.conformance.stepping.stands import Stands
from cutlock.loader import PromptLoader
from cutlock.run.state import RunState
from cutlock.samplers.base import GatedSampler

__all__ = ["SECTION_FAULTS", "UNDRAINED", "Unguarded", "without_slots"]


class Unguarded:
    """A live slot that excludes nobody and waits for nobody."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    async def __aenter__(self) -> Slot:
        self._slot._state = "live"
        return self._slot

    async def __aexit__(self, *error: object) -> None:
        await self._slot._end_effects()
        self._slot._state = "dead"


def without_slots(kind: str) -> tuple[Patch, ...]:
    """Changes of one kind are made outside every slot."""

    def outside(guarded: Callable[[Barrier, str], Slot]) -> Callable[[Barrier, str], object]:
        def mutation(barrier: Barrier, wanted: str) -> object:
            slot = guarded(barrier, wanted)
            return Unguarded(slot) if wanted == kind else slot

        return mutation

    ways = ("mutation", "atomic_mutation")
    return tuple(Patch(Barrier, way, outside(getattr(Barrier, way))) for way in ways)


def _unslotted(kind: str) -> Switch:
    return Switch(patches=without_slots(kind), unbarred=frozenset({kind}))


def _undrained() -> Switch:
    enters, hands_over = Cut.__aenter__, Barrier._hand_over

    async def enter(cut: Cut) -> Cut:
        barrier = cut.barrier
        if barrier.cut_open or barrier.waiting:
            return await enters(cut)
        with _uncounted(barrier):
            return await enters(cut)  # at once, so nobody sees the count

    def hand_over(barrier: Barrier) -> None:
        with _uncounted(barrier):
            hands_over(barrier)

    return Switch(
        patches=(Patch(Cut, "__aenter__", enter), Patch(Barrier, "_hand_over", hand_over))
    )


@contextlib.contextmanager
def _uncounted(barrier: Barrier) -> Iterator[None]:
    held, barrier._slots = barrier._slots, 0
    try:
        yield
    finally:
        barrier._slots += held


UNDRAINED = _undrained()
"""A cut opens without waiting for the slots that are held."""


def _slot_ends_at(action: Action) -> Switch:
    """The slot of whoever comes to that action is over until it has been let go on."""
    enters, reaches = Slot.__aenter__, Stands.reach
    entered: ContextVar[Slot] = ContextVar("entered")

    async def enter(slot: Slot) -> Slot:
        entered.set(slot)
        return await enters(slot)

    async def reach(stands: Stands, reached: Action, /, **where: object) -> None:
        if reached is not action:
            return await reaches(stands, reached, **where)
        barrier = entered.get().barrier
        barrier._slots -= 1
        barrier._hand_over()
        try:
            await reaches(stands, reached, **where)
        finally:
            barrier._slots += 1

    return Switch(patches=(Patch(Slot, "__aenter__", enter), Patch(Stands, "reach", reach)))


def _waits_in_slot(state: RunState) -> None:
    async def inside(stop: Callable[[], Awaitable[None]]) -> None:
        async with state.barrier.mutation("admission"):
            await stop()
            await cast(GatedSampler, state.sampler).wait_until_admissible(state.version)

    state.stops = Reaching(state.stops, Action.OPEN_GATE, inside)


_PAST = "the code fixes the past of a cut when the cut opens, the spec when the ledger is read"

SECTION_FAULTS = (
    Fault(
        name="commit_without_slot",
        what="a commit is made outside every slot",
        mutants=("commit_unslotted",),
        protection=_unslotted("group_commit"),
    ),
    Fault(
        name="admission_without_slot",
        what="an admission is made outside every slot",
        mutants=("admission_unslotted",),
        protection=_unslotted("admission"),
        second_lines=TRUSTS_THE_CUT,
    ),
    Fault(
        name="loader_without_slot",
        what="the loader advances outside every slot",
        mutants=("loader_unslotted",),
        protection=_unslotted("loader_advance"),
    ),
    Fault(
        name="substitution_without_slot",
        what="a lost group is replaced outside every slot",
        mutants=("substitute_unslotted",),
        protection=_unslotted("drop"),
        second_lines=TRUSTS_THE_CUT,
        blind={"disk.dropped": _PAST},
    ),
    Fault(
        name="drain_without_slot",
        what="spares become a batch outside every slot",
        mutants=("spare_drain_unslotted",),
        protection=_unslotted("spare_drain"),
        second_lines=TRUSTS_THE_CUT,
    ),
    Fault(
        name="cut_without_drain",
        what="a cut opens while slots are held",
        mutants=("undrained", "undrained_window"),
        protection=UNDRAINED,
    ),
    Fault(
        name="epoch_in_another_slot",
        what="the slot of a batch that ends its epoch is over before the epoch is raised",
        mutants=("epoch_in_another_slot",),
        protection=_slot_ends_at(Action.RAISE_EPOCH),
        second_lines=Switch(patches=(Patch(PromptLoader, "_refuse_raise_due", nothing),)),
    ),
    Fault(
        name="slot_ends_before_put",
        what="the slot of a commit is over while its rows are put",
        mutants=("slot_ends_before_put",),
        protection=_slot_ends_at(Action.PUT_ROWS),
    ),
    Fault(
        name="gate_wait_in_slot",
        what="the gate is waited for in a slot",
        mutants=("gate_wait_in_slot", "gate_wait_in_slot_lockstep", "gate_wait_starves_cut"),
        protection=built(_waits_in_slot),
    ),
)
