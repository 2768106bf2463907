"""The plugin with cutlock's own protocol, in a project that has no more than traces of it."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

import cutlock.conformance.protocol  # noqa: F401 (what runs in this process has to find it loaded)
from cutlock.shipped import shipped
from tests.support.outside_project import text_of

pytest_plugins = ["pytester"]

TESTS = """\
def test_breaks(cutlock_trace): cutlock_trace.breaks()
def test_holds(cutlock_trace): cutlock_trace.holds()
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (pytester.path / "traces").mkdir()
    for name in ("cursor_early", "narrow_late_weights"):
        trace = shipped("traces", "counterexamples", f"{name}.itf.json")
        shutil.copy(trace, pytester.path / "traces")
    pytester.makeini("[pytest]\ncutlock_bond = cutlock.conformance.protocol:CUTLOCK\n")
    # No module of this suite has that name: Python would find the one it has loaded before.
    pytester.makepyfile(test_in_a_project_outside=TESTS)
    return pytester


def test_traces_of_the_protocol_are_replayed_on_real_runs(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess("-p", "cutlock.pytest_plugin", "-W", "error")
    result.assert_outcomes(passed=4)


def test_a_state_that_differs_is_told_with_its_likely_cause(project: pytest.Pytester) -> None:
    trace = project.path / "traces" / "narrow_late_weights.itf.json"
    lines = trace.read_text().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if '"action": "OpenGate"' in line)
    place = next(n for n in range(at, len(lines)) if lines[n].startswith('   "pos": '))
    lines[place] = '   "pos": 7,\n'
    trace.write_text("".join(lines))
    result = project.runpytest_inprocess("-p", "cutlock.pytest_plugin", "-k", "breaks and narrow")
    result.assert_outcomes(failed=1, deselected=3)
    assert "narrow_late_weights: the code with the fault is in another state after" in text_of(
        result
    )
    assert "OpenGate(); the first that differs is pos" in text_of(result)
    assert "pos: spec 7, code 1" in text_of(result)


@pytest.mark.real
def test_rows_may_live_in_a_real_transfer_queue(project: pytest.Pytester) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "cutlock.pytest_plugin"]
    command += ["--cutlock-plane", "transfer_queue", "-k", "holds and cursor_early"]
    # A process of its own starts a Ray of its own.
    done = subprocess.run(command, cwd=project.path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "plane transfer_queue" in done.stdout
    assert "1 passed, 3 deselected" in done.stdout
