"""The train pump: select, advantages, train, clear, raise the version, sync; one step at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutlock.alphabet import Action
from cutlock.audit.check import Check, Handler

__all__ = ["Steps"]


class Steps(Check):
    """Steps, the groups that they name, and what is called stale."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0
        """Training steps finished, and so the trainer's version."""
        self._shape: tuple[object, ...] | None = None
        self._meant_for: dict[str, int] = {}
        self._stamped: set[str] = set()
        self._begin_process()

    def _handle(self) -> Mapping[Action, Handler]:
        return {
            Action.BEGIN_RUN: self._begin,
            Action.START_PUMPS: self._start_pumps,
            Action.COMMIT_ADMISSION: self._admit,
            Action.SUBSTITUTE_GROUP: self._substitute,
            Action.ABORT_STALE: lambda a: self._stale(a.version, [a.group]),
            Action.EVICT_GROUPS: lambda a: self._stale(a.version, a.groups),
            Action.SELECT_GROUPS: self._select,
            Action.WRITE_ADVANTAGES: self._write_advantages,
            Action.TRAIN_STEP: self._train,
            Action.CLEAR_ROWS: self._clear,
            Action.RAISE_VERSION: self._raise_version,
            Action.SYNC_WEIGHTS: self._sync,
            Action.REQUEST_CUT: self._between_steps,
            Action.TAKE_CUT: self._between_steps,
            Action.COPY_POLICY: self._between_steps,
            Action.VERIFY_BUNDLE: self._verify,
        }

    def _begin_process(self) -> None:
        self._started = False
        self._synced: int | None = None
        self._selected: list[str] | None = None
        self._stage: Action | None = None
        """How far the open step has come."""

    def _begin(self, args: Any) -> None:
        shape = (args.sampler, args.prompts_per_step, args.group_size)
        if self._shape is not None:
            self._same("(sampler, prompts per step, group size)", shape, self._shape)
        self._shape = shape
        self._begin_process()

    def _start_pumps(self, args: Any) -> None:
        self._same("step", args.step, self.step)
        self._same("version", args.version, self.step)
        self._require(not self._started, "the pumps are started twice")
        self._started = True

    def _verify(self, args: Any) -> None:
        self._same("step", args.step, self.step)
        self._same("bundle", args.bundle, f"step_{args.step}")

    def _admit(self, args: Any) -> None:
        meant_for = args.start_weight if args.stamp is None else args.stamp
        self._meant_for.update(dict.fromkeys(args.groups, meant_for))
        if args.stamp is not None:
            self._stamped.update(args.groups)

    def _substitute(self, args: Any) -> None:
        if args.group in self._meant_for:
            self._meant_for[args.substitute] = self._meant_for[args.group]
        if args.group in self._stamped:
            self._stamped.add(args.substitute)

    def _stale(self, version: int, groups: list[str]) -> None:
        self._same("version", version, self.step)
        for group in groups:
            meant_for = self._meant_for.get(group, -1)
            self._require(
                meant_for < version,
                f"{group} has stamp or weight {meant_for}, and is not stale at {version}",
            )

    def _select(self, args: Any) -> None:
        self._same("step", args.step, self.step)
        self._same("the version of the generators' weights", self._synced, self.step)
        self._same("the stage of the open step", self._stage, None)
        for group in args.groups:
            if group in self._stamped:
                self._same(f"the stamp of {group}", self._meant_for[group], self.step)
        self._selected, self._stage = args.groups, Action.SELECT_GROUPS

    def _write_advantages(self, args: Any) -> None:
        self._after(Action.SELECT_GROUPS, Action.WRITE_ADVANTAGES, args.step)

    def _train(self, args: Any) -> None:
        self._after(Action.WRITE_ADVANTAGES, Action.TRAIN_STEP, args.step)
        self._same("the groups", args.groups, self._selected)

    def _clear(self, args: Any) -> None:
        self._after(Action.TRAIN_STEP, Action.CLEAR_ROWS, args.step)
        self._same("the groups", args.groups, self._selected)

    def _raise_version(self, args: Any) -> None:
        self._same("version", args.version, self.step + 1)
        # A step whose groups were all lost trains nothing.
        last = Action.CLEAR_ROWS if self._selected else Action.SELECT_GROUPS
        self._after(last, None, self.step)
        self._selected = None
        self.step = args.version

    def _sync(self, args: Any) -> None:
        self._require(self._started, "the pumps are not started")
        self._same("version", args.version, self.step)
        self._require(self._synced != args.version, f"version {args.version} is synced twice")
        self._synced = args.version

    def _between_steps(self, args: Any) -> None:
        self._same("step", args.step, self.step)
        self._same("the stage of the open step", self._stage, None)

    def _after(self, expected: Action, now: Action | None, step: int) -> None:
        self._same("step", step, self.step)
        self._same("the stage of the open step", self._stage, expected)
        self._stage = now
