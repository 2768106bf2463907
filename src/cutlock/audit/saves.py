"""A save: its actions in their order, and what may not come meanwhile.

Promise P1: what a cut reads is of one state. In a full window nothing moves between its reads;
a narrow cut is one record, after which everything moves but the captured rows, which stay until
the units have written them; that the trainer stays until it is copied is checked with its steps.
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
"""Actions that take no slot, and so may come while a full window is open."""

_OF_ALL: dict[Action, tuple[Action, ...]] = {
    Action.REQUEST_CUT: (),
    Action.WRITE_MANIFEST: (Action.WRITE_POLICY, Action.WRITE_SIDECARS),
    Action.PUBLISH_BUNDLE: (Action.WRITE_MANIFEST,),
}
_FULL: dict[Action, tuple[Action, ...]] = {
    **_OF_ALL,
    Action.OPEN_CUT: (Action.REQUEST_CUT,),
    **dict.fromkeys(_READS, (Action.OPEN_CUT,)),
    Action.SAVE_PLANE: (Action.READ_INDEX,),
    Action.CLOSE_CUT: (Action.OPEN_CUT, *_READS),
    Action.WRITE_POLICY: (Action.CLOSE_CUT,),
    Action.WRITE_SIDECARS: (Action.CLOSE_CUT,),
}
_NARROW: dict[Action, tuple[Action, ...]] = {
    **_OF_ALL,
    Action.TAKE_CUT: (Action.REQUEST_CUT,),
    Action.COPY_POLICY: (Action.TAKE_CUT,),
    Action.SAVE_PLANE: (Action.COPY_POLICY,),
    Action.SAVE_UNIT: (Action.SAVE_PLANE,),
    Action.WRITE_POLICY: (Action.COPY_POLICY,),
    Action.WRITE_SIDECARS: (Action.WRITE_POLICY,),
}
"""What must have been done in the same save before an action, by the mode of the save."""

_OF_A_SAVE = frozenset({*_FULL, *_NARROW})


class Saves(Check):
    """The save in progress, and the bundles that there should be."""

    def __init__(self) -> None:
        super().__init__()
        self._group_size = 0
        self._cut = ""
        """How this start makes its cuts."""
        self._done: set[Action] = set()
        self._step = -1
        self._index: list[str] = []
        self._units = 0
        self._units_of_last = 0
        self._flushed = False
        self._deferred: list[str] = []
        """Captured groups whose clear has come before the last unit had saved its rows."""
        self._intruders: list[str] = []
        self._bundles: set[str] = set()
        self._published = False

    def _handle(self) -> Mapping[Action, Handler]:
        return {
            Action.BEGIN_RUN: self._begin,
            Action.REQUEST_CUT: self._request,
            Action.OPEN_CUT: self._of_this_step,
            Action.READ_INDEX: lambda a: self._read_index(a.groups),
            Action.TAKE_CUT: self._take_cut,
            Action.COPY_POLICY: self._of_this_step,
            Action.SAVE_PLANE: self._save_plane,
            Action.SAVE_UNIT: self._save_unit,
            Action.CLEAR_ROWS: self._clear,
            Action.EVICT_GROUPS: self._clear,
            Action.FLUSH_DEFERRED: self._flush,
            Action.CLOSE_CUT: self._close,
            **dict.fromkeys(_WRITES, self._of_this_step),
            Action.PUBLISH_BUNDLE: self._publish,
            Action.PRUNE_BUNDLES: self._prune,
            Action.FAIL_SAVE: lambda a: self._end(),
            Action.VERIFY_BUNDLE: lambda a: self._bundles.add(a.bundle),
        }

    def follow(self, event: Event) -> None:
        """Follow one event; most matter only by coming while a window is open."""
        self._where = event.where
        action, done = event.action, self._done
        is_open = Action.OPEN_CUT in done and Action.CLOSE_CUT not in done
        if is_open and action not in _NO_MUTATION | {Action.CLOSE_CUT}:
            self._intruders.append(event.where)
        if action in _OF_A_SAVE:
            self._in_order(action)
        super().follow(event)

    def _in_order(self, action: Action) -> None:
        if action is Action.REQUEST_CUT:
            self._require(not self._done, "the save before has not ended")
            self._end()
        before = _NARROW if self._cut == "narrow" else _FULL
        if action not in before:
            self._problem("belongs to a save of the other mode")
            return
        missing = [earlier for earlier in before[action] if earlier not in self._done]
        twice = action in self._done and action is not Action.SAVE_UNIT
        if missing or twice:
            self._problem(f"comes twice, or before {', '.join(missing) or action} of its save")
        if action in _READS and Action.CLOSE_CUT in self._done:
            self._problem("is read after the window has closed")
        if action is Action.WRITE_SIDECARS and {Action.TAKE_CUT, Action.SAVE_PLANE} <= self._done:
            self._require(self._units > 0, "no unit has saved its rows")
            expected = self._units_of_last or self._units
            self._same("the number of units that have saved their rows", self._units, expected)
            self._units_of_last = self._units
            self._require(not self._deferred, f"{self._deferred} are not cleared yet")
        self._done.add(action)

    def _begin(self, args: Any) -> None:
        self._group_size = args.group_size
        self._cut = args.cut
        self._units_of_last = 0
        self._end()
        self._read_index([])

    def _end(self) -> None:
        self._done.clear()
        self._intruders.clear()
        self._published = False

    def _request(self, args: Any) -> None:
        self._step = args.step

    def _of_this_step(self, args: Any) -> None:
        self._same("step", args.step, self._step)

    def _read_index(self, groups: list[str]) -> None:
        self._index = groups
        self._units = 0
        self._flushed = False
        self._deferred.clear()

    def _take_cut(self, args: Any) -> None:
        self._of_this_step(args)
        self._read_index(args.index)

    def _save_plane(self, args: Any) -> None:
        self._same("the number of rows", args.rows, len(self._index) * self._group_size)

    def _save_unit(self, args: Any) -> None:
        self._same("unit", args.unit, self._units)
        self._require(not self._flushed, "captured rows are cleared before it has saved them")
        self._units += 1

    def _clear(self, args: Any) -> None:
        if Action.TAKE_CUT in self._done and not self._units:
            self._deferred += [group for group in args.groups if group in self._index]

    def _flush(self, args: Any) -> None:
        self._require(
            not self._done or self._units > 0, "captured rows are cleared before they are saved"
        )
        self._same("the groups", sorted(args.groups), sorted(self._deferred))
        self._flushed = True
        self._deferred.clear()

    def _close(self, args: Any) -> None:
        """Only now: a cut that is cancelled ends without a record, and the run with it."""
        self._of_this_step(args)
        for where in self._intruders:
            self.problems.append(f"{where}: moves something while the cut of {self._where} is open")
        self._intruders.clear()

    def _publish(self, args: Any) -> None:
        self._of_this_step(args)
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
