"""What a save holds up, by megabytes of rows: its window, and the waits of everything else.

The measurement runs on real Ray and TransferQueue. Every size saves the same 128 groups, with
larger and larger rows. The window reads the index, which grows with the number of groups but not
with their bytes. During a save, four committers put groups of 8 small rows without a pause. One
pump takes batches from the loader and admits them, and another removes what was committed. Each
wait lasts from the request to enter until the end of the operation. The comparison is the same
operation without a save.

`slow` simulates a disk of 100 MB/s: the plane waits that much longer after it has written its
rows. The units write in separate processes, and slowing down a real disk needs root.

A put reaches every unit. If a unit writes its rows in the request thread (`request`,
TransferQueue's own way), every commit waits until it has finished. By default (`aside`), the unit
writes a copy of its tables in a background thread, and each row as raw bytes, which takes half the
time or less. Digests are computed afterwards, in threads of low priority. With normal priority
they compete with the units for the cores: at 1,000 MB on two cores, the 99th percentile of a
commit was then 200 ms instead of 50.

Alternatives that were tried and rejected:

- Units that write one after the other: half the stall, but a longer save.
- More units: a group has rows in each of them, so it waits for the slowest.
- Reading the rows in small batches and writing them in the controller's process. With 16 rows per
  batch this gave the shortest stalls. But a save then costs twice the CPU time and up to five
  times as many syncs, and it adds a second format to verify and restore. With 4 batches in flight
  the stalls returned; with 1 or 4 rows per batch a save took 7 to 20 times as long.
- Writing only the rows that are new since the last bundle and linking the others. With a quarter
  of the rows new, a save takes a third of the time, but the stalls are no shorter, and every later
  bundle depends on the same file.
- A forked unit: stalls of seconds, and forking is unsafe with the threads of its process.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from bench.cluster import GROUP_SIZE, MEGABYTE, Cluster, Filled, cluster
from bench.doubles import IdleTrainer
from bench.harness import Goal, Measurement, Session, compare, interleave
from cutlock.plane.base import DataPlane, PlaneStamp, SnapshotMode
from cutlock.records import LedgerRecord
from cutlock.run.config import CheckpointConfig
from cutlock.run.save import SaveTiming

T = TypeVar("T")

MODES: dict[str, tuple[CheckpointConfig, SnapshotMode]] = {
    "narrow": (CheckpointConfig(keep=1, cut="narrow"), "aside"),
    "full": (CheckpointConfig(keep=1, cut="full"), "aside"),
    "request": (CheckpointConfig(keep=1, cut="narrow"), "request"),
}
"""How a save makes its cut, and how units write; the first one is ours."""
IDLE = "idle"
WORDS = {
    "narrow": "the narrow cut, units write in the background",
    "full": "the full window, units write in the background",
    "request": "the narrow cut, units write in the request thread",
    IDLE: "without a save",
}
GROUPS = 128
"""That are saved, whatever the size: of 8 rows each, as large as that takes."""
COMMITTERS = 4
SLOW_BYTES_S = 100 * MEGABYTE
_SMALL = {"response": [torch.zeros(256)] * GROUP_SIZE}
_IDLE_S = 1.0
_PAUSE_S = 0.001

GOALS = {
    ("exclusive", "narrow", "full"): Goal(1 / 30),
    ("commit_p99", "narrow", "full"): Goal(1 / 4),
}
"""By figure, our mode, and what it stands beside."""
NOTES = {
    ("commit_p99", "narrow", "full"): (
        "the full window is short too, because units write rows as raw bytes (see "
        "`exclusive_narrow_full`); `commit_p99_narrow_idle` shows the cost of an idle commit"
    ),
}

OPERATIONS = {
    "commit": "commit of a group",
    "admission": "admission of a batch",
    "loader": "advance of the loader",
}


def measure(session: Session) -> Iterator[Measurement]:
    sizes = session.pick(full=[10, 100, 500, 1000], quick=[10, 100], tiny=[1])
    cases = [(megabytes, False) for megabytes in sizes]
    cases.append((sizes[min(1, len(sizes) - 1)], True))
    smallest: list[float] = []
    with cluster() as running:
        for megabytes, slow in cases:
            windows: list[float] = []
            yield from _at(session, running, megabytes, slow=slow, windows=windows)
            if not smallest:
                smallest = windows
                continue
            turns = min(len(windows), len(smallest))
            yield compare(
                "window_growth",
                {"here": windows[-turns:], "smallest": smallest[-turns:]},
                "here",
                "smallest",
                what=f"the exclusive window, {GROUPS} groups: {WORDS['narrow']}",
                beside=f"the same groups at {sizes[0]} MB",
                unit="ms",
                scale=1e3,
                at=_conditions(megabytes, slow),
                goal=Goal(1.5),
            )


def _conditions(megabytes: int, slow: bool) -> dict[str, int | str]:
    return {"megabytes": megabytes} | ({"disk": "slow"} if slow else {})


class SlowPlane:
    """A plane whose rows reach the disk at `SLOW_BYTES_S`, by waiting for the rest of the time."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plane, name)

    async def snapshot_rows(self, directory: Path, stamp: PlaneStamp) -> None:
        began = time.monotonic()
        await self._plane.snapshot_rows(directory, stamp)
        size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
        await asyncio.sleep(max(0.0, size / SLOW_BYTES_S - (time.monotonic() - began)))


class Load:
    """The pumps of a run that never pauses; `waits` has the seconds of each operation."""

    def __init__(self, filled: Filled) -> None:
        self._filled = filled
        self._admitted: list[LedgerRecord] = []
        self._committed: list[str] = []
        self._committing = 0
        self._stopped = False
        self.waits: dict[str, list[float]] = {name: [] for name in OPERATIONS}

    async def beside(self, work: Awaitable[T]) -> T:
        """Run for as long as `work` takes; whatever has begun ends first."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._feed())
            for _ in range(COMMITTERS):
                tasks.create_task(self._commit())
            tasks.create_task(self._consume())
            try:
                return await work
            finally:
                self._stopped = True

    async def _feed(self) -> None:
        filled = self._filled
        while not self._stopped:
            if len(self._admitted) < 2 * COMMITTERS:
                await self._timed("loader", filled.advance_loader())
                self._admitted += await self._timed("admission", filled.admit())
            await asyncio.sleep(_PAUSE_S)

    async def _commit(self) -> None:
        filled = self._filled
        self._committing += 1
        while not self._stopped:
            if not self._admitted:
                await asyncio.sleep(_PAUSE_S)
                continue
            record = self._admitted.pop(0)
            await self._timed("commit", filled.commit(record, _SMALL))
            self._committed.append(record.group_id)
        self._committing -= 1

    async def _consume(self) -> None:
        """Take finished groups away, so that there is no more to save after the load."""
        while self._committing or self._committed:
            if self._committed:
                await self._filled.evict(self._committed.pop())
            await asyncio.sleep(_PAUSE_S)

    async def _timed(self, operation: str, work: Awaitable[T]) -> T:
        began = time.perf_counter()
        result = await work
        self.waits[operation].append(time.perf_counter() - began)
        return result


def _at(
    session: Session, running: Cluster, megabytes: int, *, slow: bool, windows: list[float]
) -> Iterator[Measurement]:
    """All figures at one size; the windows of the narrow cut are left in `windows`."""
    name = f"{megabytes} MB{', slow disk' if slow else ''}"
    session.say(f"filling {name}")
    running.empty()
    planes = {mode: running.connect(snapshot) for mode, (_, snapshot) in MODES.items()}
    clients = {mode: SlowPlane(plane) if slow else plane for mode, plane in planes.items()}
    first, (checkpoint, _) = next(iter(MODES.items()))
    row_bytes = megabytes * MEGABYTE // (GROUPS * GROUP_SIZE)
    filled = Filled(
        clients[first], running.runner, megabytes, checkpoint, IdleTrainer(), row_bytes=row_bytes
    )
    figures: dict[str, dict[str, list[float]]] = {}
    works: dict[str, Callable[[], Awaitable[SaveTiming | None]]] = {
        mode: partial(filled.save, running.root / mode) for mode in MODES
    }
    works[IDLE] = partial(asyncio.sleep, _IDLE_S)

    def turn(mode: str) -> float:
        load = Load(filled)
        if mode in MODES:
            filled.save_by(MODES[mode][0])
            filled.plane._plane = clients[mode]
        timing = running.runner.run(load.beside(works[mode]()))
        for figure, value in _figures(load.waits).items():
            figures.setdefault(figure, {}).setdefault(mode, []).append(value)
        if timing is not None:
            for figure in ("exclusive", "drain"):
                value = getattr(timing, figure) + 1e-6  # a drain can take no time at all
                figures.setdefault(figure, {}).setdefault(mode, []).append(value)
        return 0.0

    session.say(f"saves of {name}")
    turns = session.pick(full=7 if megabytes <= 100 else 5, quick=3, tiny=1)
    interleave({mode: partial(turn, mode) for mode in works}, turns)
    windows += figures["exclusive"]["narrow"][-turns:]
    yield from _compared(figures, turns, _conditions(megabytes, slow))
    for plane in planes.values():
        running.runner.run(plane.close())
    for mode in MODES:
        shutil.rmtree(running.root / mode)


def _figures(waits: dict[str, list[float]]) -> dict[str, float]:
    found = {}
    for operation, seconds in waits.items():
        ordered = sorted(seconds)
        found[f"{operation}_median"] = statistics.median(ordered)
        found[f"{operation}_p99"] = ordered[math.ceil(0.99 * len(ordered)) - 1]
        found[f"{operation}_worst"] = ordered[-1]
    return found


def _compared(
    figures: dict[str, dict[str, list[float]]], turns: int, at: dict[str, int | str]
) -> Iterator[Measurement]:
    """Each way of saving beside no save, and the first way beside the others."""
    ours, *others = MODES
    pairs = [(ours, other) for other in others] + [(mode, IDLE) for mode in MODES]
    for figure, samples in figures.items():
        counted = {mode: values[-turns:] for mode, values in samples.items()}
        for mine, other in pairs:
            if other in counted:
                yield compare(
                    f"{figure}_{mine}_{other}",
                    counted,
                    mine,
                    other,
                    what=f"{_words(figure)}, during a save: {WORDS[mine]}",
                    beside=WORDS[other],
                    unit="ms",
                    scale=1e3,
                    at=at,
                    goal=GOALS.get((figure, mine, other)),
                    note=NOTES.get((figure, mine, other), ""),
                )
    for mode in MODES:
        window = figures["exclusive"][mode][-turns:]
        worst = figures["commit_worst"][mode][-turns:]
        yield compare(
            f"window_{mode}",
            {"window": window, "worst": worst},
            "window",
            "worst",
            what=f"the exclusive window: {WORDS[mode]}",
            beside="the longest commit during the same save",
            unit="ms",
            scale=1e3,
            at=at,
        )


def _words(figure: str) -> str:
    operation, _, which = figure.rpartition("_")
    return f"{OPERATIONS.get(operation, figure)}{f', {which}' if operation else ''}"
