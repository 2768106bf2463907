"""Whole runs as a user starts them, each in processes of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutlock.run.directory import RunDirectory
from cutlock.run.metrics import read_metrics
from tests.support.acceptance import assert_accepted
from tests.support.processes import Cutlock

pytestmark = [pytest.mark.real, pytest.mark.tlc, pytest.mark.timeout(400)]


def test_the_demo_is_killed_three_times_and_loses_and_repeats_nothing(tmp_path: Path) -> None:
    report = tmp_path / "audit.json"
    command = ("demo", "--out", tmp_path / "demo", "--json", report)
    with Cutlock(tmp_path / "output", *command) as demo:
        demo.ends(code=0, limit_s=360)
    (found,) = json.loads(report.read_text())["demos"]
    audit = found["audit"]
    assert audit["prompts"] == 288
    assert audit["trained_once"] + audit["dropped"] == audit["prompts"]
    assert (audit["trained_twice"], audit["lost"], audit["problems"]) == (0, 0, [])
    assert audit["restarts"] >= 3
    assert len(audit["exclusive_window_ms"]) >= 6
    for window in audit["exclusive_window_ms"]:
        assert {"step", "drain", "exclusive", "rest"} <= window.keys()
    directory = RunDirectory(tmp_path / "demo" / "in_order" / "run")
    rewards = [step.report.reward_mean for step in read_metrics(directory)]
    assert len(rewards) == 36
    assert sum(rewards[-6:]) / 6 > sum(rewards[:6]) / 6 + 0.2
    assert_accepted(directory)
