"""Whole runs as a user starts them, each in processes of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cutlock.audit import audit_run
from cutlock.controller.metrics import read_metrics
from cutlock.controller.run_directory import RunDirectory
from tests.support.acceptance import assert_accepted

pytestmark = [pytest.mark.real, pytest.mark.tlc, pytest.mark.timeout(400)]

RUN = """
epochs = 4
prompts_per_step = 4
group_size = 4
sampler = { name = "in_order", window = 1 }
checkpoint = { every = 2 }
workers = { generators = 1, token_delay_s = 0.02 }
task = { prompts = 32, length = 3, vocabulary = 6 }
"""


def cutlock(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cutlock", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_the_demo_is_killed_three_times_and_loses_and_repeats_nothing(tmp_path: Path) -> None:
    report = tmp_path / "audit.json"
    demo = cutlock("demo", "--out", str(tmp_path / "demo"), "--json", str(report))
    output, errors = demo.communicate()
    assert demo.returncode == 0, output + errors
    audit = json.loads(report.read_text())
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


def test_a_run_whose_storage_unit_dies_says_so_and_resumes(tmp_path: Path) -> None:
    config, out = tmp_path / "run.toml", tmp_path / "run"
    config.write_text(RUN)
    run = cutlock("run", str(config), "--out", str(out))
    wait_until(lambda: (out / "step_2").exists(), run)
    os.kill(storage_unit_of(run.pid), signal.SIGKILL)
    _, errors = run.communicate()
    assert run.returncode == 1, errors
    assert re.search(r"storage unit TransferQueueStorageUnit#\d at 127.0.0.1:\d+ is dead", errors)
    assert "Traceback" not in errors
    resumed = cutlock("resume", str(out))
    output, errors = resumed.communicate()
    assert resumed.returncode == 0, output + errors
    audit = audit_run(RunDirectory(out))
    assert audit.problems == ()
    assert audit.ok
    assert audit.trained_once == audit.prompts == 128
    assert_accepted(RunDirectory(out))


def wait_until(holds: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    """Wait for something on disk while the run goes on; its own limits bound the wait."""
    while not holds():
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(0.2)
            raise AssertionError(f"the run ended first: {run.communicate()}")


def storage_unit_of(ancestor: int) -> int:
    """Process of a storage unit of the Ray that `ancestor` has started."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if b"SimpleStorageUnit" in command and ancestor in ancestors(int(entry.name)):
            return int(entry.name)
    raise AssertionError("no storage unit found")


def ancestors(process: int) -> list[int]:
    found = []
    while process > 1:
        try:
            stat = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            break
        process = int(stat.rpartition(")")[2].split()[1])
        found.append(process)
    return found
