from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cutlock.errors import ConfigError
from cutlock.tlc.config import read_config
from cutlock.tlc.manifest import Manifest, Mode, TimeClass, load_manifest
from cutlock.tlc.outcome import Verdict
from tests.tlc.conftest import SPECS

EXAMPLE = SPECS.parent / "models" / "manifest.toml"

SAFETY: dict[str, Any] = {
    "name": "row",
    "module": "Tank",
    "config": "Good.cfg",
    "mode": "safety",
    "time": "quick",
    "distinct": 9,
    "why": "because",
}
LIVENESS = {**SAFETY, "mode": "liveness", "config": "Live.cfg"}
FALLS = {"expected": "invariant", "property": "NeverFull", "config": "Invariant.cfg"}
GRAPH = {**SAFETY, "mode": "graph", "module": "TankGraph", "config": "Graph.cfg", "distinct": 5}


def manifest_with(folder: Path, *rows: dict[str, Any], configs: Path = SPECS) -> Manifest:
    return load_manifest(written(folder, rows, [str(SPECS)], configs))


def written(
    folder: Path, rows: Sequence[dict[str, Any]], modules: list[str], configs: Path
) -> Path:
    path = folder / "manifest.toml"
    lines = [f"modules = {json.dumps(modules)}", f"configs = {json.dumps(str(configs))}"]
    for row in rows:
        lines += ["[[models]]", *(f"{key} = {json.dumps(value)}" for key, value in row.items())]
    path.write_text("\n".join(lines))
    return path


def without(row: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != key}


def config_with(folder: Path, text: str) -> Path:
    path = folder / "some.cfg"
    path.write_text(text)
    return path


def test_the_example_shows_every_mode() -> None:
    manifest = load_manifest(EXAMPLE)
    assert {model.mode for model in manifest.models} == set(Mode)
    assert manifest.job(manifest.models[0]).module == EXAMPLE.parent / "../specs/Tank.tla"


@pytest.mark.parametrize(
    "row",
    [
        SAFETY,
        LIVENESS,
        GRAPH,
        {**SAFETY, "workers": 2},
        {**SAFETY, "mode": "simulate", "walks": 5} | {"distinct": None},
        {**without(SAFETY, "distinct"), **FALLS, "mode": "witness"},
        {**without(SAFETY, "distinct"), **FALLS, "mode": "mutant"},
        {**without(SAFETY, "distinct"), "mode": "mutant"},
        {**without(SAFETY, "distinct"), **FALLS},
    ],
)
def test_sound_rows_are_accepted(row: dict[str, Any], tmp_path: Path) -> None:
    row = {name: value for name, value in row.items() if value is not None}
    (model,) = manifest_with(tmp_path, row).models
    assert model.name == "row"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({**SAFETY, "why": "  "}, "`why` is empty"),
        (without(SAFETY, "why"), "why"),
        ({**SAFETY, "extra": 1}, "extra"),
        ({**SAFETY, "mode": "hope"}, "hope"),
        ({**SAFETY, "time": "eternal"}, "eternal"),
        ({**SAFETY, "workers": 0}, "at least one"),
        ({**SAFETY, "module": "Nowhere"}, r"no Nowhere\.tla"),
        ({**SAFETY, "config": "Nowhere.cfg"}, r"Nowhere\.cfg cannot be read"),
        (without(SAFETY, "distinct"), "`distinct` is missing"),
        ({**SAFETY, "expected": "invariant"}, "property = None"),
        ({**SAFETY, "property": "Bounded"}, "expected = 'success' with property = 'Bounded'"),
        ({**SAFETY, **FALLS, "property": "Other"}, "lists Bounded, NeverFull"),
        ({**SAFETY, "expected": "tool_error"}, "not a result"),
        ({**SAFETY, "expected": "budget"}, "not a result"),
        ({**SAFETY, "expected": "deadlock", "deadlock": False}, "deadlock = false"),
        ({**SAFETY, "mode": "witness"}, "has to be violated"),
        ({**SAFETY, **FALLS, "mode": "mutant", "workers": 2}, "only 1 is reproducible"),
        ({**SAFETY, "mode": "simulate"}, "neither distinct states"),
        ({**SAFETY, "never": ["Overflow"], "coverage": False}, "`never` without coverage"),
        ({**LIVENESS, "workers": 2}, "misses violations"),
        ({**LIVENESS, "config": "Good.cfg"}, "0 properties"),
        (
            {**LIVENESS, "module": "PairSymmetry", "config": "PairSymmetry.cfg"},
            r"liveness with symmetry in PairSymmetry\.cfg",
        ),
        (
            {
                **SAFETY,
                "mode": "mutant",
                "config": "Live.cfg",
                "expected": "temporal",
                "property": "Leaves",
                "workers": 2,
            },
            "liveness with workers = 2",
        ),
        ({**GRAPH, "workers": 2}, "only 1 is reproducible"),
        ({**GRAPH, "config": "Good.cfg"}, "needs an ACTION_CONSTRAINT"),
        ({**GRAPH, **FALLS}, "complete only where nothing is violated"),
        (
            {**GRAPH, "module": "PairSymmetry", "config": "PairSymmetry.cfg"},
            "loses edges",
        ),
    ],
)
def test_a_row_that_breaks_a_rule_is_refused(
    row: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=problem):
        manifest_with(tmp_path, row)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("PROPERTY Leaves FillsUp", "2 properties"),
        ("PROPERTY Leaves\nPROPERTIES FillsUp", "2 properties"),
        ("PROPERTY Leaves\nVIEW View", "liveness with view"),
        ("PROPERTY Leaves\nSYMMETRY S", "liveness with symmetry"),
        ("PROPERTY Leaves\nCONSTRAINT C", "liveness with constraints"),
        ("PROPERTY Leaves\nACTION_CONSTRAINT C", "liveness with action_constraints"),
        ("PROPERTY Leaves\nCHECK_DEADLOCK FALSE", "no CHECK_DEADLOCK"),
        ("PROPERTY Leaves\nALIAS A", "no ALIAS"),
        ("PROPERTY Leaves\nPOSTCONDITION P", "no POSTCONDITION"),
    ],
)
def test_a_configuration_that_tlc_answers_wrongly_is_refused(
    text: str, problem: str, tmp_path: Path
) -> None:
    config_with(tmp_path, f"SPECIFICATION FairSpec\n{text}\n")
    with pytest.raises(ConfigError, match=problem):
        manifest_with(tmp_path, {**LIVENESS, "config": "some.cfg"}, configs=tmp_path)


def test_keywords_in_comments_do_not_count(tmp_path: Path) -> None:
    path = config_with(
        tmp_path,
        "SPECIFICATION FairSpec \\* SYMMETRY Alike\n(* VIEW View\n ALIAS A *)\nPROPERTY Leaves\n",
    )
    config = read_config(path)
    assert dict(config.sections) == {"behaviour": ("FairSpec",), "properties": ("Leaves",)}


def test_constants_are_not_taken_for_promises(tmp_path: Path) -> None:
    path = config_with(
        tmp_path,
        'CONSTANTS\n  Max = 3\n  Kind = "in order"\n  S = {a, b}\n  Step <- Other\nINVARIANTS A B',
    )
    assert read_config(path).promises == ("A", "B")


def test_a_configuration_begins_with_a_keyword(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'Max' stands before the first keyword"):
        read_config(config_with(tmp_path, "Max = 3\nINVARIANT A"))


def test_every_refused_row_is_named_at_once(tmp_path: Path) -> None:
    rows = [{**SAFETY, "name": "a", "why": ""}, {**SAFETY, "name": "b", "workers": 0}]
    with pytest.raises(ConfigError, match=r"a: .*; b: "):
        manifest_with(tmp_path, *rows)


def test_two_rows_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="row: two models have this name"):
        manifest_with(tmp_path, SAFETY, SAFETY)


def test_a_manifest_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--manifest"):
        load_manifest(tmp_path / "manifest.toml")


@pytest.mark.parametrize(
    ("time", "names"),
    [
        (TimeClass.QUICK, ["q"]),
        (TimeClass.FULL, ["q", "f"]),
        (TimeClass.DEEP, ["q", "f", "d"]),
    ],
)
def test_a_class_includes_the_quicker_ones(
    time: TimeClass, names: list[str], tmp_path: Path
) -> None:
    rows = [
        {**SAFETY, "name": name, "time": each}
        for name, each in (("q", "quick"), ("f", "full"), ("d", "deep"))
    ]
    manifest = manifest_with(tmp_path, *rows)
    assert [model.name for model in manifest.select(time=time)] == names


def test_names_overrule_the_class_and_keep_their_order(tmp_path: Path) -> None:
    rows = [{**SAFETY, "name": name, "time": "deep"} for name in ("a", "b", "c")]
    manifest = manifest_with(tmp_path, *rows)
    assert [model.name for model in manifest.select(["c", "a"])] == ["c", "a"]


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    manifest = manifest_with(tmp_path, SAFETY)
    with pytest.raises(ConfigError, match="no model nope; there are: row"):
        manifest.select(["nope"])


def test_of_many_names_the_nearest_are_given(tmp_path: Path) -> None:
    rows = [{**SAFETY, "name": f"row_{letter}"} for letter in "abcdefghij"]
    manifest = manifest_with(tmp_path, *rows)
    with pytest.raises(ConfigError, match=r"no model row_z; there are: row_\w, .* and 7 more"):
        manifest.select(["row_z"])


def test_a_row_is_limited_by_its_class_or_by_itself(tmp_path: Path) -> None:
    rows = [SAFETY, {**SAFETY, "name": "own", "limit_s": 5.0}]
    manifest = manifest_with(tmp_path, *rows)
    assert [manifest.job(model).limit_s for model in manifest.models] == [180.0, 5.0]


def test_actions_are_counted_in_safety_models_that_are_to_succeed(tmp_path: Path) -> None:
    rows = [
        SAFETY,
        {**SAFETY, **FALLS, "name": "falls"},
        {**LIVENESS, "name": "live"},
        {**LIVENESS, "name": "asked", "coverage": True},
        {**SAFETY, "name": "not_asked", "coverage": False},
    ]
    manifest = manifest_with(tmp_path, *rows)
    counted = [model.name for model in manifest.models if manifest.job(model).coverage]
    assert counted == ["row", "asked"]


def test_a_module_is_run_where_it_is_and_finds_the_others(tmp_path: Path) -> None:
    manifest = load_manifest(written(tmp_path, [SAFETY], [".", str(SPECS)], SPECS))
    job = manifest.job(manifest.models[0])
    assert job.module == SPECS / "Tank.tla"
    assert job.libraries == (tmp_path,)


def test_expected_outcomes_have_the_names_of_the_verdicts(tmp_path: Path) -> None:
    manifest = manifest_with(tmp_path, {**SAFETY, **FALLS})
    assert manifest.models[0].expected is Verdict.INVARIANT
