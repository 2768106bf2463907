"""What one would take in place of `cutlock.barrier`: the barrier written in the usual way.

Correct as far as counts and exclusion go, whatever is cancelled. It knows no order of arrival,
no re-entry, no effects, no proofs and no statistics.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ConditionBarrier:
    """A counter and a flag under one `asyncio.Condition`; everybody is woken at every exit."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._slots = 0
        self._cut = False  # requested or open

    @asynccontextmanager
    async def mutation(self, kind: str) -> AsyncIterator[None]:
        await self.enter()
        try:
            yield
        finally:
            await self.leave()

    @asynccontextmanager
    async def checkpoint(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._cut)
            self._cut = True
            try:
                await self._changed.wait_for(lambda: not self._slots)
            except BaseException:
                self._cut = False
                self._changed.notify_all()
                raise
        try:
            yield
        finally:
            self._cut = False
            await self._notify()

    async def enter(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._cut)
            self._slots += 1

    async def leave(self) -> None:
        self._slots -= 1
        await self._notify()

    async def _notify(self) -> None:
        """Wake everybody, and be cancelled only then: a wake-up that is lost is waited for."""
        cancelled = None
        while True:
            try:
                await self._changed.acquire()
                break
            except asyncio.CancelledError as error:
                cancelled = error
        self._changed.notify_all()
        self._changed.release()
        if cancelled is not None:
            raise cancelled


class ConditionSlots:
    """The slots of a `ConditionBarrier` without the price of `contextlib`; enter it repeatedly."""

    def __init__(self, barrier: ConditionBarrier) -> None:
        self._barrier = barrier

    async def __aenter__(self) -> None:
        await self._barrier.enter()

    async def __aexit__(self, *error: object) -> None:
        await self._barrier.leave()
