"""Promises P5, P6 and P8 at every point of save, publication, pruning and restore.

Each start of a run is recorded once, undisturbed. Then, at each of its calls and awaits, the
process is killed or the power goes, and what the disk is left with is resumed and audited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from cutlock import events
from cutlock.bundle.files import RealFileSystem
from cutlock.events import EventLog
from tests.support.crash_points import PUMPS
from tests.support.crash_runs import (
    NARROW_SITUATIONS,
    SITUATIONS,
    Recording,
    Restarts,
    Situation,
    before,
    crashes,
    record,
)
from tests.support.power_loss import KILL, LOSSES, Loss
from tests.support.tally import tally

POINTS = {
    "create": (11, 10, 0),
    "lock": (0, 8, 0),
    "load rows": (0, 20, 28),
    "open log": (16, 8, 0),
    "pumps": (375, 62, 474),
    "connect": (0, 0, 23),
    "first save: begin": (4, 7, 3),
    "first save: cut": (16, 0, 8),
    "first save: rows": (14, 0, 9),
    "first save: policy": (11, 0, 6),
    "first save: sidecars": (17, 15, 3),
    "first save: seal": (23, 33, 5),
    "first save: publish": (4, 4, 3),
    "first save: prune": (2, 4, 4),
    "save: begin": (51, 90, 39),
    "save: cut": (204, 0, 104),
    "save: rows": (150, 0, 104),
    "save: policy": (121, 0, 66),
    "save: sidecars": (187, 158, 33),
    "save: seal": (248, 403, 55),
    "save: publish": (46, 93, 35),
    "save: prune": (141, 246, 40),
    "verify": (0, 205, 0),
    "load policy": (0, 7, 7),
    "restore state": (98, 0, 28),
    "set aside": (3, 37, 0),
    "reclaim": (66, 78, 0),
    "abandon": (24, 33, 0),
}
"""Calls that change the disk, looks at it, and awaits, by stage, over all situations."""

NARROW_POINTS = {
    "create": (11, 10, 0),
    "lock": (0, 3, 0),
    "load rows": (0, 8, 11),
    "open log": (6, 3, 0),
    "pumps": (340, 27, 499),
    "connect": (0, 0, 9),
    "first narrow save: begin": (4, 7, 3),
    "first narrow save: cut": (4, 0, 2),
    "first narrow save: copy": (2, 0, 4),
    "first narrow save: rows": (18, 0, 106),
    "first narrow save: policy": (11, 0, 5),
    "first narrow save: sidecars": (17, 15, 3),
    "first narrow save: seal": (23, 33, 5),
    "first narrow save: publish": (4, 4, 3),
    "first narrow save: prune": (2, 4, 4),
    "narrow save: begin": (40, 70, 30),
    "narrow save: cut": (40, 0, 20),
    "narrow save: copy": (20, 0, 40),
    "narrow save: rows": (154, 0, 858),
    "narrow save: policy": (88, 0, 40),
    "narrow save: flush": (10, 0, 25),
    "narrow save: sidecars": (136, 120, 24),
    "narrow save: seal": (184, 291, 40),
    "narrow save: publish": (32, 59, 24),
    "narrow save: prune": (160, 251, 32),
    "verify": (0, 65, 0),
    "load policy": (0, 2, 2),
    "restore state": (28, 0, 8),
    "reclaim": (10, 16, 0),
    "set aside": (0, 11, 0),
    "abandon": (8, 14, 0),
}
"""The same over the situations of narrow saves; the pumps go on beside the saves."""

OTHERS = [loss for loss in LOSSES if loss != KILL]


def recorded(situation: Situation, work: Path) -> Recording:
    base = work / "recorded"
    before(situation, base)
    return record(situation, base)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    return {
        situation.name: recorded(situation, tmp_path_factory.mktemp("situation"))
        for situation in (*SITUATIONS, *NARROW_SITUATIONS)
    }


def points(recordings: Sequence[Recording]) -> dict[str, tuple[int, int, int]]:
    counts = Counter(
        (moment.stage, moment.kind) for recording in recordings for moment in recording.moments
    )
    return {
        stage: (counts[stage, "call"], counts[stage, "look"], counts[stage, "await"])
        for stage, _ in counts
    }


@pytest.mark.parametrize(
    ("situations", "known"),
    [(SITUATIONS, POINTS), (NARROW_SITUATIONS, NARROW_POINTS)],
    ids=["full", "narrow"],
)
def test_the_points_of_each_stage_are_those_that_are_known(
    recordings: dict[str, Recording],
    situations: Sequence[Situation],
    known: dict[str, tuple[int, int, int]],
) -> None:
    found = points([recordings[situation.name] for situation in situations])
    assert found == known
    for stage, counts in found.items():
        tally(f"crash points, {stage}", sum(counts))


def every(number: int) -> Sequence[Loss]:
    return LOSSES


def some(number: int) -> Sequence[Loss]:
    """A kill, and one of the other losses in turn."""
    return (KILL, OTHERS[number % len(OTHERS)])


def crash_everywhere(restarts: Restarts, losses: Callable[[int], Sequence[Loss]]) -> None:
    calls = 0
    for crash in crashes(restarts.recording):
        calls += crash.moment.kind == "call"
        restarts.crash(crash, losses(calls))
        tally("crash points tried", 1)
    tally("crash images resumed and audited", restarts.images)


@pytest.mark.parametrize(
    "situation",
    [
        *SITUATIONS,
        NARROW_SITUATIONS[0],
        *(pytest.param(one, marks=pytest.mark.long) for one in NARROW_SITUATIONS[1:]),
    ],
    ids=str,
)
def test_a_crash_at_any_point_loses_and_repeats_nothing(
    ram_path: Path, situation: Situation
) -> None:
    crash_everywhere(Restarts(recorded(situation, ram_path), ram_path), some)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("situation", [*SITUATIONS, *NARROW_SITUATIONS], ids=str)
def test_every_crash_at_any_point_loses_and_repeats_nothing(
    ram_path: Path, situation: Situation
) -> None:
    crash_everywhere(Restarts(recorded(situation, ram_path), ram_path, thorough=True), every)


# What the checks would find if a precaution were left out.


def nothing(*arguments: object) -> None:
    pass


@pytest.mark.parametrize(
    ("situation", "place", "name", "stage", "found"),
    [
        ("a new run", RealFileSystem, "sync_file", "create", "run.json is not a run's identity"),
        ("a new run", RealFileSystem, "sync_directory", PUMPS, "nothing can be resumed"),
        ("a new run", events, "_sync_directory", PUMPS, "nothing can be resumed"),
        ("a resume", EventLog, "sync", "save: publish", "the log was cut off"),
        ("a resume", RealFileSystem, "sync_file", "save: publish", "sha256"),
        ("a resume", RealFileSystem, "sync_directory", "save: prune", "is the latest"),
        ("a resume from an older bundle", EventLog, "sync", "set aside", "is not resolvable"),
    ],
)
def test_a_run_without_one_of_its_precautions_is_caught(
    ram_path: Path, situation: str, place: Any, name: str, stage: str, found: str
) -> None:
    (chosen,) = (one for one in SITUATIONS if one.name == situation)
    with mock.patch.object(place, name, nothing):
        recording = recorded(chosen, ram_path)
    restarts = Restarts(recording, ram_path)
    problems = []
    for crash in crashes(recording):
        for loss in LOSSES if crash.moment.stage == stage else ():
            try:
                restarts.crash(crash, [loss])
            except AssertionError as error:
                problems.append(str(error))
                if found in problems[-1]:
                    return
    raise AssertionError(problems)
