"""`in_order`: every batch is stamped with the step that trains it, and waits for that step."""

from __future__ import annotations

from cutlock.samplers.base import GatedSampler, GroupView

__all__ = ["InOrderSampler"]


class InOrderSampler(GatedSampler):
    """Trains exactly the groups stamped with the trainer version."""

    name = "in_order"

    def _stamp(self) -> int | None:
        return self._cursor

    def select(self, view: GroupView, version: int, need: int) -> list[str]:
        """The groups of stamp `version`, once all of them are finished."""
        ready = view.ready_with_stamp(version)
        return [entry.group_id for entry in ready[:need]] if len(ready) >= need else []

    def evict(self, view: GroupView, version: int) -> list[str]:
        """Groups stamped for a step that is past."""
        return [e.group_id for e in view.ready() if e.stamp is not None and e.stamp < version]
