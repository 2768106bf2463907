"""`windowed`: ungated dispatch, bounded by capacity; staleness is bounded by dropping."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from cutlock.barrier import Barrier, Slot
from cutlock.records import IndexEntry
from cutlock.samplers.base import (
    Admission,
    GatedSampler,
    GroupView,
    TrainerVersion,
    exactly,
    older_than,
)

__all__ = ["WindowedSampler"]


class WindowedSampler(GatedSampler):
    """Trains any finished group whose start weight is in the window; drops what falls out.

    Args:
        window: greatest staleness, in trainer versions, of a group that trains.
        order: `insertion` trains what was finished first, `freshest` the latest start
            weight first.
    """

    name = "windowed"

    def __init__(
        self,
        barrier: Barrier,
        window: int,
        order: Literal["insertion", "freshest"],
    ) -> None:
        super().__init__(barrier, window)
        self.order = order

    def capacity_needed(self, prompts_per_step: int) -> int:
        """One step."""
        return prompts_per_step

    async def wait_until_admissible(self, version: TrainerVersion) -> None:
        """Return at once: there is no gate."""

    def commit_admission(self, slot: Slot, version: int) -> Admission:
        """Raise the cursor by one; there is no gate to be shut."""
        self._barrier.require_slot(slot)
        self._cursor += 1
        return Admission(self._cursor, None)

    def need(self, version: int, groups: int, shortfall: int, view: GroupView) -> int:
        """Always `groups`: more batches come until the data ends."""
        return groups

    def select(self, view: GroupView, version: int, need: int) -> list[str]:
        """`need` groups in the window, in the configured order."""
        oldest = version - self.window
        ready: Iterable[IndexEntry] = view.ready()
        if self.order == "freshest":
            weights = reversed(view.ready_weights())
            ready = (e for weight in weights for e in view.ready_with_weight(weight))
        return exactly(need, (e for e in ready if oldest <= e.start_weight <= version))

    def evict(self, view: GroupView, version: int) -> list[str]:
        """Finished groups older than the window, the oldest first."""
        return older_than(view, version - self.window)

    def stale_in_flight(self, start_weight: int, version: int) -> bool:
        """Whether the group would be evicted as soon as it is finished."""
        return start_weight < version - self.window

    def credits_shortfall(self) -> bool:
        """No: a later batch fills the place."""
        return False

    def substitute_weight(self, lost_start_weight: int, version: int) -> int:
        """The current version: the substitute is generated with it."""
        return version
