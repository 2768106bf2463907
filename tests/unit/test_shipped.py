"""Where shipped files are, and which names stand for them; from a wheel: tests/release."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

import cutlock
from cutlock.cli.options import NamedPath
from cutlock.shipped import named_file, shipped

ROOT = Path(cutlock.__file__).parents[2]
TRACES = ("traces/counterexamples", "traces/regressions")


def test_in_a_clone_the_shipped_files_are_those_of_the_repository() -> None:
    assert shipped("spec", "Cutlock.tla") == ROOT / "spec" / "Cutlock.tla"


@pytest.mark.parametrize("name", ["few_places", "few_places.itf.json"])
def test_a_name_stands_for_a_file_with_or_without_its_suffix(name: str) -> None:
    expected = ROOT / "traces" / "regressions" / "few_places.itf.json"
    assert named_file(name, TRACES, ".itf.json") == expected


@pytest.mark.parametrize(
    "name", ["few_places_of_mine", "regressions/few_places", "../README", "..", ".", ""]
)
def test_other_names_and_paths_stand_for_nothing(name: str) -> None:
    assert named_file(name, TRACES, ".itf.json") is None


def test_a_file_of_that_name_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kind = NamedPath(*TRACES, suffix=".itf.json")
    assert kind.convert("few_places", None, None).is_absolute()
    Path("few_places").touch()
    assert kind.convert("few_places", None, None) == Path("few_places")


def test_what_neither_is_there_nor_ships_is_refused_by_its_name() -> None:
    with pytest.raises(click.BadParameter, match="'cursor_late' does not exist"):
        NamedPath(*TRACES, suffix=".itf.json").convert("cursor_late", None, None)
