"""Standing between any two steps of the calls on a `MemoryStore`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from cutlock.plane.memory import PlaneStep

T = TypeVar("T")


class StepByStep:
    """`PlaneSteps` listener: a call that is led stands before every step, all others pass."""

    def __init__(self) -> None:
        self.history: list[tuple[str, str, int | None]] = []
        """Operation, phase and unit of every step that was announced."""
        self._led: dict[asyncio.Task[Any], Led[Any]] = {}

    async def reach(self, step: PlaneStep, /) -> None:
        self.history.append((step.op, step.phase, step.unit))
        task = asyncio.current_task()
        assert task is not None
        if task in self._led:
            await self._led[task].stand(step)

    def lead(self, call: Coroutine[Any, Any, T]) -> Led[T]:
        """Start a call that takes a step only when it is told to."""
        led = Led(asyncio.create_task(call))
        self._led[led.task] = led
        return led


class Led(Generic[T]):
    """One call that is led."""

    def __init__(self, task: asyncio.Task[T]) -> None:
        self.task = task
        self._stands = asyncio.Event()
        self._at: PlaneStep | None = None
        self._go = asyncio.Event()
        task.add_done_callback(lambda _: self._stands.set())

    async def stand(self, step: PlaneStep) -> None:
        self._at = step
        self._stands.set()
        await self._go.wait()
        self._go.clear()

    async def to(self, phase: str, unit: int | None = None) -> None:
        """Let it take all steps before this one."""
        while (at := await self._next()) is not None:
            if (at.phase, at.unit) == (phase, unit):
                return
            self._step()
        raise AssertionError(f"the call ended before {phase} {unit}: {self.task!r}")

    async def end(self) -> T:
        """Let it take all steps that are left."""
        while await self._next() is not None:
            self._step()
        return await self.task

    async def _next(self) -> PlaneStep | None:
        """The step before which it stands; None if it has ended."""
        await self._stands.wait()
        return None if self.task.done() else self._at

    def _step(self) -> None:
        self._stands.clear()
        self._go.set()
