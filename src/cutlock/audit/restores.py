"""A restore: its stages in their order, each once, and all of them before the pumps start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutlock.alphabet import Action
from cutlock.audit.check import Check, Handler
from cutlock.audit.history import Event

__all__ = ["Restores"]

_STAGES = (
    Action.VERIFY_BUNDLE,
    Action.LOAD_PLANE,
    Action.CONNECT_PLANE,
    Action.RESTORE_INDEX,
    Action.RESTORE_SPARE_POOL,
    Action.RESTORE_LEDGER,
    Action.RESTORE_CURSOR,
)


class Restores(Check):
    """How far the start of one process has come."""

    def __init__(self) -> None:
        super().__init__()
        self._group_size = 0
        self._reached = 0
        self._rows = 0

    def _handle(self) -> Mapping[Action, Handler]:
        return {
            Action.BEGIN_RUN: self._begin,
            Action.LOAD_PLANE: self._load_plane,
            Action.RESTORE_INDEX: self._restore_index,
            Action.START_PUMPS: self._start_pumps,
        }

    def follow(self, event: Event) -> None:
        """Follow one event."""
        super().follow(event)
        if event.action in _STAGES:
            self._where = event.where
            expected = dict(enumerate(_STAGES)).get(self._reached, Action.START_PUMPS)
            self._same("the stage of the restore", event.action, expected)
            self._reached = _STAGES.index(event.action) + 1

    def _begin(self, args: Any) -> None:
        self._group_size = args.group_size
        self._reached = 0

    def _load_plane(self, args: Any) -> None:
        self._rows = args.rows

    def _restore_index(self, args: Any) -> None:
        self._same("the number of rows", self._rows, len(args.groups) * self._group_size)

    def _start_pumps(self, args: Any) -> None:
        self._require(self._reached in {0, len(_STAGES)}, "the restore before has not ended")
        self._reached = len(_STAGES)
