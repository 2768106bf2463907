"""A copy of the lock example in a folder of its own, and pytest in it with no plugin but ours."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import cutlock.bond.expect  # noqa: F401 (what runs in this process has to find it loaded)
from tests.support.lock_example import LOCK_FOLDER

__all__ = ["WITHOUT_TLC", "OutsideProject", "text_of"]

WITHOUT_TLC = ("-m", "not cutlock_tlc")


class OutsideProject:
    """The copy; warnings and unknown names are errors in it."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pytester = pytester
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(LOCK_FOLDER, pytester.path, dirs_exist_ok=True, ignore=ignored)

    @property
    def path(self) -> Path:
        return self._pytester.path

    def change(self, file: str, old: str, new: str) -> None:
        """Replace what is there exactly once."""
        text = (self.path / file).read_text()
        assert text.count(old) == 1, f"{text.count(old)} times in {file}: {old!r}"
        (self.path / file).write_text(text.replace(old, new))

    def break_the_lock(self) -> None:
        """The classic: who is cancelled in the turn of the hand-over just goes."""
        self.change("lock.py", "                self._give_back()\n", "                pass\n")

    def run(self, *arguments: str) -> pytest.RunResult:
        """Run pytest in this process."""
        strict = ("-W", "error", "--strict-markers", "--strict-config")
        return self._pytester.runpytest_inprocess(
            "-p", "cutlock.pytest_plugin", *strict, *arguments
        )


def text_of(result: pytest.RunResult) -> str:
    """All that it has printed."""
    return result.stdout.str() + "\n" + result.stderr.str()
