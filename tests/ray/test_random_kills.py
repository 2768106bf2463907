"""Random kills of whole runs on a real Ray and a real TransferQueue; a seed draws them all."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cutlock.audit import audit_run
from cutlock.run.directory import RunDirectory
from tests.support.acceptance import assert_accepted
from tests.support.processes import Cutlock
from tests.support.tally import tally

pytestmark = [pytest.mark.real, pytest.mark.tlc, pytest.mark.long, pytest.mark.timeout(3600)]

SEED = 1
KILLS = 30

RUN = """
epochs = 2
prompts_per_step = 2
group_size = 4
sampler = {{ name = "{sampler}", window = 1 }}
buffer = {{ spare_prompts = 2 }}
checkpoint = {{ every = 2, keep = 2 }}
workers = {{ generators = 1, token_delay_s = 0.01 }}
task = {{ prompts = 16, length = 3, vocabulary = 6 }}
"""

MOMENTS = {
    "ReserveBatch": 8,
    "CommitAdmission": 8,
    "LaunchGroup": 20,
    "PutRows": 20,
    "CommitGroup": 20,
    "SelectGroups": 8,
    "TrainStep": 8,
    "ClearRows": 8,
    "RequestCut": 4,
    "TakeCut": 4,
    "CopyPolicy": 4,
    "SavePlane": 4,
    "SaveUnit": 4,
    "FlushDeferred": 1,
    "WriteManifest": 4,
    "PublishBundle": 4,
    "PruneBundles": 4,
    "RestoreLedger": 1,
}
"""Action to the announcements among which one is drawn."""


def test_random_kills_of_whole_runs_lose_and_repeat_nothing(tmp_path: Path) -> None:
    chance, kills, lives = random.Random(SEED), 0, 0
    while kills < KILLS:
        life = tmp_path / f"life-{lives}"
        life.mkdir()
        kills += live(chance, life, KILLS - kills)
        lives += 1
    tally("soak on real parts, kills and resumes", kills)


def live(chance: random.Random, life: Path, most: int) -> int:
    """Start a run until it comes to its end, with a kill drawn for each start; how many came."""
    config, run = life / "run.toml", life / "run"
    sampler = chance.choice(["in_order", "ready_first", "weight_fifo", "windowed"])
    config.write_text(RUN.format(sampler=sampler))
    kills: list[str] = []
    while True:
        start = (
            ["resume", run] if any(run.glob("step_*")) else ["run", config, "--out", life / "run"]
        )
        if start[0] == "run" and run.exists():
            run.rename(life / f"nothing-{len(kills)}")
        moment = chance.choice(list(MOMENTS))
        kill = f"{moment}:{chance.randint(1, MOMENTS[moment])}"
        if len(kills) < most:
            start += ["--kill-at", kill]
        with Cutlock(life / f"output-{len(kills)}", *start) as command:
            command.process.wait(400)
            if command.process.returncode == 0:
                break
            assert "killed" in command.stdout + command.stderr, (kills, command.stderr)
        kills.append(kill)
    audit = audit_run(RunDirectory(run))
    assert audit.problems == (), (kills, audit.problems)
    assert audit.ok, kills
    assert (audit.lost, audit.trained_twice) == (0, 0), (kills, audit)
    assert audit.trained_once + audit.dropped == audit.prompts, (kills, audit)
    assert_accepted(RunDirectory(run))
    return len(kills)
