"""Barrier, ledger, buffer and an in-process plane, put together as a controller does."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import torch

from cutlock.alphabet import Action
from cutlock.barrier import Barrier
from cutlock.buffer import ReplayBuffer
from cutlock.events import MemoryLog
from cutlock.ledger import Ledger
from cutlock.plane.memory import MemoryPlane, MemoryStore, PlaneStep
from cutlock.records import IndexEntry, LedgerRecord
from tests.support.bundles import prompt

Place = tuple[str, str, int | None] | Action
"""A step of the plane as (operation, phase, unit), or a stop point."""

PUT_STEPS: tuple[Place, ...] = (
    ("put", "reserve", None),
    ("put", "store", 0),
    ("put", "store", 1),
    ("put", "notify", None),
    ("put", "tag", None),
)
CLEAR_STEPS: tuple[Place, ...] = (
    ("clear", "mark", None),
    ("clear", "delete", 0),
    ("clear", "delete", 1),
    ("clear", "free", None),
)


class Script:
    """Listener of the plane and of the stop points that holds or fails whoever comes by."""

    def __init__(
        self, hold: Collection[Place] = (), fail: Mapping[Place, Exception] | None = None
    ) -> None:
        self._hold = set(hold)
        self._fail = dict(fail or {})
        self.reached = asyncio.Event()
        """Somebody stands at a place that is held."""
        self.passed: list[Place] = []
        self.announced: list[tuple[Action, dict[str, object]]] = []
        """Stop points that were reached, with what was said there."""
        self._go = asyncio.Event()

    async def reach(self, at: PlaneStep | Action, /, **where: object) -> None:
        place: Place = (at.op, at.phase, at.unit) if isinstance(at, PlaneStep) else at
        if isinstance(at, Action):
            self.announced.append((at, where))
        if place in self._hold:
            self.reached.set()
            await self._go.wait()
        if place in self._fail:
            raise self._fail[place]
        self.passed.append(place)

    def go(self) -> None:
        self._go.set()


class Parts:
    """The parts; every group has two rows of one field, which say the group's number."""

    def __init__(
        self,
        *,
        lineage: str = "r0",
        script: Script | None = None,
        store: MemoryStore | None = None,
    ) -> None:
        script = script or Script()
        self.barrier = Barrier()
        self.store = store or MemoryStore(units=2, steps=script)
        self.plane = MemoryPlane(self.store)
        self.events = MemoryLog()
        self.ledger = Ledger(self.barrier)
        self.buffer = ReplayBuffer(
            self.barrier,
            self.plane,
            self.ledger,
            self.events,
            group_size=2,
            lineage=lineage,
            stops=script,
        )

    async def admitted(
        self, *numbers: int, weight: int = 0, stamp: int | None = None, index: int = 0
    ) -> list[LedgerRecord]:
        """One batch in the ledger, reserved and admitted."""
        async with self.barrier.mutation("admit") as slot:
            admission = self.ledger.reserve(slot, [prompt(number) for number in numbers])
            return self.ledger.admit(
                slot, admission, dispatch_index=index, stamp=stamp, start_weight=weight
            )

    async def commit(self, number: int, *, end_weight: int = 0) -> IndexEntry:
        """Commit the group of a prompt whose rollout was reserved."""
        async with self.barrier.mutation("commit") as slot:
            return await self.buffer.commit(
                slot, prompt(number).key, rows(number), end_weight=end_weight
            )

    async def finished(
        self, *numbers: int, weight: int = 0, stamp: int | None = None
    ) -> list[IndexEntry]:
        """Ready groups, committed in this order."""
        entries = []
        for record in await self.admitted(*numbers, weight=weight, stamp=stamp):
            self.buffer.reserve(record)
            entries.append(await self.commit(record.occurrence.position))
        return entries

    def saved(self) -> set[str]:
        """Keys that the store lists, after showing that it holds these rows and no other."""
        store = self.store
        held = {index for unit in store.units for index in unit}
        assert held == set(store.indexes.values()) == set(store.produced)
        return set(store.indexes)

    def owned(self) -> set[str]:
        """Row keys of the index and of the open training step."""
        entries = [*self.buffer.ready(), *self.buffer.claimed.values()]
        return {key for entry in entries for key in entry.row_keys}

    def log(self) -> list[tuple[str, dict[str, object]]]:
        """The recorded actions with their arguments, in order."""
        return [(record.action, record.args) for record in self.events.records]

    def actions(self) -> list[str]:
        """The names of the recorded actions, in order."""
        return [record.action for record in self.events.records]


def rows(number: int, size: int = 2) -> dict[str, list[torch.Tensor]]:
    return {"n": [torch.tensor([number]) for _ in range(size)]}
