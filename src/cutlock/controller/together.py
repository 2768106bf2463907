"""Side by side: several things at once, of which each can fail for all; and which one has."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from cutlock.errors import CutlockError, PlaneLostError, WorkerLostError

__all__ = ["first_error", "together"]


async def together(*work: Coroutine[object, object, None]) -> None:
    """Run coroutines side by side; return when all have ended.

    Raises:
        Exception: what the first one has failed with; the others have been cancelled. A lost
            store or worker goes before anything else.
        CancelledError: one of them has cancelled itself, and is not done.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as failed:
        lost = (e for e in failed.exceptions if isinstance(e, PlaneLostError | WorkerLostError))
        raise next(lost, failed.exceptions[0]) from None
    if any(task.cancelled() for task in tasks):
        # By a call of its own: a task group takes that for done.
        raise asyncio.CancelledError


def first_error(error: BaseException) -> BaseException:
    """The first error of ours in a group, else the first of any kind."""
    leaves = _leaves(error)
    return next((leaf for leaf in leaves if isinstance(leaf, CutlockError)), leaves[0])


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
