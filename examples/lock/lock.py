"""A fair mutex for asyncio: first come, first served, and a place is handed over, never raced for.

`note` is told of every step in the moment in which it takes effect, with the name of the task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType

__all__ = ["FairLock"]


def _unheard(action: str, who: str) -> None:
    """Nobody keeps a log."""


class FairLock:
    """Use it as `async with lock:`."""

    def __init__(self, note: Callable[[str, str], None] = _unheard) -> None:
        self.owner: str | None = None
        """Whose it is, from the moment in which it is handed over."""
        self._waiters: deque[tuple[str, asyncio.Future[None]]] = deque()
        self._note = note

    @property
    def queue(self) -> tuple[str, ...]:
        """Who waits, first come first; also who was cancelled and has not noticed yet."""
        return tuple(name for name, _ in self._waiters)

    async def __aenter__(self) -> FairLock:
        await self.acquire()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    async def acquire(self) -> None:
        """Wait for the lock; a cancellation leaves nothing behind."""
        who = _me()
        if self._is_free():
            self.owner = who
            self._note("Enter", who)
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((who, place))
        self._note("Wait", who)
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._waiters.remove((who, place))
            else:
                self._give_back()
            self._note("Notice", who)
            raise
        self._note("Resume", who)

    def release(self) -> None:
        """Hand it to the first who waits, or leave it free."""
        who = _me()
        if self.owner != who:
            raise RuntimeError(f"{who} releases a lock of {self.owner}; acquire it first")
        self._hand_over()
        self._note("Release", who)

    def _is_free(self) -> bool:
        """Those who were cancelled keep nobody waiting: nobody would hand it to who comes."""
        return self.owner is None and all(place.cancelled() for _, place in self._waiters)

    def _give_back(self) -> None:
        """We were cancelled in the very turn in which it was handed to us."""
        self._hand_over()

    def _hand_over(self) -> None:
        """Give it to the first who waits and was not cancelled."""
        for waiter in self._in_turn():
            who, place = waiter
            if not place.cancelled():
                self._waiters.remove(waiter)
                self.owner = who
                place.set_result(None)
                return
        self.owner = None

    def _in_turn(self) -> list[tuple[str, asyncio.Future[None]]]:
        """Who waits, in the order in which they get it."""
        return list(self._waiters)


def _me() -> str:
    task = asyncio.current_task()
    assert task is not None
    return task.get_name()
