"""`ready_first`: gated dispatch, and whatever is finished first trains first."""

from __future__ import annotations

from cutlock.samplers.base import GatedSampler, GroupView, exactly

__all__ = ["ReadyFirstSampler"]


class ReadyFirstSampler(GatedSampler):
    """Trains any finished group, in the order of the commits, however old it is."""

    name = "ready_first"

    def select(self, view: GroupView, version: int, need: int) -> list[str]:
        """The `need` groups that were finished first."""
        return exactly(need, (e for e in view.ready() if e.start_weight <= version))
