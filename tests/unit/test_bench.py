"""The harness of `cutlock bench`: turns, ratios, results, exit codes, and the page."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
import torch

import bench
import bench.command
import cutlock.cli.bench
from bench import GROUPS
from bench.harness import Goal, Measurement, Session, Size, compare, figure, interleave, timed
from bench.machine import describe_machine
from bench.page import page, plot_name, series
from bench.results import KEPT, Results, kept_results, missed, write_results
from tests.support.commands import assert_refused, cutlock_

ROOT = Path(bench.__file__).parents[1]
QUICK = ("buffer",)


def measurement(ratio: float = 2.0, goal: Goal | None = None, **changes: object) -> Measurement:
    plain = Measurement(
        name="work",
        what="our work",
        beside="their work",
        ours=ratio,
        alternative=1.0,
        ratio=ratio,
        spread=(ratio, ratio),
        unit="ms",
        repetitions=3,
        goal=goal,
    )
    return msgspec.structs.replace(plain, **changes)


def results(*measurements: Measurement, group: str = "buffer") -> Results:
    return Results(
        group=group,
        command=f"cutlock bench {group}",
        size=Size.FULL,
        machine=describe_machine(),
        seconds=1.0,
        measurements=measurements,
    )


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A group `fake` instead of the real ones; a test sets its `found` and `sessions`."""
    module = ModuleType("bench.fake")
    module.found = [measurement()]  # type: ignore[attr-defined]
    module.sessions = []  # type: ignore[attr-defined]

    def measure(session: Session) -> Iterator[Measurement]:
        module.sessions.append(session.size)  # type: ignore[attr-defined]
        yield from module.found  # type: ignore[attr-defined]

    module.measure = measure  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bench.fake", module)
    monkeypatch.setattr(bench.command, "GROUPS", ("fake",))
    monkeypatch.setattr(bench.command, "described", lambda group: ("What a test says", "More."))
    return module


# Turns and ratios.


def test_candidates_take_turns_and_the_first_turn_is_not_counted() -> None:
    calls = []

    def candidate(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    samples = interleave({"a": lambda: candidate("a"), "b": lambda: candidate("b")}, 2)
    assert calls == ["a", "b"] * 3
    assert samples == {"a": [3.0, 5.0], "b": [4.0, 6.0]}


def test_a_candidate_takes_the_seconds_of_its_work() -> None:
    done = []
    seconds = timed(lambda: done.append(1))()
    assert done == [1]
    assert seconds >= 0.0


def test_a_ratio_is_taken_in_each_turn_and_its_median_and_quartiles_are_kept() -> None:
    samples = {"ours": [2.0, 30.0, 8.0, 10.0, 6.0], "theirs": [1.0, 10.0, 2.0, 2.0, 1.0]}
    found = compare("work", samples, "ours", "theirs", what="a", beside="b", unit="ms", scale=1e3)
    # Turn by turn 2, 3, 4, 5, 6: the ratio of the medians would be another.
    assert found.ratio == 4.0
    assert found.spread == (3.0, 5.0)
    assert (found.ours, found.alternative) == (8_000.0, 2_000.0)
    assert found.repetitions == 5


def test_one_turn_has_no_spread() -> None:
    found = compare("w", {"a": [3.0], "b": [2.0]}, "a", "b", what="", beside="", unit="s")
    assert found.ratio == 1.5
    assert found.spread == (1.5, 1.5)


def test_figures_are_kept_with_four_digits() -> None:
    found = compare("w", {"a": [1 / 3], "b": [1.0]}, "a", "b", what="", beside="", unit="s")
    assert found.ours == 0.3333


@pytest.mark.parametrize(
    ("goal", "reached", "missed"),
    [(Goal(1.5), 1.5, 1.51), (Goal(0.98, at_least=True), 0.98, 0.97)],
)
def test_a_goal_is_reached_at_its_limit(goal: Goal, reached: float, missed: float) -> None:
    assert measurement(reached, goal).holds is True
    assert measurement(missed, goal).holds is False
    assert measurement(missed).holds is None


@pytest.mark.parametrize(
    ("size", "picked", "turns"), [(Size.FULL, "a", 9), (Size.QUICK, "b", 3), (Size.TINY, "c", 1)]
)
def test_the_size_says_how_much_is_measured(size: Size, picked: str, turns: int) -> None:
    session = Session(size)
    assert session.pick(full="a", quick="b", tiny="c") == picked
    assert session.repetitions(9) == turns


# Results.


def test_every_figure_of_the_json_says_what_stands_beside_what() -> None:
    plain = json.loads(msgspec.json.encode(results(measurement(goal=Goal(3.0)))))
    assert plain.keys() == {"group", "command", "size", "machine", "seconds", "measurements"}
    (found,) = plain["measurements"]
    assert {"name", "ours", "alternative", "ratio", "spread", "unit"} <= found.keys()
    assert found["goal"] == {"limit": 3.0, "at_least": False}
    assert {"cpu", "cores", "memory_gib", "python", "packages", "load"} <= plain["machine"].keys()
    assert {"torch", "ray", "TransferQueue"} <= plain["machine"]["packages"].keys()


def test_results_are_kept_by_group_and_read_back_in_the_usual_order(tmp_path: Path) -> None:
    first, second = results(measurement(), group="b"), results(measurement(3.0), group="a")
    write_results(first, tmp_path)
    write_results(results(group="a"), tmp_path)
    write_results(second, tmp_path)
    assert kept_results(("a", "never kept", "b"), tmp_path) == [second, first]


def test_what_is_missed_is_what_has_a_goal_and_does_not_reach_it() -> None:
    late = measurement(2.0, Goal(1.0))
    assert missed([results(measurement(), measurement(2.0, Goal(2.0)), late)]) == [late]


# The command.


def test_the_groups_are_listed_with_what_they_measure() -> None:
    shown = cutlock_("bench", "--list").stdout
    for group in GROUPS:
        assert f" {group} " in shown


def test_json_on_stdout_is_all_there_is_on_stdout(fake: ModuleType) -> None:
    shown = cutlock_("bench", "fake", "--json", "-").stdout
    (found,) = json.loads(shown)["groups"]
    assert (found["group"], found["size"]) == ("fake", "full")
    assert found["measurements"][0]["ratio"] == 2.0


def test_json_goes_into_a_file_and_a_table_is_shown(fake: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "new" / "found.json"
    shown = cutlock_("bench", "--json", path).stdout
    assert "What a test says" in shown
    assert json.loads(path.read_text())["groups"][0]["group"] == "fake"


@pytest.mark.parametrize(
    ("option", "size"), [((), "full"), (("--quick",), "quick"), (("--tiny",), "tiny")]
)
def test_the_group_is_told_the_size(fake: ModuleType, option: tuple[str, ...], size: str) -> None:
    cutlock_("bench", *option)
    assert fake.sessions == [size]


def test_a_goal_that_is_missed_ends_with_1(fake: ModuleType) -> None:
    fake.found = [measurement(2.0, Goal(1.0))]
    assert "≤ 1 NO" in cutlock_("bench", code=1).stdout


def test_a_goal_that_is_reached_ends_with_0(fake: ModuleType) -> None:
    fake.found = [measurement(2.0, Goal(2.0))]
    assert "≤ 2 " in cutlock_("bench").stdout


def test_results_are_kept_on_demand_only(
    fake: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    monkeypatch.setattr(bench.command, "write_results", kept.append)
    cutlock_("bench")
    assert not kept
    cutlock_("bench", "--keep")
    assert [result.group for result in kept] == ["fake"]


def test_an_unknown_group_is_refused_with_the_known_ones() -> None:
    assert_refused(cutlock_("bench", "bufer", code=2), "'bufer'", *GROUPS)


def test_an_installed_package_says_that_the_measurements_are_in_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutlock.cli.bench, "_ROOT", tmp_path)
    refusal = cutlock_("bench", code=2)
    assert_refused(refusal, str(tmp_path / "bench"), "clone the repository")


# The page.


def test_the_page_has_every_figure_with_its_goal_machine_and_command() -> None:
    found = results(
        measurement(goal=Goal(3.0)), measurement(4.0, Goal(3.0), name="late", note="it is slow")
    )
    text = page([found])
    assert "1 of 2 goals are reached" in text
    assert "| buffer: late | ≤ 3 | 4 (4 to 4) | it is slow |" in text
    assert "| work | 2 | 1 | ms | 2 (2 to 2) | ≤ 3, reached |" in text
    assert "- `work`: our work. Compared with: their work." in text
    assert "`cutlock bench buffer`" in text
    assert found.machine.cpu in text


def test_a_figure_at_several_sizes_is_plotted() -> None:
    at = [measurement(at={"groups": size}) for size in (100, 1000)]
    other = measurement(name="other", at={"groups": 100})
    words = [measurement(name="words", at={"disk": disk}) for disk in ("own", "slow")]
    found = results(*at, other, *words, measurement(name="alone"))
    assert series(found) == {"work": at}
    assert f"![work](performance/{plot_name(found, 'work')})" in page([found])


def test_the_page_that_is_kept_is_that_of_the_results_that_are_kept() -> None:
    kept = kept_results(GROUPS)
    text = (ROOT / "docs" / "performance.md").read_text()
    assert text == page(kept), "write it again: cutlock bench --page docs"
    assert {path.stem for path in KEPT.glob("*.json")} == {result.group for result in kept}
    plots = {path.name for path in (ROOT / "docs" / "performance").glob("*.svg")}
    assert plots == set(re.findall(r"\(performance/([^)]*)\)", text))


# The groups.


@pytest.mark.parametrize("group", QUICK)
def test_a_group_without_ray_runs(group: str) -> None:
    module = importlib.import_module(f"bench.{group}")
    before = torch.get_num_threads()
    try:
        assert [found.ratio > 0 for found in module.measure(Session(Size.TINY))]
    finally:
        torch.set_num_threads(before)


@pytest.mark.long
@pytest.mark.real
@pytest.mark.tlc
@pytest.mark.parametrize("group", [group for group in GROUPS if group not in QUICK])
def test_a_group_with_ray_or_tlc_runs(group: str) -> None:
    # In a process of its own: the tests have a Ray of theirs.
    command = [sys.executable, "-m", "cutlock", "bench", group, "--tiny", "--json", "-"]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert outcome.returncode in {0, 1}, outcome.stderr
    assert json.loads(outcome.stdout)["groups"][0]["measurements"]


@pytest.mark.parametrize(
    ("value", "shown"), [(0.012345, "0.0123"), (4.561, "4.56"), (999.4, "999"), (12345.6, "12,346")]
)
def test_figures_are_shown_without_exponents(value: float, shown: str) -> None:
    assert figure(value) == shown
