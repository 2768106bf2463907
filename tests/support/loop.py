"""One event loop under control: turns instead of time, and tasks that hold until they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from cutlock.barrier import Barrier, Cut, Slot
from cutlock.bond.turns import TurnLoop

T = TypeVar("T")
S = TypeVar("S", Slot, Cut)

MOST_TURNS = 5_000
"""Of work that comes to its end in far fewer; only a failing test takes so many."""


class VirtualClock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class WakingClock(VirtualClock):
    """A virtual clock that wakes who sleeps on it."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: dict[asyncio.Future[None], float] = {}

    async def sleep(self, seconds: float) -> None:
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers[sleeper] = self.now + seconds
        try:
            await sleeper
        finally:
            del self._sleepers[sleeper]

    async def pass_by(self, seconds: float) -> None:
        """Let time pass, from one sleeper's end to the next; each does what it has to do."""
        end = self.now + seconds
        while (due := min(self._sleepers.values(), default=end + 1)) <= end:
            self.now = max(self.now, due)
            for sleeper, until in self._sleepers.items():
                if until <= self.now and not sleeper.done():
                    sleeper.set_result(None)
            await settle()
        self.now = end


async def turns(count: int = 1) -> None:
    """Let every task that is ready run, `count` times over."""
    for _ in range(count):
        await asyncio.sleep(0)


async def settle() -> None:
    """Let the others run until none of them is ready; neither timers nor threads are waited for."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    for _ in range(MOST_TURNS):
        await asyncio.sleep(0)
        if not ready:
            return
    raise AssertionError(f"no rest within {MOST_TURNS} turns: {ready}")


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that does not suspend; run by hand, without any event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise AssertionError(f"{coroutine!r} suspended")


@contextmanager
def entered(section: S) -> Iterator[S]:
    """A section held without an event loop, for what is synchronous inside it."""
    at_once(section.__aenter__())
    try:
        yield section
    finally:
        at_once(section.__aexit__(None, None, None))


class Holder:
    """A task that enters a section and stays inside until it is told to leave."""

    def __init__(
        self, section: Slot | Cut, entered: Callable[[], None] = lambda: None, name: str = ""
    ) -> None:
        self.section = section
        self._entered = entered
        self._go = asyncio.Event()
        self.task = asyncio.create_task(self._hold(), name=name)

    @property
    def inside(self) -> bool:
        return self.section.alive

    async def _hold(self) -> None:
        async with self.section:
            self._entered()
            await self._go.wait()

    def leave(self) -> None:
        self._go.set()

    async def left(self) -> None:
        self._go.set()
        await self.task


def ask(barrier: Barrier, wanted: str) -> Slot | Cut:
    """A section that is not entered yet: a cut for `cut`, else a slot of that kind."""
    return barrier.checkpoint() if wanted == "cut" else barrier.mutation(wanted)


async def holding(barrier: Barrier, *wanted: str) -> list[Holder]:
    """Tasks that ask in this order, each after the one before has entered or queued."""
    holders = []
    for name in wanted:
        holders.append(Holder(ask(barrier, name), name=name))
        await settle()
    return holders


async def is_free(barrier: Barrier) -> None:
    """Show that nothing is counted, and that both sides can be entered and left."""
    assert (barrier.slots, barrier.cut_open, barrier.waiting) == (0, False, ())
    async with asyncio.timeout(10):
        for side in ("slot", "cut", "slot", "cut"):
            async with ask(barrier, side):
                pass
    assert (barrier.slots, barrier.cut_open, barrier.waiting) == (0, False, ())


class StepLoop:
    """A private event loop that is turned by hand; `with` closes it."""

    def __init__(self) -> None:
        self.loop = TurnLoop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        self.loop.quiesce()
        self.loop.close()

    def turn(self, count: int = 1) -> None:
        """See `TurnLoop.turn`."""
        self.loop.turn(count)

    def turn_until(self, reached: Callable[[], bool]) -> int:
        """Turn until then; return how many turns that took."""
        for count in range(MOST_TURNS):
            if reached():
                return count
            self.turn()
        raise AssertionError(f"no end within {MOST_TURNS} turns: {self.tasks}")

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that needs nobody else."""
        task = self.loop.create_task(work)
        self.turn_until(task.done)
        return task.result()

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """Tasks that have not ended."""
        return asyncio.all_tasks(self.loop)
