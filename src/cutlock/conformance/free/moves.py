"""Moves that only the state machine makes: a commit is cancelled, a call is refused.

Source: design, sections 5 and 13.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from cutlock.alphabet import Action
from cutlock.barrier import Slot
from cutlock.buffer import ReplayBuffer
from cutlock.conformance.stepping.doing import Doing, Move, Records
from cutlock.conformance.stepping.moves import MOVES
from cutlock.errors import DivergenceError, NotEnabledError, PlaneError
from cutlock.plane.base import Fields
from cutlock.records import IndexEntry
from cutlock.tlc.action import ActionCall

__all__ = [
    "CANCEL_COMMIT",
    "CANCEL_COMMIT_TWICE",
    "MACHINE_MOVES",
    "in_spec",
    "refusal_of",
    "refused_by",
]

CANCEL_COMMIT = "CancelCommit"
"""The task of a commit is cancelled; `RollbackGroup` of the spec."""
CANCEL_COMMIT_TWICE = "CancelCommitTwice"
"""The same, and again while the rows are cleared."""

_REFUSED = "Refused"
_ALONE = "the commit alone is cancelled"
_MANY = 10**6


def refusal_of(call: ActionCall) -> ActionCall:
    """The move that tries a call and wants it refused."""
    return ActionCall(_REFUSED + call.name, call.arguments)


def refused_by(move: ActionCall) -> ActionCall | None:
    """The call that the move wants refused; None for any other move."""
    name = move.name.removeprefix(_REFUSED)
    return None if name == move.name else ActionCall(name, move.arguments)


def in_spec(call: ActionCall) -> ActionCall:
    """The move as an action of the spec."""
    if call.name in {CANCEL_COMMIT, CANCEL_COMMIT_TWICE}:
        return ActionCall(Action.ROLLBACK_GROUP.value, call.arguments)
    return call


def _begin_commit(doing: Doing) -> Records:
    """As ever, and a cancellation that means this commit alone fails it."""
    buffer = doing.running.engine.buffer
    if "commit" not in vars(buffer):
        _survive_cancellation(buffer)
    return MOVES[Action.BEGIN_COMMIT](doing)


def _survive_cancellation(buffer: ReplayBuffer) -> None:
    commit = buffer.commit

    async def survived(slot: Slot, group_id: str, fields: Fields, *, end_weight: int) -> IndexEntry:
        try:
            return await commit(slot, group_id, fields, end_weight=end_weight)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or error.args != (_ALONE,):
                raise
            while task.cancelling():
                task.uncancel()
            raise PlaneError(f"the commit of {group_id} was cancelled") from error

    buffer.commit = survived  # type: ignore[method-assign]


def _cancel(*, twice: bool) -> Move:
    def move(doing: Doing) -> Records:
        group, loop = doing.group, doing.stepper.loop
        stop = Action.COMMIT_GROUP if doing.at(Action.COMMIT_GROUP, group) else Action.PUT_ROWS
        doing.require_at(stop, group)
        doing.running.set_attempts(1 if doing.gives_up else _MANY)
        doing.stepper.failures += 1
        task = doing.running.engine.attempts[group].task
        task.cancel(_ALONE)
        if twice:
            # By then the task has been woken and waits for the clear of its rows.
            loop.call_soon(task.cancel, _ALONE)
        return Action.ROLLBACK_GROUP, Action.FAIL_GROUP

    return move


def _refused(action: str, move: Move) -> Move:
    def refused(doing: Doing) -> Records:
        try:
            move(doing)
        except NotEnabledError:
            return ()
        raise DivergenceError(f"{action} was done, and the specification does not allow it")

    return refused


_REAL: Mapping[str, Move] = {
    **MOVES,
    Action.BEGIN_COMMIT: _begin_commit,
    CANCEL_COMMIT: _cancel(twice=False),
    CANCEL_COMMIT_TWICE: _cancel(twice=True),
}

MACHINE_MOVES: Mapping[str, Move] = {
    **_REAL,
    **{_REFUSED + name: _refused(name, move) for name, move in _REAL.items()},
}
"""The stepper's moves and these, by name."""
