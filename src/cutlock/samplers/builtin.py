"""The four samplers that a configuration names without a path.

| name | a batch is dispatched | a step trains |
| --- | --- | --- |
| `windowed` | while the buffer has places | groups in the window; older ones are dropped |
| `ready_first` | while its gate is open | what was finished first, however old it is |
| `weight_fifo` | while its gate is open | groups of the oldest start weight, which are waited for |
| `in_order` | while its gate is open | the groups stamped for this step, which are waited for |

The gate is open while the cursor is less than a window ahead of the trainer; see `GatedSampler`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import takewhile
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

__all__ = ["InOrderSampler", "ReadyFirstSampler", "WeightFifoSampler", "WindowedSampler"]


class WindowedSampler(GatedSampler):
    """Trains any finished group whose start weight is in the window; drops what falls out.

    Dispatch has no gate: the capacity of the buffer bounds it.

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


class ReadyFirstSampler(GatedSampler):
    """Trains any finished group, in the order of the commits, however old it is."""

    name = "ready_first"

    def select(self, view: GroupView, version: int, need: int) -> list[str]:
        """The `need` groups that were finished first."""
        return exactly(need, (e for e in view.ready() if e.start_weight <= version))


class WeightFifoSampler(GatedSampler):
    """Trains only groups of the oldest start weight in the window, and waits for them.

    Unfinished groups count when the oldest weight is chosen: no younger weight overtakes
    them. A weight of which fewer groups are left than a step has, because some were lost,
    makes a short step of its own.
    """

    name = "weight_fifo"

    def _oldest(self, version: int, view: GroupView) -> tuple[int, int]:
        """(oldest start weight, live groups of it); (version, 0) if nothing is live."""
        in_flight, ready = view.in_flight_weights(), view.ready_weights()
        first = bisect_left(ready, version - self.window)
        weights = [w for w in in_flight if w >= version - self.window]
        weights += ready[first : first + 1]
        if not weights:
            return version, 0
        oldest = min(weights)
        return oldest, in_flight.get(oldest, 0) + len(view.ready_with_weight(oldest))

    def need(self, version: int, groups: int, shortfall: int, view: GroupView) -> int:
        """`groups`, or what is left of the oldest weight if that is less.

        0 if all that the gate let in has been lost: only an empty step opens it again.
        """
        _, live = self._oldest(version, view)
        if live or not self._gate_open(version):
            return min(groups, live)
        return groups

    def select(self, view: GroupView, version: int, need: int) -> list[str]:
        """`need` groups of the oldest weight, in the order of their commits."""
        oldest, _ = self._oldest(version, view)
        return exactly(need, view.ready_with_weight(oldest))

    def evict(self, view: GroupView, version: int) -> list[str]:
        """Finished groups older than the window, the oldest first."""
        return older_than(view, version - self.window)

    def credits_shortfall(self) -> bool:
        """No: the size of a step follows from what is left of its weight."""
        return False


class InOrderSampler(GatedSampler):
    """Trains exactly the groups stamped with the trainer version."""

    name = "in_order"

    def _stamp(self) -> int | None:
        return self._cursor

    def select(self, view: GroupView, version: int, need: int) -> list[str]:
        """The groups of stamp `version`, once all of them are finished."""
        return exactly(need, view.ready_with_stamp(version))

    def evict(self, view: GroupView, version: int) -> list[str]:
        """Groups stamped for a step that is past, the oldest first."""
        past = takewhile(lambda stamp: stamp < version, view.ready_stamps())
        return [e.group_id for stamp in past for e in view.ready_with_stamp(stamp)]
