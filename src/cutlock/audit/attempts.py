"""A group in flight: each attempt is launched, then committed, rolled back, failed or aborted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutlock.alphabet import Action
from cutlock.audit.check import Check, Handler

__all__ = ["Attempts"]


class Attempts(Check):
    """Attempts of the groups that one process has in flight."""

    def __init__(self) -> None:
        super().__init__()
        self._version = 0
        self._launched: dict[str, int] = {}
        self._failed: dict[str, int] = {}
        self._committing: dict[str, bool] = {}
        """Groups in the slot of their commit, and whether their rows are put."""

    def _handle(self) -> Mapping[Action, Handler]:
        return {
            Action.BEGIN_RUN: lambda a: self._begin(),
            Action.RAISE_VERSION: self._raise_version,
            Action.LAUNCH_GROUP: self._launch,
            Action.BEGIN_COMMIT: self._begin_commit,
            Action.PUT_ROWS: self._put_rows,
            Action.COMMIT_GROUP: self._commit,
            Action.ROLLBACK_GROUP: self._roll_back,
            Action.FAIL_GROUP: self._fail,
            Action.ABORT_STALE: self._abort,
            Action.DROP_GROUP: self._give_up,
            Action.SUBSTITUTE_GROUP: self._give_up,
        }

    def _begin(self) -> None:
        self._launched.clear()
        self._failed.clear()
        self._committing.clear()

    def _raise_version(self, args: Any) -> None:
        self._version = args.version

    def _launch(self, args: Any) -> None:
        before = self._launched.get(args.group, -1)
        self._same("attempt", args.attempt, before + 1)
        self._same("the last failed attempt", self._failed.get(args.group, -1), before)
        self._not_committing(args.group)
        self._launched[args.group] = args.attempt

    def _begin_commit(self, args: Any) -> None:
        self._current(args)
        self._not_committing(args.group)
        self._same("end weight", args.end_weight, self._version)
        self._committing[args.group] = False

    def _put_rows(self, args: Any) -> None:
        self._current(args)
        self._require(
            self._committing.get(args.group) is False, f"{args.group} is not being committed"
        )
        self._committing[args.group] = True

    def _commit(self, args: Any) -> None:
        self._current(args)
        self._require(bool(self._committing.get(args.group)), f"{args.group} has no rows yet")
        self._forget(args.group)

    def _roll_back(self, args: Any) -> None:
        self._current(args)
        self._require(args.group in self._committing, f"{args.group} is not being committed")
        self._committing.pop(args.group, None)

    def _fail(self, args: Any) -> None:
        self._current(args)
        self._not_committing(args.group)
        self._require(
            self._failed.get(args.group) != args.attempt, f"attempt {args.attempt} fails twice"
        )
        self._failed[args.group] = args.attempt

    def _abort(self, args: Any) -> None:
        self._not_committing(args.group)
        self._forget(args.group)

    def _give_up(self, args: Any) -> None:
        self._require(
            self._failed.get(args.group, -1) == self._launched.get(args.group),
            f"{args.group} is given up and its last attempt has not failed",
        )
        self._forget(args.group)

    def _forget(self, group: str) -> None:
        for attempts in (self._launched, self._failed, self._committing):
            attempts.pop(group, None)

    def _current(self, args: Any) -> None:
        self._same("attempt", args.attempt, self._launched.get(args.group))

    def _not_committing(self, group: str) -> None:
        self._require(group not in self._committing, f"{group} is still in the slot of its commit")
