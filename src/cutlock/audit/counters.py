"""Counters told from the event logs: cursor, stamps, admissions, attempts, steps, versions.

Promise P3 and the order within a group's and a step's life, checked record by record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cutlock.alphabet import Action
from cutlock.audit.history import Event

__all__ = ["Admitted", "Counters"]


@dataclass(frozen=True)
class Admitted:
    """What a group was given when its batch was admitted."""

    admission: int
    cursor: int
    stamp: int | None
    start_weight: int


class Counters:
    """The counters after the events followed so far."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.cursor = -1
        self.next_admission = 0
        self.step = 0
        self.loader = (0, 0)
        """Epoch and position."""
        self.reserved: dict[int, list[str]] = {}
        """Batches that are not admitted, by admission id."""
        self.admitted: dict[str, Admitted] = {}
        self._where = ""
        self._last_stamp = -1
        self._shape: tuple[object, ...] | None = None
        self._group_size = 0
        self._launched: dict[str, int] = {}
        self._put: set[str] = set()
        self._committed_at: dict[str, int] = {}
        self._selected: list[str] | None = None
        self._trained: list[str] | None = None
        self._cut = -1
        self._indexed = 0
        self._loaded = 0
        self._handlers: dict[Action, Callable[[Any], None]] = {
            Action.BEGIN_RUN: self._begin,
            Action.START_PUMPS: self._start_pumps,
            Action.RESERVE_BATCH: self._reserve,
            Action.FILL_SPARE_POOL: self._serve,
            Action.DRAIN_SPARE_POOL: self._reserve,
            Action.RAISE_EPOCH: self._raise_epoch,
            Action.OPEN_GATE: self._open_gate,
            Action.COMMIT_ADMISSION: self._admit,
            Action.LAUNCH_GROUP: self._launch,
            Action.BEGIN_COMMIT: lambda a: self._same_attempt(a.group, a.attempt),
            Action.PUT_ROWS: self._put_rows,
            Action.COMMIT_GROUP: self._commit,
            Action.ROLLBACK_GROUP: self._roll_back,
            Action.FAIL_GROUP: lambda a: self._same_attempt(a.group, a.attempt),
            Action.SUBSTITUTE_GROUP: self._substitute,
            Action.ABORT_STALE: lambda a: self._stale(a.version, [a.group]),
            Action.EVICT_GROUPS: lambda a: self._stale(a.version, a.groups),
            Action.SELECT_GROUPS: self._select,
            Action.WRITE_ADVANTAGES: lambda a: self._same("step", a.step, self.step),
            Action.TRAIN_STEP: self._train,
            Action.CLEAR_ROWS: self._clear,
            Action.RAISE_VERSION: self._raise_version,
            Action.SYNC_WEIGHTS: lambda a: self._same("version", a.version, self.step),
            Action.REQUEST_CUT: lambda a: self._same("step", a.step, self.step),
            Action.OPEN_CUT: self._open_cut,
            Action.READ_CURSOR: lambda a: self._same("cursor", a.cursor, self.cursor),
            Action.READ_LOADER: self._read_loader,
            Action.READ_INDEX: self._read_index,
            Action.SAVE_PLANE: lambda a: self._rows(a.rows, self._indexed),
            Action.CLOSE_CUT: lambda a: self._same("step", a.step, self._cut),
            Action.WRITE_POLICY: lambda a: self._same("step", a.step, self._cut),
            Action.WRITE_SIDECARS: lambda a: self._same("step", a.step, self._cut),
            Action.WRITE_MANIFEST: lambda a: self._same("step", a.step, self._cut),
            Action.PUBLISH_BUNDLE: self._publish,
            Action.VERIFY_BUNDLE: lambda a: self._same("step", a.step, self.step),
            Action.LOAD_PLANE: self._load_plane,
            Action.RESTORE_INDEX: self._restore_index,
            Action.RESTORE_CURSOR: self._restore_cursor,
        }

    def follow(self, event: Event) -> None:
        """Follow one event."""
        handler = self._handlers.get(event.action)
        if handler is not None:
            self._where = event.where
            handler(event.args)

    def _problem(self, text: str) -> None:
        self.problems.append(f"{self._where}: {text}")

    def _same(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            self._problem(f"{what} is {found} and should be {expected}")

    # Controller.

    def _begin(self, args: Any) -> None:
        shape = (args.sampler, args.prompts_per_step, args.group_size)
        if self._shape is not None:
            self._same("(sampler, prompts per step, group size)", shape, self._shape)
        self._shape, self._group_size = shape, args.group_size
        # Attempts and the open step are of one process.
        self._launched.clear()
        self._put.clear()
        self._selected = self._trained = None

    def _start_pumps(self, args: Any) -> None:
        self._same("step", args.step, self.step)
        self._same("version", args.version, self.step)

    # From the loader to an admitted batch.

    def _serve(self, args: Any) -> None:
        self._same("epoch", args.epoch, self.loader[0])
        self.loader = (args.epoch, args.position)

    def _reserve(self, args: Any) -> None:
        self._same("admission", args.admission, self.next_admission)
        self.next_admission = args.admission + 1
        self.reserved[args.admission] = args.groups
        if hasattr(args, "position"):
            self._serve(args)

    def _raise_epoch(self, args: Any) -> None:
        self._same("epoch", args.epoch, self.loader[0] + 1)
        self.loader = (args.epoch, 0)

    def _open_gate(self, args: Any) -> None:
        self._same("version", args.version, self.step)
        if args.admission not in self.reserved:
            self._problem(f"admission {args.admission} is none of {sorted(self.reserved)}")

    def _admit(self, args: Any) -> None:
        self._same("the batch", args.groups, self.reserved.pop(args.admission, None))
        self._same("cursor", args.cursor, self.cursor + 1)
        self._same("start weight", args.start_weight, self.step)
        self.cursor = args.cursor
        if args.stamp is not None:
            if args.stamp <= self._last_stamp:
                self._problem(f"stamp {args.stamp} comes after stamp {self._last_stamp}")
            self._last_stamp = args.stamp
        given = Admitted(args.admission, args.cursor, args.stamp, args.start_weight)
        self.admitted.update(dict.fromkeys(args.groups, given))

    # A group.

    def _launch(self, args: Any) -> None:
        self._same("attempt", args.attempt, self._launched.get(args.group, -1) + 1)
        self._launched[args.group] = args.attempt

    def _same_attempt(self, group: str, attempt: int) -> None:
        self._same("attempt", attempt, self._launched.get(group))

    def _put_rows(self, args: Any) -> None:
        self._same_attempt(args.group, args.attempt)
        if args.group in self._put:
            self._problem(f"the rows of {args.group} are put twice")
        self._put.add(args.group)

    def _commit(self, args: Any) -> None:
        self._same_attempt(args.group, args.attempt)
        if args.group not in self._put:
            self._problem(f"{args.group} is committed without rows")
        self._put.discard(args.group)
        self._launched.pop(args.group, None)
        start = self._start_weight(args.group)
        if not start <= args.end_weight <= self.step:
            self._problem(
                f"start weight {start}, end weight {args.end_weight} and version {self.step} of "
                f"{args.group} are out of order"
            )

    def _roll_back(self, args: Any) -> None:
        self._same_attempt(args.group, args.attempt)
        self._put.discard(args.group)

    def _substitute(self, args: Any) -> None:
        lost = self.admitted.get(args.group)
        if lost is not None:
            self.admitted[args.substitute] = lost

    def _start_weight(self, group: str) -> int:
        given = self.admitted.get(group)
        return given.start_weight if given is not None else 0

    def _stale(self, version: int, groups: list[str]) -> None:
        self._same("version", version, self.step)
        for group in groups:
            self._launched.pop(group, None)
            given = self.admitted.get(group)
            age = self.step if given is None else given.start_weight
            if given is not None and given.stamp is not None:
                age = given.stamp
            if age >= version:
                self._problem(f"{group} of weight or stamp {age} is not stale at {version}")

    # A step.

    def _select(self, args: Any) -> None:
        self._same("step", args.step, self.step)
        if self._selected is not None:
            self._problem(f"step {self.step} has selected already")
        self._selected, self._trained = args.groups, None
        for group in args.groups:
            given = self.admitted.get(group)
            if given is not None and given.stamp is not None:
                self._same(f"the stamp of {group}", given.stamp, self.step)

    def _train(self, args: Any) -> None:
        self._same("step", args.step, self.step)
        self._same("the groups", args.groups, self._selected)
        self._trained = args.groups

    def _clear(self, args: Any) -> None:
        self._same("step", args.step, self.step)
        self._same("the groups", args.groups, self._trained)

    def _raise_version(self, args: Any) -> None:
        self._same("version", args.version, self.step + 1)
        if self._selected is None or (self._selected and self._trained is None):
            self._problem(f"step {self.step} ends and has selected or trained nothing")
        self._selected = self._trained = None
        self.step = args.version

    # A cut, and what continues from it.

    def _open_cut(self, args: Any) -> None:
        self._same("step", args.step, self.step)
        self._cut = args.step

    def _read_loader(self, args: Any) -> None:
        self._same("(epoch, position)", (args.epoch, args.position), self.loader)

    def _read_index(self, args: Any) -> None:
        self._indexed = len(args.groups)

    def _rows(self, rows: int, groups: int) -> None:
        self._same("the number of rows", rows, groups * self._group_size)

    def _publish(self, args: Any) -> None:
        self._same("step", args.step, self._cut)
        self._same("bundle", args.bundle, f"step_{self._cut}")
        self._cut = -1

    def _load_plane(self, args: Any) -> None:
        self._loaded = args.rows

    def _restore_index(self, args: Any) -> None:
        self._rows(self._loaded, len(args.groups))

    def _restore_cursor(self, args: Any) -> None:
        self._same("cursor", args.cursor, self.cursor)
