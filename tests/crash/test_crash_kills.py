"""Real SIGKILLs of real processes on real files: the next process resumes, and the audit holds."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutlock.bundle.verification import verify
from cutlock.errors import BundleNotFoundError
from cutlock.run.directory import RunDirectory
from tests.support.crash_runs import (
    RUN,
    SITUATIONS,
    Recording,
    Situation,
    assert_all_trained,
    before,
    record,
)
from tests.support.crash_server import CrashServer
from tests.support.local_runs import Run
from tests.support.tally import tally

SAMPLE = 12


@pytest.fixture(scope="module")
def server() -> Iterator[CrashServer]:
    with CrashServer() as server:
        yield server


def recorded(situation: Situation, work: Path) -> Recording:
    base = work / f"recorded {situation}"
    before(situation, base)
    return record(situation, base)


def numbers(recording: Recording) -> list[tuple[str, int]]:
    """Stage and number of each call; the same for a process that makes them."""
    stages = [moment.stage for moment in recording.moments if moment.call is not None]
    return [(stage, number) for number, stage in enumerate(stages, 1)]


def die_and_resume(server: CrashServer, situation: Situation, base: Path, at: int) -> str:
    """One kill, and what came of it."""
    assert server.run(base, situation.name, at) == -signal.SIGKILL
    tally("real SIGKILLs at calls of save and restore", 1)
    run = Run(RunDirectory(base / RUN))
    try:
        plan = run.plan()
    except BundleNotFoundError:
        assert situation.new
        return "nothing to resume"
    left = run.audit()
    assert left.problems == ()
    assert (left.lost, left.trained_twice) == (0, 0)
    assert server.run(base) == 0
    assert_all_trained(run, restarts=left.restarts + (not plan.finished))
    verify(run.plan().bundle)
    return "finished" if plan.finished else "resumed"


def test_a_process_that_is_killed_in_any_stage_is_followed_by_one_that_ends_the_run(
    ram_path: Path, server: CrashServer
) -> None:
    chance = random.Random(5)
    stages: dict[str, list[tuple[Situation, int]]] = {}
    for situation in SITUATIONS:
        if situation.refused is None:
            for stage, number in numbers(recorded(situation, ram_path)):
                stages.setdefault(stage, []).append((situation, number))
    for count, stage in enumerate(chance.sample([*stages], SAMPLE)):
        situation, number = chance.choice(stages[stage])
        base = ram_path / str(count)
        before(situation, base)
        die_and_resume(server, situation, base, number)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("situation", [one for one in SITUATIONS if one.refused is None], ids=str)
def test_a_process_that_is_killed_at_any_call_is_followed_by_one_that_ends_the_run(
    ram_path: Path, server: CrashServer, situation: Situation
) -> None:
    before(situation, ram_path / "before")
    for _, number in numbers(recorded(situation, ram_path)):
        base = ram_path / str(number)
        shutil.copytree(ram_path / "before", base)
        die_and_resume(server, situation, base, number)
        shutil.rmtree(base)
