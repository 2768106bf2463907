from __future__ import annotations

from pathlib import Path

import pytest

from cutlock.conformance.stepping.bounds import Bounds
from cutlock.errors import ConfigError, ConformanceError
from cutlock.tlc.values import ModelValue, Value

CONSTANTS: dict[str, Value] = {
    "Batches": 3,
    "PerEpoch": 2,
    "Member": frozenset({1, 2}),
    "Window": 1,
    "Sampler": "ready_first",
    "SpareMark": 1,
    "MaxFailures": 1,
    "MaxCrashes": 1,
    "CrashAnywhere": False,
    "Capacity": 8,
    "Ordered": True,
    "Units": frozenset({"u2", "u1"}),
    "Narrow": False,
}


def test_the_constants_of_a_model_give_a_run_of_its_size() -> None:
    bounds = Bounds.of(CONSTANTS)
    config = bounds.config
    assert (config.epochs, config.task.prompts, config.prompts_per_step) == (2, 4, 2)
    assert (config.plane.units, config.group_size, bounds.units) == (2, 2, ("u1", "u2"))
    assert config.plain()["sampler"] == {"name": "ready_first", "window": 1}


def test_each_prompt_of_the_spec_is_one_occurrence_in_the_order_of_the_loader() -> None:
    bounds = Bounds.of(CONSTANTS)
    assert list(bounds.groups) == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)]
    assert len(set(bounds.groups.values())) == 6
    assert [group[-2:] for group in bounds.groups.values()] == ["@0"] * 4 + ["@1"] * 2
    assert all(bounds.prompt(bounds.group(prompt)) == prompt for prompt in bounds.groups)


def test_a_configuration_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.cfg"
    path.write_text(
        "CONSTANTS\n"
        ' Batches = 2  PerEpoch = 2  Window = 0  Sampler = "in_order"  SpareMark = 0\n'
        " MaxFailures = 0  MaxCrashes = 0  CrashAnywhere = FALSE  Capacity = 8\n"
        " a = a  b = b  Member = {b, a}  Units = {u1}  Ordered = FALSE  Narrow = FALSE\n"
        " GateOpen <- GateAlwaysOpen\n"
        "SPECIFICATION Spec\n"
    )
    bounds = Bounds.read(path)
    assert bounds.members == (ModelValue("a"), ModelValue("b"))
    assert bounds.units == (ModelValue("u1"),)
    assert (bounds.batches, bounds.window, bounds.ordered) == (2, 0, False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Narrow": "yes"}, "Narrow"),
        ({"Batches": "3"}, "Batches"),
        ({"Batches": True}, "Batches"),
        ({"Member": frozenset()}, "no set of at least one; give one"),
        ({"Sampler": "sorted"}, "unknown sampler 'sorted'"),
        ({"Capacity": 1}, "buffer.capacity = 1 is below"),
    ],
)
def test_constants_without_a_run_are_refused(changes: dict[str, Value], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Bounds.of({**CONSTANTS, **changes})


def test_a_prompt_outside_of_the_bounds_is_refused() -> None:
    with pytest.raises(ConformanceError, match="is no prompt of 3 batches of 2"):
        Bounds.of(CONSTANTS).group((4, 1))
