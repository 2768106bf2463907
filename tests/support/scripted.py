"""Parts of a run that a test directs: stop points, plane steps, rollouts, clock and log."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from cutlock.alphabet import Action
from cutlock.bond.stops import Hold
from cutlock.bundle.files import REAL
from cutlock.errors import PlaneError, WorkerError
from cutlock.events import EventLog, Record
from cutlock.plane.memory import PlaneStep
from cutlock.workers.base import PolicyShape, Prompt, Rollouts

T = TypeVar("T")


class Chosen(Generic[T]):
    """Holds that are put up at chosen points, and errors that are raised at others.

    Args:
        matches: whether a point is one that was asked for.
    """

    def __init__(self, matches: Callable[[T, T], bool]) -> None:
        self._matches = matches
        self._holds: list[tuple[T, list[int], Hold]] = []
        self._failing: list[tuple[T, Exception]] = []

    def put_up(self, wanted: T, skip: int = 0) -> Hold:
        hold = Hold()
        self._holds.append((wanted, [skip], hold))
        return hold

    def raise_once(self, wanted: T, error: Exception) -> None:
        self._failing.append((wanted, error))

    def release_all(self) -> None:
        for *_, hold in self._holds:
            hold.release()

    async def pass_by(self, point: T) -> None:
        for wanted, skip, hold in self._holds:
            if not self._matches(wanted, point):
                continue
            if skip[0]:
                skip[0] -= 1
            else:
                await hold.stand()
        for failing in self._failing:
            if self._matches(failing[0], point):
                self._failing.remove(failing)
                raise failing[1]


class Holds(Chosen[tuple[Action, Mapping[str, object]]]):
    """`StopPoints` at which holds can be put up, and announcements be answered by an error."""

    def __init__(self) -> None:
        super().__init__(
            lambda wanted, at: wanted[0] is at[0] and at[1].items() >= wanted[1].items()
        )
        self.announced = 0

    def hold(self, action: Action, *, skip: int = 0, **where: object) -> Hold:
        """Hold everybody from now on, after the first `skip` announcements that match."""
        return self.put_up((action, where), skip)

    def fail(self, action: Action, error: Exception) -> None:
        """Answer the next such announcement by the error."""
        self.raise_once((action, {}), error)

    async def reach(self, action: Action, /, **where: object) -> None:
        self.announced += 1
        await self.pass_by((action, where))


class PlaneHolds(Chosen[tuple[str, str, int | None]]):
    """`PlaneSteps` at which holds can be put up, and calls be made to fail."""

    def __init__(self) -> None:
        super().__init__(lambda wanted, at: wanted[:2] == at[:2] and wanted[2] in (None, at[2]))

    def hold(self, op: str, phase: str, unit: int | None = None) -> Hold:
        return self.put_up((op, phase, unit))

    def fail(self, op: str, phase: str, times: int = 1) -> None:
        """Let the next `times` such steps fail."""
        for _ in range(times):
            self.raise_once((op, phase, None), PlaneError(f"{op} was made to fail before {phase}"))

    async def reach(self, step: PlaneStep, /) -> None:
        await self.pass_by((step.op, step.phase, step.unit))


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
