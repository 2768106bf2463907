"""A real run: people who use one lock on one event loop, and somebody who cancels some of them."""

from __future__ import annotations

import asyncio
import contextlib
import random

from bond import ALPHABET
from lock import FairLock

from cutlock.bond import ActionCall, Journal

__all__ = ["run"]

PEOPLE = ("a", "b", "c")


def run(seed: int, times: int = 10) -> list[ActionCall]:
    """What has happened, in the order in which it did; each uses the lock so many times."""
    journal = Journal(ALPHABET)
    asyncio.run(_crowd(journal, random.Random(seed), times))
    return journal.calls


async def _crowd(journal: Journal, chance: random.Random, times: int) -> None:
    lock = FairLock(lambda action, who: journal.note(action, who=who))
    asking: dict[str, asyncio.Task[None]] = {}

    async def pause() -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)

    async def use(who: str) -> None:
        async with lock:
            asking.pop(who)
            await pause()

    async def live(who: str) -> None:
        for _ in range(times):
            asking[who] = task = asyncio.create_task(use(who), name=who)
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await pause()

    async def meddle() -> None:
        while True:
            await pause()
            await asyncio.sleep(0)
            queued = [who for who in sorted(asking) if who in lock.queue or lock.owner == who]
            if queued and chance.random() < 0.3:
                who = chance.choice(queued)
                journal.note("Cancel", who=who)
                asking.pop(who).cancel()

    meddler = asyncio.create_task(meddle())
    await asyncio.gather(*map(live, PEOPLE))
    meddler.cancel()
