"""A crash after a crash: in the restore, or in the first save that follows it.

What a killed process has not synced is still not durable while the next one runs: a power
loss may then take what both have seen.
"""

from __future__ import annotations

import copy
import random
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from cutlock.errors import BundleNotFoundError
from cutlock.run.directory import RunDirectory
from tests.support.crash_runs import (
    RUN,
    SITUATIONS,
    Crash,
    Recording,
    Restarts,
    Situation,
    before,
    crashes,
    record,
)
from tests.support.local_runs import Run
from tests.support.power_loss import KILL, LOSSES, Loss, image, materialise
from tests.support.tally import tally

FIRST_CRASHES = 5
SECOND_CRASHES = 12


def calls(recording: Recording) -> list[int]:
    """Numbers of the points at which the disk changes by more than a record of the log."""
    return [
        number
        for number, moment in enumerate(recording.moments, 1)
        if moment.kind == "call" and not str(moment.call).startswith(f"write {RUN}/events/")
    ]


def second_start(first: Recording, crash: Crash, loss: Loss, base: Path) -> Recording | None:
    """The resume after a crash; None if there is nothing to resume, or to train."""
    disk = copy.deepcopy(crash.disk) if loss == KILL else None
    materialise(image(crash.disk.root, loss), base)
    try:
        plan = Run(RunDirectory(base / RUN)).plan()
    except BundleNotFoundError:
        return None
    if plan.finished:
        return None
    again = Situation("a resume after a crash", plan.config)
    second = record(again, base, disk, crash.promised)
    assert second.steps == first.steps
    return second


def until_pruned(recording: Recording) -> list[int]:
    """Points of the restore, of the first step, and of the first save."""
    stages = [moment.stage for moment in recording.moments]
    last = stages.index("save: prune") if "save: prune" in stages else len(stages)
    return [number for number in calls(recording) if number <= last]


Draw = Callable[[Sequence[int]], Collection[int]]


def crash_twice(
    situation: Situation,
    work: Path,
    draw_first: Draw,
    draw_second: Draw,
    losses: Callable[[], Sequence[Loss]],
) -> None:
    before(situation, work / "first")
    first = record(situation, work / "first")
    chosen = draw_first(calls(first))
    for crash in crashes(first):
        for loss in losses() if crash.number in chosen else ():
            base = work / f"{crash.number}"
            base.mkdir()
            second = second_start(first, crash, loss, base / "again")
            if second is not None:
                crash_again(second, f"{crash}, {loss}", base, draw_second, losses)
            shutil.rmtree(base)


def crash_again(
    second: Recording, where: str, base: Path, draw: Draw, losses: Callable[[], Sequence[Loss]]
) -> None:
    chosen = draw(until_pruned(second))
    restarts = Restarts(second, base)
    for crash in crashes(second):
        if crash.number in chosen:
            try:
                restarts.crash(crash, losses())
            except AssertionError as error:
                error.add_note(f"after a crash at {where}")
                raise
            tally("crash points tried twice in a row", 1)


@pytest.mark.parametrize("situation", SITUATIONS, ids=str)
def test_a_crash_after_a_crash_loses_and_repeats_nothing(
    ram_path: Path, situation: Situation
) -> None:
    chance = random.Random(situation.name)

    def draw(count: int) -> Draw:
        return lambda numbers: chance.sample(numbers, min(count, len(numbers)))

    def one() -> Sequence[Loss]:
        return [KILL if chance.random() < 0.5 else chance.choice(LOSSES)]

    crash_twice(situation, ram_path, draw(FIRST_CRASHES), draw(SECOND_CRASHES), one)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("situation", SITUATIONS, ids=str)
def test_a_crash_after_any_crash_loses_and_repeats_nothing(
    ram_path: Path, situation: Situation
) -> None:
    crash_twice(situation, ram_path, tuple, tuple, lambda: (KILL, Loss("before", "torn")))
