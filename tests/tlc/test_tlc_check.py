from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cutlock.tlc.check import check_model, check_models, judge
from cutlock.tlc.config import Config
from cutlock.tlc.manifest import Manifest, Mode, Model, TimeClass, load_manifest
from cutlock.tlc.mutants import check_mutants, example_of
from cutlock.tlc.outcome import Outcome, Verdict
from cutlock.tlc.run import Toolchain
from tests.tlc.playback import Player, outcome_of
from tests.tlc.test_tlc_manifest import EXAMPLE

PLAIN = Config(Path("some.cfg"), {"invariants": ("Bounded", "NeverFull")})
LIVE = Config(Path("some.cfg"), {"properties": ("Leaves",)})
REFINES = Config(Path("some.cfg"), {"properties": ("Refines",)})


def model(**changes: Any) -> Model:
    row: dict[str, Any] = {
        "name": "row",
        "module": "Tank",
        "config": "Good.cfg",
        "mode": Mode.SAFETY,
        "time": TimeClass.QUICK,
        "distinct": 9,
        "never": ("Overflow",),
        "why": "because",
    }
    return Model(**(row | changes))


def falling(**changes: Any) -> Model:
    row = {
        "expected": Verdict.INVARIANT,
        "property": "NeverFull",
        "distinct": None,
        "never": (),
    }
    return model(**(row | changes))


def live(**changes: Any) -> Model:
    return model(**({"mode": Mode.LIVENESS, "never": ()} | changes))


@pytest.fixture
def example() -> Manifest:
    return load_manifest(EXAMPLE)


def row_of(manifest: Manifest, row: str, **changes: Any) -> Model:
    (found,) = manifest.select([row])
    return msgspec.structs.replace(found, **changes)


def test_what_is_as_expected_counts() -> None:
    assert judge(model(), PLAIN, outcome_of("coverage")) == []
    assert judge(falling(), PLAIN, outcome_of("invariant")) == []
    assert judge(live(), LIVE, outcome_of("live")) == []


@pytest.mark.parametrize(
    ("row", "config", "output", "why_not"),
    [
        (model(), PLAIN, "invariant", "expected success, got invariant"),
        (model(expected=Verdict.DEADLOCK), PLAIN, "invariant", "expected deadlock, got invariant"),
        (falling(), PLAIN, "coverage", "expected invariant, got success"),
        (falling(property="Bounded"), PLAIN, "invariant", "expected Bounded to fall"),
        (model(distinct=8), PLAIN, "coverage", "expected 8 distinct states, found 9"),
        (falling(distinct=8), PLAIN, "invariant", "expected 8 distinct states, found 5"),
        (model(never=()), PLAIN, "coverage", "action Overflow never happens"),
        (
            model(never=("Overflow", "Fly")),
            PLAIN,
            "coverage",
            "`never` lists Fly, which is no action",
        ),
        (model(), PLAIN, "success", "TLC counted no actions"),
        (model(never=(), coverage=False), LIVE, "live", "a temporal property was checked"),
        (live(), PLAIN, "success", "no temporal property was checked"),
        (live(distinct=4), LIVE, "warning", "TLC warns: Declaring symmetry"),
        (model(), PLAIN, "parse", "Unknown operator: `nothing'."),
        (model(), PLAIN, "no_heap", "Too small maximum heap"),
    ],
)
def test_each_difference_is_named(row: Model, config: Config, output: str, why_not: str) -> None:
    differences = judge(row, config, outcome_of(output))
    assert any(difference.startswith(why_not) for difference in differences), differences


def test_the_only_property_of_a_configuration_is_the_one_that_fell() -> None:
    row = live(expected=Verdict.TEMPORAL, property="Leaves")
    assert judge(row, LIVE, outcome_of("stuttering")) == []


def test_a_part_of_a_property_is_reported_under_its_name() -> None:
    part = Outcome(Verdict.ACTION_PROPERTY, "line 4, col 18 to line 4, col 33 of module Inner")
    row = falling(expected=Verdict.ACTION_PROPERTY, property="Refines")
    assert judge(row, REFINES, part) == []


def test_of_two_properties_neither_is_taken_to_have_fallen() -> None:
    two = Config(Path("some.cfg"), {"properties": ("Leaves", "FillsUp")})
    row = live(expected=Verdict.TEMPORAL, property="Leaves")
    assert judge(row, two, outcome_of("stuttering")) == ["expected Leaves to fall, None did"]


def test_a_wrong_expectation_fails_the_run(player: Player, example: Manifest) -> None:
    rows = [row_of(example, "tank"), row_of(example, "tank", name="wrong", distinct=10)]
    report = check_models(player.plays("coverage"), example, rows)
    assert [result.ok for result in report.models] == [True, False]
    assert report.models[1].why_not == ("expected 10 distinct states, found 9",)
    assert (report.ok, report.exit_code) == (False, 1)


def test_an_action_that_never_fires_fails_the_run(player: Player, example: Manifest) -> None:
    report = check_models(player.plays("coverage"), example, [row_of(example, "tank", never=())])
    assert report.models[0].why_not == ("action Overflow never happens",)
    assert report.exit_code == 1


@pytest.mark.parametrize(
    ("output", "exit_code"),
    [
        ("coverage", 0),
        ("invariant", 1),
        ("assumption", 1),
        ("parse", 4),
        ("unknown_name", 4),
        ("evaluation", 4),
        ("no_heap", 4),
    ],
)
def test_the_exit_code_says_what_kind_of_failure_it_was(
    output: str, exit_code: int, player: Player, example: Manifest
) -> None:
    report = check_models(player.plays(output), example, [row_of(example, "tank")])
    assert report.exit_code == exit_code


def test_a_run_out_of_time_is_inconclusive(player: Player, example: Manifest) -> None:
    row = row_of(example, "tank", limit_s=0.2)
    report = check_models(player.runs("sleep 600 & wait"), example, [row])
    assert report.models[0].got is Verdict.BUDGET
    assert report.exit_code == 5


def test_a_result_has_the_command_that_repeats_it(player: Player, example: Manifest) -> None:
    toolchain = player.plays("coverage")
    result = check_model(toolchain, example, row_of(example, "tank")).result
    assert result.command == toolchain.command(example.job(row_of(example, "tank")))


def test_results_are_plain_json(player: Player, example: Manifest) -> None:
    report = check_models(player.plays("invariant"), example, [row_of(example, "tank")])
    read = msgspec.json.decode(msgspec.json.encode(report))
    assert read["ok"] is False
    row = read["models"][0]
    assert (row["name"], row["expected"], row["got"]) == ("tank", "success", "invariant")
    assert (row["property"], row["distinct"]) == ("NeverFull", 5)
    assert row["seconds"] >= 0


def test_a_graph_that_does_not_fit_its_actions_fails_the_row(
    player: Player, example: Manifest
) -> None:
    dump = 'while [ "$1" != dot,actionlabels ]; do shift; done; echo "strange" > "$2"; cat '
    said = Path(__file__).parent / "recorded/graph.txt"
    toolchain = player.runs(f"{dump} {said}")
    result = check_model(toolchain, example, row_of(example, "tank_graph")).result
    assert result.got is Verdict.TOOL_ERROR
    assert "not a line of a TLC graph: 'strange'" in result.why_not[0]


def test_a_mutant_is_killed_by_the_named_promise_only(player: Player, example: Manifest) -> None:
    named = row_of(
        example,
        "tank_without_drain",
        config="Invariant.cfg",
        expected=Verdict.INVARIANT,
        property="NeverFull",
    )
    other = msgspec.structs.replace(named, name="other", property="Bounded")
    report = check_mutants(player.plays("invariant"), example, [named, other])
    assert (report.total, report.killed, report.exit_code) == (2, 1, 1)
    assert [(m.property, m.got, m.length, m.ok) for m in report.mutants] == [
        ("NeverFull", "NeverFull", 3, True),
        ("Bounded", "NeverFull", 3, False),
    ]


def test_a_mutant_that_survives_is_not_killed(player: Player, example: Manifest) -> None:
    report = check_mutants(
        player.plays("success"), example, [row_of(example, "tank_without_drain")]
    )
    assert (report.ok, report.killed) == (False, 0)
    assert report.mutants[0].got == "success"


def test_a_mutant_that_does_no_harm_counts_apart(player: Player, example: Manifest) -> None:
    harmless = row_of(example, "tank_without_deadlock_check", distinct=9)
    report = check_mutants(player.plays("success"), example, [harmless])
    assert (report.ok, report.total, report.killed, report.harmless) == (True, 0, 0, 1)
    assert report.mutants[0].property is None


def test_a_mutant_that_does_harm_against_expectation_fails(
    player: Player, example: Manifest
) -> None:
    harmless = row_of(example, "tank_without_deadlock_check")
    report = check_mutants(player.plays("deadlock"), example, [harmless])
    assert (report.ok, report.harmless, report.exit_code) == (False, 0, 1)


@pytest.mark.tlc
def test_tlc_shows_what_the_example_expects(toolchain: Toolchain, example: Manifest) -> None:
    checked = {}
    for row in example.select(time=TimeClass.FULL):
        checked[row.name] = check_model(toolchain, example, row)
    assert {name: each.result.why_not for name, each in checked.items()} == dict.fromkeys(
        checked, ()
    )
    graph = checked["tank_graph"].graph
    assert graph is not None
    assert (len(graph.nodes), len(graph.edges)) == (5, 10)
    assert len(checked["tank_without_drain"].outcome.trace) == 3
    again = check_model(toolchain, example, checked["tank_without_drain"].model)
    assert example_of(again) == example_of(checked["tank_without_drain"]) is not None
