"""`in_order`: every batch is stamped with the step that trains it, and waits for that step."""

from __future__ import annotations

from itertools import takewhile

from cutlock.samplers.base import GatedSampler, GroupView, exactly

__all__ = ["InOrderSampler"]


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
