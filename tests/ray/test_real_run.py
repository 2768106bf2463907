"""Many kills of whole runs on a real Ray, a real TransferQueue and torch."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from cutlock.alphabet import Action
from cutlock.audit import Audit, audit_run
from cutlock.run.directory import RunDirectory
from cutlock.run.metrics import read_metrics
from tests.support.acceptance import assert_accepted
from tests.support.processes import Cutlock

pytestmark = [pytest.mark.real, pytest.mark.tlc, pytest.mark.long, pytest.mark.timeout(1800)]

RUN = """
epochs = 2
prompts_per_step = 2
group_size = 4
sampler = { name = "in_order", window = 1 }
checkpoint = { every = 2, keep = 2 }
failures = { attempts = 1 }
workers = { generators = 1, token_delay_s = 0.05 }
task = { prompts = 16, length = 3, vocabulary = 6 }
"""


def assert_all_trained(run: Path) -> Audit:
    audit = assert_audited(run)
    assert_accepted(RunDirectory(run))
    return audit


def assert_audited(run: Path) -> Audit:
    audit = audit_run(RunDirectory(run))
    assert audit.problems == ()
    assert audit.ok
    assert (audit.lost, audit.trained_twice, audit.pending, audit.unread) == (0, 0, 0, 0)
    assert audit.trained_once + audit.dropped == audit.prompts
    return audit


@pytest.mark.parametrize("sampler", ["windowed", "ready_first", "weight_fifo"])
def test_the_demo_with_another_sampler_loses_and_repeats_nothing(
    tmp_path: Path, sampler: str
) -> None:
    report, out = tmp_path / "audit.json", tmp_path / "demo"
    with Cutlock(
        tmp_path / "output", "demo", "--sampler", sampler, "--out", out, "--json", report
    ) as command:
        command.ends(code=0, limit_s=600)
    run = out / sampler / "run"
    audit = assert_all_trained(run)
    (demo,) = json.loads(report.read_text())["demos"]
    assert demo["audit"]["fates"] == audit.fates
    assert audit.restarts >= 3
    rewards = [step.report.reward_mean for step in read_metrics(RunDirectory(run))]
    assert len(rewards) == audit.steps
    assert sum(rewards[-6:]) / 6 > sum(rewards[:6]) / 6 + 0.2


KILLS: dict[Action, int] = {
    Action.RESERVE_BATCH: 6,
    Action.OPEN_GATE: 6,
    Action.COMMIT_ADMISSION: 6,
    Action.LAUNCH_GROUP: 12,
    Action.PUT_ROWS: 12,
    Action.COMMIT_GROUP: 12,
    Action.SELECT_GROUPS: 4,
    Action.WRITE_ADVANTAGES: 4,
    Action.TRAIN_STEP: 4,
    Action.CLEAR_ROWS: 4,
    Action.RAISE_VERSION: 4,
    Action.SYNC_WEIGHTS: 4,
    Action.REQUEST_CUT: 2,
    Action.TAKE_CUT: 2,
    Action.COPY_POLICY: 2,
    Action.SAVE_PLANE: 2,
    Action.SAVE_UNIT: 2,
    Action.WRITE_POLICY: 2,
    Action.WRITE_MANIFEST: 2,
    Action.PUBLISH_BUNDLE: 2,
    Action.PRUNE_BUNDLES: 2,
    Action.RESTORE_INDEX: 1,
    Action.RESTORE_CURSOR: 1,
}
"""Actions, and the last of their announcements to die at."""


IN_A_SAVE = {
    "narrow": ("CopyPolicy:2", "SaveUnit:2", "PublishBundle:2"),
    "full": ("ReadLedger:2", "SavePlane:2", "PublishBundle:2"),
}
"""After the cut, with its rows unwritten, and before its publication."""


@pytest.mark.parametrize("cut", IN_A_SAVE)
def test_a_run_that_is_killed_in_every_part_of_a_save_and_changes_its_mode_loses_nothing(
    tmp_path: Path, cut: str
) -> None:
    """The last start goes on in the other mode than its bundle was saved with.

    The model knows one mode a run, so that the audit alone tells.
    """
    configs = {name: tmp_path / f"{name}.toml" for name in IN_A_SAVE}
    for name, path in configs.items():
        path.write_text(RUN.replace("keep = 2", f'keep = 2, cut = "{name}"'))
    run = tmp_path / "run"
    for number, kill in enumerate(IN_A_SAVE[cut]):
        start = ["resume", run] if number else ["run", configs[cut], "--out", run]
        with Cutlock(tmp_path / str(number), *start, "--kill-at", kill) as command:
            command.ends(code=1)
        left = audit_run(RunDirectory(run))
        assert left.problems == (), kill
        assert (left.lost, left.trained_twice) == (0, 0)
    (other,) = {*configs} - {cut}
    with Cutlock(tmp_path / "last", "resume", run, "--config", configs[other]) as command:
        command.ends(code=0)
    assert assert_audited(run).restarts == 3


def test_twelve_kills_in_a_row_lose_and_repeat_nothing(tmp_path: Path) -> None:
    config, run = tmp_path / "run.toml", tmp_path / "run"
    config.write_text(RUN.replace("epochs = 2", "epochs = 8"))
    chance = random.Random(31)
    kills = [
        f"{action}:{chance.randint(1, KILLS[action])}" for action in chance.sample([*KILLS], 11)
    ]
    for number, kill in enumerate(["TrainStep:3", *kills]):
        start = ["resume", run] if number else ["run", config, "--out", run]
        with Cutlock(tmp_path / str(number), *start, "--kill-at", kill) as command:
            command.ends(code=1)
            assert "the controller's process died" in command.stderr
        left = audit_run(RunDirectory(run))
        assert left.problems == (), kill
        assert left.ok
    with Cutlock(tmp_path / "last", "resume", run) as command:
        command.ends(code=0)
    audit = assert_all_trained(run)
    assert (audit.prompts, audit.restarts) == (128, 12)
