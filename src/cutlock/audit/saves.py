"""A save: its actions in their order, and nothing of the run's own inside the exclusive window.

Promise P1: what the cut reads is of one state, because nothing moves between its reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutlock.alphabet import Action
from cutlock.audit.check import Check, Handler
from cutlock.audit.history import Event

__all__ = ["Saves"]

_READS = (
    Action.READ_CURSOR,
    Action.READ_LOADER,
    Action.READ_SPARE_POOL,
    Action.READ_INDEX,
    Action.READ_LEDGER,
)
_WRITES = (Action.WRITE_POLICY, Action.WRITE_SIDECARS, Action.WRITE_MANIFEST)

_NO_MUTATION = frozenset(
    {
        *_READS,
        Action.SAVE_PLANE,
        Action.OPEN_GATE,
        Action.LAUNCH_GROUP,
        Action.FAIL_GROUP,
    }
)
"""Actions that take no slot, and so may come while a cut is open."""

_BEFORE: dict[Action, tuple[Action, ...]] = {
    Action.REQUEST_CUT: (),
    Action.OPEN_CUT: (Action.REQUEST_CUT,),
    **dict.fromkeys(_READS, (Action.OPEN_CUT,)),
    Action.SAVE_PLANE: (Action.READ_INDEX,),
    Action.CLOSE_CUT: (Action.OPEN_CUT, *_READS),
    Action.WRITE_POLICY: (Action.CLOSE_CUT,),
    Action.WRITE_SIDECARS: (Action.CLOSE_CUT,),
    Action.WRITE_MANIFEST: (Action.WRITE_POLICY, Action.WRITE_SIDECARS),
    Action.PUBLISH_BUNDLE: (Action.WRITE_MANIFEST,),
}
"""What must have been done in the same save before an action."""


class Saves(Check):
    """The save in progress, and the bundles that there should be."""

    def __init__(self) -> None:
        super().__init__()
        self._group_size = 0
        self._done: set[Action] = set()
        self._step = -1
        self._indexed = 0
        self._intruders: list[str] = []
        self._bundles: set[str] = set()
        self._published = False

    def _handle(self) -> Mapping[Action, Handler]:
        return {
            Action.BEGIN_RUN: self._begin,
            Action.REQUEST_CUT: self._request,
            Action.OPEN_CUT: lambda a: self._same("step", a.step, self._step),
            Action.READ_INDEX: self._read_index,
            Action.SAVE_PLANE: self._save_plane,
            Action.CLOSE_CUT: self._close,
            **dict.fromkeys(_WRITES, lambda a: self._same("step", a.step, self._step)),
            Action.PUBLISH_BUNDLE: self._publish,
            Action.PRUNE_BUNDLES: self._prune,
            Action.FAIL_SAVE: lambda a: self._end(),
            Action.VERIFY_BUNDLE: lambda a: self._bundles.add(a.bundle),
        }

    def follow(self, event: Event) -> None:
        """Follow one event; most matter only by coming while a cut is open."""
        self._where = event.where
        is_open = Action.OPEN_CUT in self._done and Action.CLOSE_CUT not in self._done
        if is_open and event.action not in _NO_MUTATION | {Action.CLOSE_CUT}:
            self._intruders.append(event.where)
        if event.action in _BEFORE:
            self._in_order(event.action)
        super().follow(event)

    def _in_order(self, action: Action) -> None:
        if action is Action.REQUEST_CUT:
            self._require(not self._done, "the save before has not ended")
            self._end()
        missing = [before for before in _BEFORE[action] if before not in self._done]
        if missing or action in self._done:
            self._problem(f"comes twice, or before {', '.join(missing) or action} of its save")
        if action in _READS and Action.CLOSE_CUT in self._done:
            self._problem("is read after the window has closed")
        self._done.add(action)

    def _begin(self, args: Any) -> None:
        self._group_size = args.group_size
        self._end()

    def _end(self) -> None:
        self._done.clear()
        self._intruders.clear()
        self._published = False

    def _request(self, args: Any) -> None:
        self._step = args.step

    def _read_index(self, args: Any) -> None:
        self._indexed = len(args.groups)

    def _save_plane(self, args: Any) -> None:
        self._same("the number of rows", args.rows, self._indexed * self._group_size)

    def _close(self, args: Any) -> None:
        """Only now: a cut that is cancelled ends without a record, and the run with it."""
        self._same("step", args.step, self._step)
        for where in self._intruders:
            self.problems.append(f"{where}: moves something while the cut of {self._where} is open")
        self._intruders.clear()

    def _publish(self, args: Any) -> None:
        self._same("step", args.step, self._step)
        self._same("bundle", args.bundle, f"step_{self._step}")
        self._end()
        self._published = True
        self._bundles.add(args.bundle)

    def _prune(self, args: Any) -> None:
        self._require(self._published, "prunes without having published")
        self._published = False
        for bundle in args.bundles:
            self._require(bundle in self._bundles, f"{bundle} is no bundle of this history")
            self._bundles.discard(bundle)
