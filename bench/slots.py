"""What a slot of the barrier costs beside `asyncio.Lock`, a `Condition` barrier and aiorwlock.

Each contender runs in a separate context with a separate copy of the code. Setting a context
variable costs more among others, and the interpreter specialises code for the types it has seen.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from types import FunctionType, MappingProxyType
from typing import Any, NamedTuple, Protocol

import aiorwlock

from bench.alternatives import ConditionBarrier, ConditionSlots
from bench.harness import Goal, Measurement, Samples, Session, compare
from cutlock.barrier import Barrier

Block = Callable[[], Coroutine[Any, Any, float]]
"""Does one block of work; returns the seconds per slot."""
Workload = Callable[..., Coroutine[Any, Any, float]]
Section = Any
"""What `async with` enters; aiorwlock's are not typed as such."""


class AnyBarrier(Protocol):
    def mutation(self, kind: str) -> Section: ...

    def checkpoint(self) -> Section: ...


class LockBarrier:
    """aiorwlock as a barrier: slots read, cuts write."""

    def __init__(self) -> None:
        self._lock = aiorwlock.RWLock(fast=True)

    def mutation(self, kind: str) -> Section:
        return self._lock.reader

    def checkpoint(self) -> Section:
        return self._lock.writer


# The workloads.


async def uncontended(barrier: AnyBarrier, count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        async with barrier.mutation("bench"):
            pass
    return (time.perf_counter() - begin) / count


async def uncontended_steps(barrier: Barrier, count: int) -> float:
    """Slots that are not counted, under instant cuts."""
    begin = time.perf_counter()
    for _ in range(count):
        async with barrier.atomic_mutation("bench"):
            pass
    return (time.perf_counter() - begin) / count


async def uncontended_entries(lock: Section, count: int) -> float:
    """Of something that is entered as it is, time after time."""
    begin = time.perf_counter()
    for _ in range(count):
        async with lock:
            pass
    return (time.perf_counter() - begin) / count


async def contended(
    barrier: AnyBarrier, writers: int, slots: int, *, turns_between_cuts: int = 20
) -> float:
    """Writers that take one slot after the other, and cuts now and then."""

    async def write() -> None:
        for _ in range(slots // writers):
            async with barrier.mutation("bench"):
                await asyncio.sleep(0)

    async def save() -> None:
        while True:
            async with barrier.checkpoint():
                await asyncio.sleep(0)
            for _ in range(turns_between_cuts):
                await asyncio.sleep(0)

    begin = time.perf_counter()
    saver = asyncio.create_task(save())
    await asyncio.gather(*(asyncio.create_task(write()) for _ in range(writers)))
    seconds = time.perf_counter() - begin
    saver.cancel()
    await asyncio.wait([saver])
    return seconds / slots


async def cancelled(barrier: AnyBarrier, writers: int) -> float:
    """Writers that wait for a cut and are cancelled, the last one first."""
    opened, over = asyncio.Event(), asyncio.Event()

    async def save() -> None:
        async with barrier.checkpoint():
            opened.set()
            await over.wait()

    async def write() -> None:
        async with barrier.mutation("bench"):
            pass

    saver = asyncio.create_task(save())
    await opened.wait()
    waiting = [asyncio.create_task(write()) for _ in range(writers)]
    await asyncio.sleep(0)
    begin = time.perf_counter()
    for task in reversed(waiting):
        task.cancel()
    await asyncio.wait(waiting)
    seconds = time.perf_counter() - begin
    assert all(task.cancelled() for task in waiting)
    over.set()
    await saver
    return seconds / writers


# The comparison.


class Case(NamedTuple):
    name: str
    what: str
    ours: Block
    alternatives: dict[str, Block]
    at: Mapping[str, int | str] = MappingProxyType({})
    blocks: int = 1


OURS = "ours"
LOCK = "asyncio.Lock"
CONDITION = "a barrier on asyncio.Condition"
GOALS = {
    ("slot", LOCK): Goal(1.5),
    ("slot", CONDITION): Goal(1 / 5),
    ("slot_of_one_step", LOCK): Goal(1.5),
}
"""By name and what it stands beside."""


def own(workload: Workload) -> Workload:
    """A copy that the interpreter specialises for its contender alone."""
    copy = FunctionType(workload.__code__.replace(), workload.__globals__)
    copy.__kwdefaults__ = workload.__kwdefaults__
    return copy


def block(workload: Workload, make: Callable[[], Any], *arguments: int) -> Block:
    """The workload on something new each time."""
    work = own(workload)
    return lambda: work(make(), *arguments)


def cases() -> list[Case]:
    count = 300  # so few that most blocks are not interrupted
    barriers: dict[str, Callable[[], AnyBarrier]] = {
        CONDITION: ConditionBarrier,
        "aiorwlock, fast": LockBarrier,
    }

    def among(name: str, what: str, workload: Workload, writers: int, *arguments: int) -> Case:
        others = {
            other: block(workload, make, writers, *arguments) for other, make in barriers.items()
        }
        ours = block(workload, Barrier, writers, *arguments)
        return Case(name, what, ours, others, {"writers": writers})

    def entries(make: Callable[[], Section]) -> Block:
        return block(uncontended_entries, make, count)

    return [
        Case(
            "slot",
            "an uncontended slot",
            block(uncontended, Barrier, count),
            {
                LOCK: entries(asyncio.Lock),
                CONDITION: block(uncontended, ConditionBarrier, count),
                "the same without contextlib": entries(lambda: ConditionSlots(ConditionBarrier())),
                "aiorwlock": entries(lambda: aiorwlock.RWLock().reader),
                "aiorwlock, fast": entries(lambda: aiorwlock.RWLock(fast=True).reader),
            },
            blocks=20,
        ),
        Case(
            "slot_of_one_step",
            "a slot that the narrow cut does not wait for",
            block(uncontended_steps, lambda: Barrier(instant=True), count),
            {LOCK: entries(asyncio.Lock)},
            blocks=20,
        ),
        *(
            among("slot_contended", "a slot among other writers, with cuts", contended, n, 5000)
            for n in (10, 100, 1000)
        ),
        *(among("slot_cancelled", "cancelling a waiting slot", cancelled, n) for n in (100, 1000)),
    ]


async def _turns(session: Session, case: Case) -> Samples:
    """All contenders in turn; of each turn the best of some blocks, also in turn."""
    contenders = {OURS: case.ours, **case.alternatives}
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(1 + session.repetitions(15)):  # the first one warms up
        best = dict.fromkeys(contenders, float("inf"))
        for _ in range(session.pick(full=case.blocks, quick=case.blocks, tiny=1)):
            for name, work in contenders.items():
                # A context of its own: a variable costs more to set among others.
                task = asyncio.create_task(work(), context=contextvars.Context())
                best[name] = min(best[name], await task)
        if turn:
            for name, seconds in best.items():
                samples[name].append(seconds)
    return samples


def measure(session: Session) -> Iterator[Measurement]:
    for case in cases():
        session.say(case.what)
        gc.collect()
        samples = asyncio.run(_turns(session, case))
        for beside in case.alternatives:
            yield compare(
                case.name,
                samples,
                OURS,
                beside,
                what=case.what,
                beside=beside,
                unit="ns",
                scale=1e9,
                at={**case.at, "beside": beside},
                goal=GOALS.get((case.name, beside)),
            )
