"""Parts of a run that a test directs: stop points, plane steps, rollouts, clock and log."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cutlock.alphabet import Action
from cutlock.bundle.files import REAL
from cutlock.errors import PlaneError, WorkerError
from cutlock.events import EventLog, Record
from cutlock.plane.memory import PlaneStep
from cutlock.workers.base import PolicyShape, Prompt, Rollouts


class Hold:
    """A place at which everybody who comes by is kept until the hold is released."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._free = asyncio.Event()

    async def stand(self) -> None:
        self.reached.set()
        await self._free.wait()

    def release(self) -> None:
        self._free.set()


class Holds:
    """`StopPoints` at which holds can be put up, and announcements be answered by an error."""

    def __init__(self) -> None:
        self.announced = 0
        self._failing: dict[Action, Exception] = {}
        self._failing_held: dict[Action, Exception] = {}
        self._holds: list[tuple[Action, Mapping[str, object], list[int], Hold]] = []

    def hold(self, action: Action, *, skip: int = 0, **where: object) -> Hold:
        """Hold everybody from now on, after the first `skip` announcements that match."""
        hold = Hold()
        self._holds.append((action, where, [skip], hold))
        return hold

    def fail(self, action: Action, error: Exception) -> None:
        """Answer the next such announcement by the error."""
        self._failing[action] = error

    def fail_held(self, action: Action, error: Exception) -> None:
        """Answer by the error whoever is held there, when the hold is released."""
        self._failing_held[action] = error

    def release_all(self) -> None:
        for *_, hold in self._holds:
            hold.release()

    async def reach(self, action: Action, /, **where: object) -> None:
        self.announced += 1
        if action in self._failing:
            raise self._failing.pop(action)
        for wanted, condition, skip, hold in self._holds:
            if wanted is not action or not where.items() >= condition.items():
                continue
            if skip[0]:
                skip[0] -= 1
            else:
                await hold.stand()
                if action in self._failing_held:
                    raise self._failing_held.pop(action)


class PlaneHolds:
    """`PlaneSteps` at which holds can be put up, and calls be made to fail."""

    def __init__(self) -> None:
        self._holds: list[tuple[str, str, int | None, Hold]] = []
        self._failing: dict[tuple[str, str], int] = {}

    def hold(self, op: str, phase: str, unit: int | None = None) -> Hold:
        hold = Hold()
        self._holds.append((op, phase, unit, hold))
        return hold

    def release_all(self) -> None:
        for *_, hold in self._holds:
            hold.release()

    def fail(self, op: str, phase: str, times: int = 1) -> None:
        """Let the next `times` such steps fail."""
        self._failing[op, phase] = times

    async def reach(self, step: PlaneStep, /) -> None:
        for op, phase, unit, hold in self._holds:
            if (op, phase) == (step.op, step.phase) and unit in (None, step.unit):
                await hold.stand()
        if self._failing.get((step.op, step.phase)):
            self._failing[step.op, step.phase] -= 1
            raise PlaneError(f"{step.op} was made to fail before {step.phase}")


class ScriptedGenerator:
    """`Generator` whose rollouts depend on the prompt alone and end when they are told to."""

    def __init__(self, shape: PolicyShape) -> None:
        self.calls = 0
        self.versions: list[int] = []
        self._shape = shape
        self._told: dict[str, asyncio.Event] = {}
        self._all = False
        self._failing: dict[str, int] = {}
        self._failure: type[WorkerError] = WorkerError

    def finish(self, *group_ids: str) -> None:
        """Let the rollouts of these groups end, now or whenever they begin."""
        for group_id in group_ids:
            self._event(_prompt_of(group_id)).set()

    def finish_all(self) -> None:
        """Let all rollouts end, those of later calls too."""
        self._all = True
        for event in self._told.values():
            event.set()

    def fail(
        self, *group_ids: str, times: int = 1_000_000, failure: type[WorkerError] = WorkerError
    ) -> None:
        """Let the next rollouts of these groups end in an error."""
        self._failure = failure
        for group_id in group_ids:
            self._failing[_prompt_of(group_id)] = times

    async def generate(self, prompt: Prompt, *, group_size: int, seed: int) -> Rollouts:
        self.calls += 1
        await self._event(prompt.prompt_id).wait()
        if self._failing.get(prompt.prompt_id):
            self._failing[prompt.prompt_id] -= 1
            raise self._failure(f"{prompt.prompt_id} was made to fail")
        tokens = torch.tensor(prompt.tokens)
        response = torch.tensor([*reversed(prompt.tokens), self._shape.eos])
        rewards = [float(sibling % 2) for sibling in range(group_size)]
        return Rollouts(
            fields={
                "prompt": [tokens.clone() for _ in rewards],
                "response": [response.clone() for _ in rewards],
                "logprobs": [torch.full((len(response),), -0.5) for _ in rewards],
                "reward": [torch.tensor([reward]) for reward in rewards],
            },
            rewards=rewards,
        )

    async def load_weights(self, weights: object, version: int) -> None:
        self.versions.append(version)

    async def close(self) -> None:
        pass

    def _event(self, prompt_id: str) -> asyncio.Event:
        event = self._told.setdefault(prompt_id, asyncio.Event())
        if self._all:
            event.set()
        return event


def _prompt_of(group_id: str) -> str:
    return group_id.rpartition("@")[0]


class WatchedLog(EventLog):
    """The real event log, which can be waited on."""

    def __init__(self, path: Path) -> None:
        self.records: list[Record] = []
        self._waiters: list[asyncio.Future[None]] = []
        super().__init__(path, clock=lambda: 0.0)

    def next_record(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def _append(self, record: Record) -> None:
        super()._append(record)
        self.records.append(record)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class RefusingDisk:
    """The real `FileSystem`, which refuses changes from the n-th on until it is mended.

    Args:
        code: why; EIO refuses the n-th change only, ENOSPC all that need room, others all.
    """

    def __init__(self, refuses_at: int, code: int = errno.EIO) -> None:
        self._left = refuses_at
        self._code = code

    def mend(self) -> None:
        self._code = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(REAL, name)
        return method if name in _READS else partial(self._change, name, method)

    def _change(self, name: str, method: Callable[..., object], *arguments: object) -> object:
        self._left -= 1
        refused = {
            0: False,
            errno.EIO: not self._left,
            errno.ENOSPC: self._left <= 0 and name in _NEED_ROOM,
        }.get(self._code, self._left <= 0)
        if refused:
            raise OSError(self._code, os.strerror(self._code), str(arguments[0]))
        return method(*arguments)


class HangingDisk:
    """The real `FileSystem`, on which a chosen change takes until it is released.

    Args:
        method: name of the method of which one call hangs.
        last: whether the change is made before it hangs, rather than after.
    """

    def __init__(self, method: str, nth: int = 1, *, last: bool = False) -> None:
        self.hangs = threading.Event()
        self.ended = threading.Event()
        self._method = method
        self._left = nth
        self._last = last
        self._free = threading.Event()

    def release(self) -> None:
        self._free.set()

    def __getattr__(self, name: str) -> Any:
        method = getattr(REAL, name)
        return partial(self._hang, method) if name == self._method else method

    def _hang(self, method: Callable[..., object], *arguments: object) -> object:
        self._left -= 1
        if self._left:
            return method(*arguments)
        result = method(*arguments) if self._last else None
        self.hangs.set()
        self._free.wait()
        try:
            return result if self._last else method(*arguments)
        finally:
            self.ended.set()


_READS = ("begin_sync", "kind", "list_directory", "read_chunks")
_NEED_ROOM = ("make_directory", "write_file", "sync_file", "sync_directory")


async def sleep_for_ever(seconds: float) -> None:
    """The `sleep` of a clock that never moves."""
    await asyncio.Event().wait()
