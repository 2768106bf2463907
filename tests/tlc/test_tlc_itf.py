from __future__ import annotations

import json
from typing import Any

import itf_py
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlock.alphabet import Action
from cutlock.errors import ToolError
from cutlock.tlc.action import ActionCall, read_action
from cutlock.tlc.itf import (
    Counterexample,
    Step,
    counterexample,
    from_itf,
    to_itf,
    value_from_itf,
    value_to_itf,
)
from cutlock.tlc.outcome import Outcome, Verdict
from cutlock.tlc.outcome import Step as TlcStep
from cutlock.tlc.values import Function, ModelValue, Value, function
from tests.tlc.playback import outcome_of
from tests.tlc.test_tlc_values import identifiers, values


def example(name: str = "invariant") -> Counterexample:
    return counterexample(outcome_of(name), "row", "NeverFull")


@given(values)
def test_a_value_is_read_back_as_it_was_written(value: Value) -> None:
    read = value_from_itf(json.loads(json.dumps(value_to_itf(value))))
    assert read == value
    assert type(read) is type(value)


@given(st.dictionaries(identifiers, values, min_size=1, max_size=3))
def test_equal_states_give_equal_bytes(state: dict[str, Value]) -> None:
    backwards = dict(reversed(state.items()))
    first, second = (
        to_itf(Counterexample("m", "P", (Step(ActionCall("A"), each),)))
        for each in (state, backwards)
    )
    assert first == second


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (3, 3),
        (2**60, {"#bigint": str(2**60)}),
        (True, True),
        ("a", "a"),
        (ModelValue("p1"), "p1_OF_MODEL"),
        ((1, "a"), {"#tup": [1, "a"]}),
        (frozenset({2, 1}), {"#set": [1, 2]}),
        (Function({"a": 1}), {"a": 1}),
        (Function({"a@0": 1}), {"#map": [["a@0", 1]]}),
        (Function({5: 1, 2: ()}), {"#map": [[2, {"#tup": []}], [5, 1]]}),
    ],
)
def test_values_have_the_form_of_the_format(value: Value, written: Any) -> None:
    assert value_to_itf(value) == written


def test_a_string_that_looks_like_a_model_value_is_refused() -> None:
    with pytest.raises(ToolError, match="rename it"):
        value_to_itf("p1_OF_MODEL")


def test_a_counterexample_has_actions_arguments_and_states_without_the_history() -> None:
    steps = example().steps
    assert [step.action for step in steps] == [
        ActionCall("Init"),
        ActionCall("Fill", {"units": 1}),
        ActionCall("Fill", {"units": 2}),
    ]
    assert [step.state["level"] for step in steps] == [0, 1, 3]
    assert all("act" not in step.state for step in steps)


@pytest.mark.parametrize("name", ["invariant", "deadlock", "lasso", "stuttering", "one_variable"])
def test_a_counterexample_is_read_back_as_it_was_written(name: str) -> None:
    written = to_itf(example(name))
    assert from_itf(written) == example(name)
    assert to_itf(from_itf(written)) == written


def test_a_lasso_keeps_where_it_goes_back_to() -> None:
    assert json.loads(to_itf(example("lasso")))["loop"] == 1
    assert json.loads(to_itf(example("stuttering")))["loop"] == 0
    assert "loop" not in json.loads(to_itf(example("invariant")))


def test_without_a_history_variable_the_actions_of_tlc_are_taken() -> None:
    steps = example("one_variable").steps
    assert [step.action for step in steps] == [
        ActionCall("Init"),
        ActionCall("Flip"),
        ActionCall("Flip"),
    ]


def test_another_reader_of_the_format_understands_it() -> None:
    trace = itf_py.trace_from_json(json.loads(to_itf(example("lasso"))))
    assert trace.vars == ["level", "used"]
    assert trace.loop == 1
    assert [state.values["level"] for state in trace.states] == [0, 2, 1, 0]
    assert trace.states[1].values["used"] == frozenset({"hose_OF_MODEL"})
    assert trace.states[1].meta["action"] == "Fill"
    assert trace.states[1].meta["arguments"] == {"units": 2}


def test_what_another_writer_makes_of_values_is_understood() -> None:
    value = function({"a": frozenset({(1, -2)}), "b": Function({5: True})})
    theirs = itf_py.value_to_json(itf_py.value_from_json(value_to_itf(value)))
    assert theirs["a"] == {"#set": [{"#tup": [{"#bigint": "1"}, {"#bigint": "-2"}]}]}
    assert value_from_itf(theirs) == value


def test_every_variable_has_its_own_line() -> None:
    lines = to_itf(example()).decode().splitlines()
    assert sum('"level"' in line for line in lines) == 1 + len(example().steps)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda read: read.pop("#meta"), "#meta"),
        (lambda read: read.pop("states"), "states"),
        (lambda read: read.update(loop=9), "loop = 9 of 3 states"),
        (lambda read: read.update(vars=["level"]), "other variables"),
        (lambda read: read["states"][1].pop("level"), "other variables"),
        (lambda read: read["states"][1]["#meta"].update(index=7), "state 1 has index 7"),
        (lambda read: read["states"][0]["#meta"].pop("action"), "action"),
        (lambda read: read["states"][1].update(level={"#odd": 1}), "#odd"),
        (lambda read: read["states"][1].update(level=1.5), "1.5"),
        (lambda read: read["states"][1].update(level=None), "None"),
        (lambda read: read["states"][1].update(level={"#bigint": "x"}), "Informal Trace Format"),
    ],
)
def test_a_file_that_was_altered_is_refused(change: Any, problem: str) -> None:
    read = json.loads(to_itf(example()))
    change(read)
    with pytest.raises(ToolError, match=problem):
        from_itf(json.dumps(read).encode())


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(ToolError, match="not a counterexample"):
        from_itf(b"{")


def test_an_outcome_without_a_trace_has_no_counterexample() -> None:
    with pytest.raises(ToolError, match="row: success without a trace"):
        counterexample(outcome_of("success"), "row", "NeverFull")


def test_the_history_may_be_a_tuple_with_the_arguments_of_the_alphabet() -> None:
    act: Value = (Action.LAUNCH_GROUP.value, "g1", 2)
    assert read_action(act) == ActionCall("LaunchGroup", {"group": "g1", "attempt": 2})
    assert read_action(("Init",)) == ActionCall("Init")


@pytest.mark.parametrize(
    "act",
    [
        ("LaunchGroup", "g1"),
        ("Unheard", 1),
        (1, 2),
        (),
        7,
        Function({"units": 1}),
        Function({"name": 1}),
    ],
)
def test_a_history_that_names_no_action_is_refused(act: Value) -> None:
    step = TlcStep("Next", {"act": act, "x": 1})
    with pytest.raises(ToolError, match="act"):
        counterexample(Outcome(Verdict.INVARIANT, trace=(step,)), "row", "P")


def test_an_action_is_shown_with_its_arguments() -> None:
    assert str(ActionCall("Fill", {"units": 2, "by": frozenset({"b", "a"})})) == (
        'Fill(units = 2, by = {"a", "b"})'
    )
