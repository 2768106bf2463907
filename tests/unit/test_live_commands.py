"""Commands in a process of their own: on a terminal, without one, and interrupted."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import cutlock
from cutlock.audit import audit_run
from cutlock.run.directory import RunDirectory
from tests.support.processes import Cutlock

ROOT = Path(cutlock.__file__).parents[2]

CONFIG = """
epochs = {epochs}
prompts_per_step = 2
group_size = 2
sampler = {{ name = "in_order" }}
checkpoint = {{ every = 2 }}
plane = {{ kind = "memory" }}
task = {{ prompts = 6, length = 2, vocabulary = 3 }}
"""


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many threads of torch are slow where several tests run at once."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def config(ram_path: Path) -> Path:
    path = ram_path / "run.toml"
    path.write_text(CONFIG.format(epochs=1))
    return path


def on_a_terminal(*arguments: object, **environment: str) -> str:
    """All that a command writes to a terminal of 80 columns, stdout and stderr."""
    ours, theirs = pty.openpty()
    plain = {name: value for name, value in os.environ.items() if name not in {"CI", "NO_COLOR"}}
    process = subprocess.Popen(
        [sys.executable, "-m", "cutlock", *map(str, arguments)],
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
        env={**plain, "TERM": "xterm", "COLUMNS": "80", **environment},
    )
    os.close(theirs)
    written = b""
    try:
        while piece := os.read(ours, 65536):
            written += piece
    except OSError:  # the last one at the terminal has gone
        pass
    os.close(ours)
    assert process.wait() == 0, written
    return written.decode().replace("\r\n", "\n")


def test_on_a_terminal_a_live_line_is_taken_away_before_the_result(
    ram_path: Path, config: Path
) -> None:
    written = on_a_terminal("run", config, "--out", ram_path / "run")
    before, erase, after = written.rpartition("\x1b[2K")
    assert erase
    assert "running" in before
    result = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", after).splitlines()
    assert result[0].strip() == "Run"
    assert max(map(len, result)) <= 80
    assert "steps trained" not in written


def test_on_a_terminal_of_ci_nothing_but_plain_lines_is_written(
    ram_path: Path, config: Path
) -> None:
    written = on_a_terminal("run", config, "--out", ram_path / "run", CI="1")
    assert "steps trained" in written
    assert not [letter for letter in written if ord(letter) < 32 and letter != "\n"]


def test_an_interrupted_run_says_what_is_kept_and_can_go_on(ram_path: Path, config: Path) -> None:
    config.write_text(CONFIG.format(epochs=1000))
    run = ram_path / "run"
    with Cutlock(
        ram_path / "output", "run", config, "--out", run, "--json", ram_path / "j"
    ) as command:
        command.until((run / "step_4").is_dir)
        command.process.send_signal(signal.SIGINT)
        command.ends(code=130)
    last = command.stderr.splitlines()[-1]
    assert last == f"interrupted: go on from the last bundle with `cutlock resume {run}`"
    assert command.stdout == ""
    assert not (ram_path / "j").exists()
    assert len([*run.glob("tmp_step_*")]) <= 1  # the save that was at work, which no one reads
    audit = audit_run(RunDirectory(run))
    assert audit.ok
    assert audit.steps >= 4


JAVA = """#!/bin/sh
case "$*" in
  *-version*) echo 'openjdk version "17.0.15"' >&2 ;;
  *) echo $$ > {pid}.part; mv {pid}.part {pid}; exec sleep 600 ;;
esac
"""


def test_an_interrupted_search_ends_java_and_writes_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, java, result = tmp_path / "pid", tmp_path / "java", tmp_path / "result.json"
    java.write_text(JAVA.format(pid=pid))
    java.chmod(0o755)
    result.write_text("of an earlier call")
    monkeypatch.setenv("CUTLOCK_JAVA", str(java))
    monkeypatch.chdir(ROOT)
    with Cutlock(tmp_path / "output", "check", "--json", result) as command:
        command.until(pid.exists)
        command.process.send_signal(signal.SIGINT)
        command.ends(code=130)
    assert command.stderr.splitlines()[-1].startswith("interrupted: no result is written; ")
    assert not result.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
