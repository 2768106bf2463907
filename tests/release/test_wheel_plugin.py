"""The pytest plugin of the installed wheel, in an empty directory: the shipped example as it is
and broken."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.installed import Installed

LOST_WAKEUP = "lost_wakeup: the code as it is breaks NoLostWakeup in step 6 of 6, Notice("


@pytest.fixture
def project(installed: Installed, tmp_path: Path) -> Path:
    where = "from cutlock.shipped import shipped; print(shipped('examples', 'lock'))"
    example = installed.run(installed.python, "-c", where, cwd=tmp_path).strip()
    assert Path(example).is_relative_to(installed.environment)
    return Path(shutil.copytree(example, tmp_path / "mylock"))


def run_pytest(installed: Installed, folder: Path, *arguments: str, code: int = 0) -> str:
    # What else the tests' environment has, and a user has not, has warnings of its own.
    command = (installed.python, "-m", "pytest", "-p", "no:asyncio", "--strict-markers")
    return installed.run(*command, *arguments, cwd=folder, code=code)


def test_the_plugin_is_found_without_being_named(installed: Installed, project: Path) -> None:
    said = run_pytest(installed, project, "-m", "not cutlock_tlc")
    assert "cutlock: bond bond:LOCK, plane memory, seed 0" in said
    assert "10 passed, 4 deselected" in said


@pytest.mark.tlc
def test_the_graph_and_real_runs_go_through_java(installed: Installed, project: Path) -> None:
    said = run_pytest(installed, project, "-k", "every_transition or real_runs")
    assert "2 passed, 12 deselected" in said


def test_a_broken_lock_is_told_step_by_step(installed: Installed, project: Path) -> None:
    lock = project / "lock.py"
    lock.write_text(lock.read_text().replace("self._give_back()", "pass"))
    said = run_pytest(installed, project, "-k", "as_it_is", code=1)
    assert LOST_WAKEUP in said
    assert "1 failed, 4 passed" in said


def test_a_project_without_a_bond_is_left_alone(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n"
        "def test_other():\n"
        "    assert not {'ray', 'torch', 'msgspec', 'cutlock.bond'} & set(sys.modules)\n"
    )
    said = run_pytest(installed, tmp_path)
    assert "1 passed" in said
    assert "cutlock:" not in said
