"""Side by side: several things at once, of which each can fail for all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from cutlock.errors import PlaneLostError, WorkerLostError

__all__ = ["together"]


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
