"""Tasks that go on when they are told to, each on an event loop of its own.

On one loop, a task that was woken runs in the next turn together with all others that were.
On a loop of its own it waits, so that a schedule can put any step of another task between its
waking and its running, or cancel it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from cutlock.bond.turns import TurnLoop
from cutlock.errors import DivergenceError

__all__ = ["Actor"]


class Actor:
    """Somebody who does one thing after another; close it at the end.

    Args:
        name: of its tasks, as `asyncio.current_task().get_name()` gives it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.loop = TurnLoop()
        """With a clock of its own; `loop.advance(seconds)` lets timeouts come."""
        self._task: asyncio.Task[object] | None = None

    @property
    def idle(self) -> bool:
        """Whether it does nothing: it has not begun, or has ended."""
        return self._task is None or self._task.done()

    @property
    def leaving(self) -> bool:
        """Whether it was asked to end and has not noticed yet, or has not obeyed."""
        return self._task is not None and not self._task.done() and self._task.cancelling() > 0

    def begin(self, work: Coroutine[Any, Any, object]) -> None:
        """Begin, and come to the first place where the work waits.

        Raises:
            DivergenceError: the work broke.
        """
        assert self.idle, f"{self.name} has not ended yet"
        self._task = self.loop.create_task(work, name=self.name)
        self.go_on()

    def go_on(self) -> None:
        """Run until it waits, or has ended.

        Raises:
            DivergenceError: the work broke.
        """
        self.loop.quiesce()
        task = self._task
        if task is None or not task.done() or task.cancelled():
            return
        if (error := task.exception()) is not None:
            raise DivergenceError(f"the task of {self.name} broke: {error!r}") from error

    def cancel(self) -> None:
        """Ask the task to end; it notices when it goes on."""
        assert self._task is not None, f"{self.name} has not begun"
        self._task.cancel()

    def close(self) -> None:
        """Be gone."""
        if not self.loop.is_closed():
            if self._task is not None:
                self._task.cancel()
            self.loop.quiesce()
            self.loop.close()
