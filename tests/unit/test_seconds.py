"""The seconds of the test suite: what is named, what fails a run, and the page about it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.seconds import BEGIN, END, FAILED_S, NAMED_S, Seconds, with_table

TESTS = Path(__file__).parents[1]


def report(name: str, processor_s: float, *markers: str, when: str = "call") -> Any:
    return SimpleNamespace(
        nodeid=name, when=when, duration=1.0, processor_s=processor_s, keywords=markers
    )


def ended(*reports: Any) -> tuple[Seconds, int, list[str]]:
    """What the run of these returns and says at its end."""
    seconds = Seconds()
    for each in reports:
        seconds.pytest_runtest_logreport(each)
    session = SimpleNamespace(config=SimpleNamespace(), exitstatus=pytest.ExitCode.OK)
    seconds.pytest_sessionfinish(cast(Any, session))
    lines: list[str] = []
    seconds.pytest_terminal_summary(cast(Any, SimpleNamespace(write_line=lines.append)))
    return seconds, session.exitstatus, lines


@pytest.mark.parametrize(
    ("took", "markers", "status", "says"),
    [
        (NAMED_S, (), 0, []),
        (NAMED_S + 1, (), 0, ["3.0 s of processor time is not marked slow: tests/unit/a"]),
        (NAMED_S + 1, ("slow",), 0, []),
        (FAILED_S + 1, (), 1, ["41.0 s of processor time fails the run: tests/unit/a"]),
        (FAILED_S + 1, ("real",), 0, []),
    ],
)
def test_a_slow_test_without_a_marker_is_named_and_a_grossly_slow_one_fails_the_run(
    took: float, markers: tuple[str, ...], status: int, says: list[str]
) -> None:
    # What a shared fixture takes is not held against the test that comes first.
    begun = report("tests/unit/a", FAILED_S + 1, when="setup")
    _, returned, lines = ended(begun, report("tests/unit/a", took, *markers))
    assert (returned, lines) == (status, says)


def test_the_table_adds_up_each_folder() -> None:
    seconds, _, _ = ended(
        report("tests/unit/a.py::one", 0.5),
        report("tests/ray/b.py::two", 4.0, "real", when="setup"),
        report("tests/ray/b.py::two", 0.0, "real"),
    )
    assert seconds.table().splitlines()[2:] == [
        "| `ray/` | 1 | 2 | 4 |",
        "| `unit/` | 1 | 1 | 0 |",
        "| all | 2 | 3 | 4 |",
    ]


def test_the_table_takes_the_place_of_the_last_one() -> None:
    page = with_table(f"above\n{BEGIN}old\n{END}\nbelow", "new\n")
    assert page == f"above\n{BEGIN}new\n{END}\nbelow"
    with pytest.raises(ValueError, match="once each"):
        with_table("a page without the place", "new\n")


def test_the_readme_has_the_place_for_the_table_and_a_row_for_each_folder() -> None:
    page = (TESTS / "README.md").read_text()
    with_table(page, "")
    folders = {each.name for each in TESTS.iterdir() if [*each.glob("*.py")]}
    assert {name for name in folders if f"\n| `{name}/` | " not in page.split("##")[0]} == set()
