"""Counterexamples as data, in the Informal Trace Format (Apalache's ADR-015).

Action and arguments of a step are in the `#meta` of its state, where the format leaves room.
A model value `p1` is written as the string `p1_OF_MODEL`, the format's form for values
without a structure; a function whose arguments are identifiers is written as a record, for
TLC does not tell them apart. Equal counterexamples give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cutlock.errors import ToolError
from cutlock.tlc.action import ACT, ActionCall, read_action
from cutlock.tlc.outcome import Outcome
from cutlock.tlc.outcome import Step as TlcStep
from cutlock.tlc.values import IDENTIFIER, Function, ModelValue, Value, function

__all__ = [
    "Counterexample",
    "Step",
    "counterexample",
    "from_itf",
    "to_itf",
    "value_from_itf",
    "value_to_itf",
]

_MODEL_VALUE = "_OF_MODEL"
_SAFE = 2**53
_WAY_OUT = "make it again with `cutlock mutants NAME --traces FOLDER --write`"
_FORMAT = "ITF"
_FORMAT_DESCRIPTION = "https://apalache-mc.org/docs/adr/015adr-trace.html"


@dataclass(frozen=True)
class Step:
    """An action and the whole state after it, without the history variable."""

    action: ActionCall
    state: Mapping[str, Value]


@dataclass(frozen=True)
class Counterexample:
    """A behaviour that breaks a promise; `steps[0]` is the initial state."""

    model: str
    """The row of the manifest."""
    property: str
    """What it breaks; `deadlock` for a state without a successor."""
    steps: tuple[Step, ...]
    loop: int | None = None
    """Index of the step that the last one goes back to, if the behaviour never ends."""


def counterexample(outcome: Outcome, model: str, broken: str) -> Counterexample:
    """The trace of an outcome.

    Without a history variable the actions are those that TLC names, and have no arguments.

    Raises:
        ToolError: the outcome has no trace.
    """
    if not outcome.trace:
        raise ToolError(
            f"{model}: {outcome.verdict.value} without a trace; see what `cutlock check {model}` "
            "says"
        )
    return Counterexample(model, broken, tuple(map(_step, outcome.trace)), outcome.loop)


def to_itf(example: Counterexample) -> bytes:
    """Write it: one variable a line, so that a difference of two files can be read."""
    names = sorted(example.steps[0].state)
    head: dict[str, Any] = {
        "#meta": {
            "format": _FORMAT,
            "format-description": _FORMAT_DESCRIPTION,
            "model": example.model,
            "property": example.property,
        },
        "vars": names,
    }
    if example.loop is not None:
        head["loop"] = example.loop
    lines = [f" {_json(key)}: {_json(value)}," for key, value in head.items()]
    states = ",\n".join(_state_text(number, step) for number, step in enumerate(example.steps))
    return "\n".join(["{", *lines, ' "states": [', states, " ]", "}", ""]).encode()


def from_itf(data: bytes) -> Counterexample:
    """Read what `to_itf` wrote.

    Raises:
        ToolError: it is something else; says what is wrong.
    """
    try:
        read = json.loads(data)
        steps = tuple(_read_state(number, state) for number, state in enumerate(read["states"]))
        meta = read["#meta"]
        example = Counterexample(meta["model"], meta["property"], steps, read.get("loop"))
        if any(set(step.state) != set(read["vars"]) for step in steps):
            raise ToolError(
                f"not a counterexample: a state has other variables than `vars`; {_WAY_OUT}"
            )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolError(
            f"not a counterexample in the Informal Trace Format: {error!r}; {_WAY_OUT}"
        ) from error
    if example.loop is not None and not 0 <= example.loop < len(steps):
        raise ToolError(
            f"not a counterexample: loop = {example.loop} of {len(steps)} states; {_WAY_OUT}"
        )
    return example


def value_to_itf(value: Value) -> Any:
    """A value as JSON."""
    match value:
        case bool():
            return value
        case int():
            return value if -_SAFE < value < _SAFE else {"#bigint": str(value)}
        case str():
            if value.endswith(_MODEL_VALUE):
                raise ToolError(f"the string {value!r} would be read as a model value; rename it")
            return value
        case ModelValue(name):
            return name + _MODEL_VALUE
        case tuple():
            return {"#tup": [value_to_itf(item) for item in value]}
        case frozenset():
            return {"#set": sorted((value_to_itf(item) for item in value), key=_json)}
        case Function():
            if all(isinstance(key, str) and IDENTIFIER.fullmatch(key) for key in value):
                return {str(key): value_to_itf(item) for key, item in value.items()}
            pairs = [[value_to_itf(key), value_to_itf(item)] for key, item in value.items()]
            return {"#map": sorted(pairs, key=_json)}
    raise TypeError(f"{value!r} of type {type(value).__name__} is not a TLA+ value")


def value_from_itf(read: Any) -> Value:
    """A value from JSON."""
    match read:
        case bool() | int():
            return read
        case str():
            name = read.removesuffix(_MODEL_VALUE)
            return read if name == read else ModelValue(name)
        case {"#bigint": digits}:
            return int(digits)
        case {"#tup": items}:
            return tuple(map(value_from_itf, items))
        case {"#set": items}:
            return frozenset(map(value_from_itf, items))
        case {"#map": pairs}:
            return function({value_from_itf(key): value_from_itf(item) for key, item in pairs})
        case dict() if not any(key.startswith("#") for key in read):
            return function({key: value_from_itf(item) for key, item in read.items()})
        case list():
            return tuple(map(value_from_itf, read))
    raise ToolError(f"{read!r} is not a value of the Informal Trace Format; {_WAY_OUT}")


def _step(step: TlcStep) -> Step:
    state = {name: value for name, value in step.state.items() if name != ACT}
    action = read_action(step.state[ACT]) if ACT in step.state else ActionCall(step.action)
    return Step(action, state)


def _state_text(number: int, step: Step) -> str:
    arguments = {name: value_to_itf(value) for name, value in step.action.arguments.items()}
    meta = {"index": number, "action": step.action.name, "arguments": arguments}
    values = {name: value_to_itf(step.state[name]) for name in sorted(step.state)}
    lines = [f"   {_json(key)}: {_json(value)}" for key, value in {"#meta": meta, **values}.items()]
    return "  {\n" + ",\n".join(lines) + "\n  }"


def _read_state(number: int, read: dict[str, Any]) -> Step:
    meta = read["#meta"]
    if meta["index"] != number:
        raise ToolError(
            f"not a counterexample: state {number} has index {meta['index']}; {_WAY_OUT}"
        )
    arguments = {name: value_from_itf(value) for name, value in meta["arguments"].items()}
    state = {name: value_from_itf(value) for name, value in read.items() if name != "#meta"}
    return Step(ActionCall(meta["action"], arguments), state)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True)
