"""`weight_fifo`: gated dispatch, and the oldest weights train first."""

from __future__ import annotations

from bisect import bisect_left

from cutlock.samplers.base import GatedSampler, GroupView, exactly, older_than

__all__ = ["WeightFifoSampler"]


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
