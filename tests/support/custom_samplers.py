"""Samplers of a user's own, right and wrong; named by path as a configuration names them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from cutlock.barrier import Barrier, Slot
from cutlock.samplers import Admission, GroupView, TrainerVersion


class Choice:
    """All of a sampler but its admission: trains the groups stamped with the version."""

    restorable: ClassVar[bool] = True
    name = "user's own"

    def __init__(self, barrier: Barrier, window: int = 1) -> None:
        self.barrier = barrier
        self.window = window
        self.cursor = -1

    def capacity_needed(self, prompts_per_step: int) -> int:
        return prompts_per_step * (self.window + 1)

    def need(self, version: int, groups: int, shortfall: int, view: GroupView) -> int:
        return groups - shortfall

    def select(self, view: GroupView, version: int, need: int) -> list[str]:
        ready = [entry.group_id for entry in view.ready_with_stamp(version)]
        return ready[:need] if len(ready) >= need else []

    def evict(self, view: GroupView, version: int) -> list[str]:
        return []

    def stale_in_flight(self, start_weight: int, version: int) -> bool:
        return False

    def credits_shortfall(self) -> bool:
        return True

    def substitute_weight(self, lost_start_weight: int, version: int) -> int:
        return lost_start_weight

    def restore_cursor(self, slot: Slot, cursor: int) -> None:
        self.cursor = cursor

    def _open(self, version: int) -> bool:
        return self.cursor < version + self.window

    def _advance(self) -> Admission:
        self.cursor += 1
        return Admission(self.cursor, self.cursor)


class AdmitOnly(Choice):
    """Keeps the contract: waits for one step at most, moves the cursor after its last await."""

    async def admit(self, version: TrainerVersion) -> Admission:
        await version.wait_for(self._open)
        return self._advance()


class Dawdling(AdmitOnly):
    """Keeps the contract too, some turns late."""

    async def admit(self, version: TrainerVersion) -> Admission:
        await version.wait_for(self._open)
        for _ in range(3):
            await asyncio.sleep(0)
        return self._advance()


class Impatient(Choice):
    """Moves the cursor before it waits."""

    async def admit(self, version: TrainerVersion) -> Admission:
        admission = self._advance()
        await version.wait_for(lambda value: value >= self.cursor)
        return admission


class TwoStepsBehind(Choice):
    """Waits for more than one trainer step."""

    async def admit(self, version: TrainerVersion) -> Admission:
        asked_at = version.value
        await version.wait_for(lambda value: value >= asked_at + 2)
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")


class Stubborn(Choice):
    """Takes a cancellation as a sign to hurry."""

    async def admit(self, version: TrainerVersion) -> Admission:
        try:
            await version.wait_for(self._open)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return self._advance()


class Failing(Choice):
    async def admit(self, version: TrainerVersion) -> Admission:
        raise RuntimeError("no batch today")


class Nested(Choice):
    """Enters the barrier although its whole call is in a slot."""

    async def admit(self, version: TrainerVersion) -> Admission:
        async with self.barrier.mutation("mine"):
            return self._advance()


class Split(AdmitOnly):
    """Has both forms of admission."""

    async def wait_until_admissible(self, version: TrainerVersion) -> None:
        await version.wait_for(self._open)

    def commit_admission(self, slot: Slot, version: int) -> Admission:
        self.barrier.require_slot(slot)
        return self._advance()

    async def admit(self, version: TrainerVersion) -> Admission:
        raise AssertionError("the split is there to be used")


class NotRestorable(AdmitOnly):
    restorable = False

    def __init__(self, barrier: Barrier) -> None:
        raise AssertionError("looked at, not constructed")


class Undeclared:
    """Does not say whether it may be restored."""

    async def admit(self, version: TrainerVersion) -> Admission:
        return Admission(0, None)


class WronglyDeclared(AdmitOnly):
    restorable = "yes"  # type: ignore[assignment]


class HalfSplit(Choice):
    """Can wait and cannot commit."""

    async def wait_until_admissible(self, version: TrainerVersion) -> None:
        await version.wait_for(self._open)


class NoChoice:
    """Admits and cannot choose."""

    restorable = True
    name = "no choice"
    cursor = -1

    async def admit(self, version: TrainerVersion) -> Admission:
        return Admission(0, None)

    def select(self, view: GroupView, version: int, need: int) -> Sequence[str]:
        return []


class NoCursor(AdmitOnly):
    def __init__(self, barrier: Barrier) -> None:
        super().__init__(barrier)
        del self.cursor


def function(barrier: Barrier) -> AdmitOnly:
    return AdmitOnly(barrier)
