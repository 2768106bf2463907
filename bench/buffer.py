"""Operations of ledger, buffer, samplers and spare pool, by the number of groups that they hold.

Each figure compares an operation on a full controller with the same operation on one that holds
100 groups. The cost of an operation must not grow with the number of groups. The plane and the
event log are stubs here. Operations that read everything (snapshot, restore) are given per group.

At 1,000,000 groups the working set exceeds every cache, and cache misses alone make an operation
up to a few times slower; a linear scan would make it 10,000 times slower. Operations that read
everything show this most. A group consists of about seven objects scattered in memory, and each
costs one cache miss of about 0.1 us; with 100 groups all of them are cached. Python's garbage
collector plays no part: the figures are the same with it switched off.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial

import msgspec
import torch

from bench.doubles import NoEvents, NoPlane
from bench.harness import Goal, Measurement, Session, compare, interleave
from cutlock.barrier import Barrier
from cutlock.buffer import ReplayBuffer
from cutlock.bundle.consistency import require_consistent
from cutlock.bundle.contents import encode_sidecars
from cutlock.ledger import Ledger
from cutlock.records import IndexEntry, LedgerRecord, LoaderState, Occurrence, Phase, Snapshot
from cutlock.samplers import AnySampler, build_sampler
from cutlock.samplers.config import (
    InOrderConfig,
    ReadyFirstConfig,
    SamplerConfig,
    WeightFifoConfig,
    WindowedConfig,
)
from cutlock.spare_pool import SparePool

STEP = 50
"""Prompts of one training step."""
GROUP_SIZE = 2
FLAT = Goal(5.0)
SMALLEST = 100
_LEAST = 2_000
_LATER = 1 << 30
_FIELDS = {"response": [torch.zeros(1)] * GROUP_SIZE}


def measure(session: Session) -> Iterator[Measurement]:
    sizes = session.pick(
        full=[SMALLEST, 1_000, 10_000, 100_000, 1_000_000],
        quick=[SMALLEST, 10_000],
        tiny=[SMALLEST, 200],
    )
    with asyncio.Runner() as runner:
        held = {}
        for size in sizes:
            session.say(f"building {size:,} groups")
            held[size] = Held(runner, size)
        for name, (what, unit, scale) in OPERATIONS.items():
            session.say(name)
            candidates: Mapping[str, Callable[[], float]] = {
                str(size): partial(getattr(held[size], name)) for size in sizes
            }
            turns = session.repetitions(5 if name in PER_GROUP else 40)
            samples = interleave(candidates, turns)
            for size in sizes[1:]:
                yield compare(
                    name,
                    samples,
                    str(size),
                    str(SMALLEST),
                    what=what,
                    beside=f"the same operation with {SMALLEST} groups",
                    unit=unit,
                    scale=scale,
                    at={"groups": size},
                    goal=FLAT,
                    note=PER_GROUP_NOTE if name in PER_GROUP else "",
                )


PER_GROUP = ("snapshot", "restore", "capture")
PER_GROUP_NOTE = "the growth is cache misses, about seven per group"

OPERATIONS = {
    "admit": ("reserve and admit a batch in the ledger, per group", "us", 1e6 / STEP),
    "commit": ("reserve and commit a group, including its slot", "us", 1e6 / STEP),
    "choose_in_order": ("sampler in_order: compute need, stale groups and choice", "us", 1e6),
    "choose_ready_first": ("sampler ready_first: compute need, stale groups and choice", "us", 1e6),
    "choose_weight_fifo": ("sampler weight_fifo: compute need, stale groups and choice", "us", 1e6),
    "choose_windowed": ("sampler windowed: compute need, stale groups and choice", "us", 1e6),
    "choose_freshest": ("sampler windowed, freshest first: the same", "us", 1e6),
    "select": ("claim a step's groups and clear their rows, per group", "us", 1e6 / STEP),
    "evict": ("evict a step's groups, per group", "us", 1e6 / STEP),
    "spares": ("fill a batch into the spare pool and take one out, per prompt", "us", 1e6 / STEP),
    "snapshot": ("read index, ledger and spare pool inside a cut, per group", "ns", 1e9),
    "capture": ("check the read cut and encode its sidecars, per group", "us", 1e6),
    "restore": ("fill ledger, buffer and spare pool from a bundle, per group", "us", 1e6),
}
"""By method of `Held`: what it is in words, the unit, and the factor from seconds to it."""


class Held:
    """The parts of a controller that holds `size` finished groups, as many in flight and spare.

    Every method is one repetition of one operation, leaves as many groups behind as it found,
    and returns seconds.
    """

    def __init__(self, runner: asyncio.Runner, size: int) -> None:
        self._runner = runner
        self._size = size
        self._barrier = barrier = Barrier()
        self._next = 3 * size
        self._first_step = 0
        self._last_step = size // STEP - 1
        self._ready = tuple(_entry(n) for n in range(size))
        self._flying = tuple(_record(n) for n in range(size, 2 * size))
        self._spares = tuple(_occurrence(n) for n in range(2 * size, 3 * size))
        self._ledger, self._buffer, self._pool = runner.run(self._filled())
        window = 10 * size
        self._samplers = {
            "in_order": _sampler(InOrderConfig(window), barrier),
            "ready_first": _sampler(ReadyFirstConfig(window), barrier),
            "weight_fifo": _sampler(WeightFifoConfig(window), barrier),
            "windowed": _sampler(WindowedConfig(window), barrier),
            "freshest": _sampler(WindowedConfig(window, "freshest"), barrier),
        }
        self._admitted: list[LedgerRecord] = []

    async def _filled(self) -> tuple[Ledger, ReplayBuffer, SparePool]:
        ledger, pool = Ledger(self._barrier), SparePool(self._barrier)
        buffer = ReplayBuffer(
            self._barrier, NoPlane(), ledger, NoEvents(), group_size=GROUP_SIZE, lineage="r1"
        )

        async with self._barrier.mutation("restore") as slot:
            ledger.restore(slot, self._flying, 3 * self._size, ())
            buffer.restore(slot, self._ready, self._size)
            pool.restore(slot, self._spares)
        return ledger, buffer, pool

    def admit(self) -> float:
        batch = [_occurrence(self._next + n) for n in range(STEP)]
        self._next += STEP

        async def work() -> float:
            async with self._barrier.mutation("admission") as slot:
                began = time.perf_counter()
                admission = self._ledger.reserve(slot, batch)
                records = self._ledger.admit(
                    slot,
                    admission,
                    dispatch_index=self._last_step + 1,
                    stamp=self._last_step + 1,
                    start_weight=self._last_step + 1,
                )
                took = time.perf_counter() - began
                for record in records:
                    self._ledger.discard(slot, record.group_id)
                return took

        return self._runner.run(work())

    def commit(self) -> float:
        took = self._commit_step()
        self._select_step()
        return took

    def select(self) -> float:
        self._commit_step()
        return self._select_step()

    def evict(self) -> float:
        self._commit_step()

        async def work() -> float:
            async with self._barrier.mutation("evict") as slot:
                groups = [e.group_id for e in self._buffer.ready_with_stamp(self._first_step)]
                began = time.perf_counter()
                await self._buffer.evict(slot, self._last_step, groups)
                return time.perf_counter() - began

        took = self._runner.run(work())
        self._first_step += 1
        return took

    def _commit_step(self) -> float:
        self._last_step += 1
        step = self._last_step
        batch = [_occurrence(self._next + n) for n in range(STEP)]
        self._next += STEP

        async def work() -> float:
            async with self._barrier.mutation("admission") as slot:
                admission = self._ledger.reserve(slot, batch)
                records = self._ledger.admit(
                    slot, admission, dispatch_index=step, stamp=step, start_weight=step
                )
            began = time.perf_counter()
            for record in records:
                self._buffer.reserve(record)
                async with self._barrier.mutation("commit") as slot:
                    await self._buffer.commit(slot, record.group_id, _FIELDS, end_weight=step)
            return time.perf_counter() - began

        return self._runner.run(work())

    def _select_step(self) -> float:
        step = self._first_step
        self._first_step += 1

        async def work() -> float:
            groups = [e.group_id for e in self._buffer.ready_with_stamp(step)]
            began = time.perf_counter()
            async with self._barrier.mutation("select") as slot:
                self._buffer.select(slot, step, groups)
            async with self._barrier.mutation("clear") as slot:
                await self._buffer.clear_claimed(slot, step)
            return time.perf_counter() - began

        return self._runner.run(work())

    def choose_in_order(self) -> float:
        return self._choose("in_order", self._first_step)

    def choose_ready_first(self) -> float:
        return self._choose("ready_first", self._last_step)

    def choose_weight_fifo(self) -> float:
        return self._choose("weight_fifo", self._last_step)

    def choose_windowed(self) -> float:
        return self._choose("windowed", self._last_step)

    def choose_freshest(self) -> float:
        return self._choose("freshest", self._last_step)

    def _choose(self, name: str, version: int) -> float:
        sampler = self._samplers[name]
        began = time.perf_counter()
        stale = sampler.evict(self._buffer, version)
        need = sampler.need(version, STEP, 0, self._buffer)
        chosen = sampler.select(self._buffer, version, need)
        took = time.perf_counter() - began
        assert not stale
        assert len(chosen) == STEP
        return took

    def spares(self) -> float:
        batch = [_occurrence(self._next + n) for n in range(STEP)]
        self._next += STEP

        async def work() -> float:
            async with self._barrier.mutation("spares") as slot:
                began = time.perf_counter()
                self._pool.fill(slot, batch)
                self._pool.take(slot, STEP)
                return time.perf_counter() - began

        return self._runner.run(work())

    def snapshot(self) -> float:
        return self._per_group(self._read)

    def capture(self) -> float:
        cut = self._runner.run(self._read())

        async def work() -> None:
            # A copy: the digest over a cut is computed once and kept.
            copy = msgspec.structs.replace(cut)
            require_consistent(copy)
            encode_sidecars(copy)

        return self._per_group(work)

    def restore(self) -> float:
        return self._per_group(self._filled)

    def _per_group(self, work: Callable[[], Awaitable[object]]) -> float:
        """Seconds per group; small ones often, so that what every call costs once is no part."""
        times = max(1, _LEAST // self._size)

        async def repeated() -> float:
            began = time.perf_counter()
            for _ in range(times):
                await work()
            return time.perf_counter() - began

        return self._runner.run(repeated()) / times / self._size

    async def _read(self) -> Snapshot:
        async with self._barrier.checkpoint() as cut:
            index = self._buffer.snapshot(cut)
            return Snapshot(
                step=self._first_step,
                version=self._last_step,
                cursor=_LATER,
                next_admission=self._ledger.next_admission,
                loader=LoaderState(0, 0, False, None),
                spare_pool=self._pool.snapshot(cut),
                index=index,
                ledger=self._ledger.snapshot(cut, {entry.group_id for entry in index}),
                shortfall=(),
                dropped=0,
            )


def _sampler(config: SamplerConfig, barrier: Barrier) -> AnySampler:
    return build_sampler(config, barrier)


def _occurrence(number: int) -> Occurrence:
    return Occurrence(0, number, f"prompt-{number:07}", "0123456789abcdef")


def _entry(number: int) -> IndexEntry:
    occurrence, step = _occurrence(number), number // STEP
    keys = tuple(f"r0/{occurrence.key}/0/{sibling}" for sibling in range(GROUP_SIZE))
    return IndexEntry(occurrence.key, step, occurrence, step, step, step, step, keys)


def _record(number: int) -> LedgerRecord:
    """In flight, with weights that are younger than any that trains here."""
    occurrence = _occurrence(number)
    return LedgerRecord(
        occurrence.key, number // STEP, occurrence, Phase.ADMITTED, _LATER, _LATER, _LATER
    )
