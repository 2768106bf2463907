"""An event loop without time, threads or waiting: it turns until nothing is ready any more.

Callbacks run in the order in which they became ready, timers go by a clock that stands still
until it is told to move, and work for a thread runs at once. So a schedule replays exactly.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from typing import Any, TypeVar

from cutlock.errors import ConformanceError

__all__ = ["InlineExecutor", "TurnLoop"]

T = TypeVar("T")

_MOST_TURNS = 100_000


class InlineExecutor(ThreadPoolExecutor):
    """Runs what it is given at once, in the thread that asks.

    A thread pool by type only, because a loop takes no other default executor.
    """

    def __init__(self) -> None:
        super().__init__(max_workers=1)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Do the work; the future is done when this returns."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class TurnLoop(asyncio.SelectorEventLoop):
    """A private loop that is turned by hand; close it at the end."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds of the virtual clock."""
        self.mishaps: list[str] = []
        """What asyncio would have logged: errors that nobody has read."""
        super().__init__(_Idle(self))
        self.set_default_executor(InlineExecutor())
        self.set_exception_handler(_note)

    def time(self) -> float:
        """The virtual clock."""
        return self.now

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """There is one thread, so nobody has to be woken."""
        return self.call_soon(callback, *args, context=context)

    def turn(self, count: int = 1) -> None:
        """Run what is ready now, `count` times over; what that makes ready waits."""
        for _ in range(count):
            self.call_soon(self.stop)
            self.run_forever()

    def quiesce(self) -> None:
        """Turn until no callback is ready; timers of the future stay where they are.

        Raises:
            ConformanceError: something spins, so the loop would never come to rest.
        """
        self.run_forever()

    def advance(self, seconds: float) -> None:
        """Move the clock, and run what is due by then."""
        self.quiesce()
        self.now += seconds
        self.quiesce()

    def complete(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that waits for nothing from outside.

        Raises:
            ConformanceError: it waits for something all the same.
        """
        task = self.create_task(work)
        self.quiesce()
        if not task.done():
            task.cancel()
            self.quiesce()
            raise ConformanceError(
                f"{work!r} waits for something that does not come by itself; let what it waits "
                "for be stepped first"
            )
        return task.result()


def _note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, TurnLoop)
    loop.mishaps.append(f"{context['message']}: {context.get('exception')!r}")


class _Idle(selectors.BaseSelector):
    """A selector that has no events: a loop that would wait for some is at rest, and stops."""

    def __init__(self, loop: TurnLoop) -> None:
        self._loop = loop
        self._turns = 0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._turns += 1
        if timeout is None or timeout > 0:
            self._turns = 0
            self._loop.stop()
        elif self._turns > _MOST_TURNS:
            self._turns = 0
            raise ConformanceError(
                f"the loop does not come to rest within {_MOST_TURNS} turns; a task polls"
            )
        return []

    # The loop registers the descriptor of a pipe by which other threads would wake it.

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[fileobj]

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys
