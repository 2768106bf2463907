"""Waiting and cancellation: what asyncio leaves to its users, once for all who need it.

Knows asyncio only, so that the barrier may use it.
"""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["Signal", "cancelled_by_nobody", "mark_retrieved", "until_any_done", "until_done"]


async def until_done(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until the future is done, however often the caller is cancelled.

    Returns:
        The last cancellation that came meanwhile, for the caller to raise; None without one.
    """
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


async def until_any_done(*futures: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until one of the futures is done; else as `until_done`."""
    cancelled = None
    while not any(future.done() for future in futures):
        try:
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


def cancelled_by_nobody() -> bool:
    """Whether a `CancelledError` in the current task is a failure: nobody has cancelled the task.

    Something that it awaited has cancelled itself. A task that ended with that error would look
    like one that was told to end.
    """
    task = asyncio.current_task()
    return task is not None and not task.cancelling()


def mark_retrieved(answer: asyncio.Future[Any]) -> None:
    """Keep asyncio from reporting the error of an answer that nobody waits for any more."""
    if not answer.cancelled():
        answer.exception()


class Signal:
    """Wakes everybody who waits for something to change.

    Not an `asyncio.Condition`: no lock, and a waiter that is cancelled takes no wake-up along.
    """

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}  # in the order of arrival

    @property
    def waiters(self) -> int:
        """How many wait."""
        return len(self._waiters)

    def notify(self) -> None:
        """Wake all present waiters."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Return after the next `notify`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            del self._waiters[waiter]
