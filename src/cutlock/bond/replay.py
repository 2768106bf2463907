"""A counterexample of a protocol's model, replayed on its code."""

from __future__ import annotations

from pathlib import Path

from cutlock.bond.bond import PLANES, Bond, Constants, S, Setting, require_variables
from cutlock.bond.following import (
    DEADLOCK,
    OnStep,
    Promise,
    Replayed,
    always,
    cut_short,
    follow,
    ignore,
    stands_still,
)
from cutlock.errors import ConformanceError, ToolError
from cutlock.tlc.itf import Counterexample, from_itf

__all__ = ["read_trace", "replay"]


def read_trace(path: Path) -> Counterexample:
    """The trace of a file.

    Raises:
        ToolError: it is none; says what is wrong.
    """
    try:
        return from_itf(path.read_bytes())
    except (OSError, ToolError) as error:
        raise ToolError(
            f"{path}: {error}; make it anew with `cutlock mutants --traces {path.parent} --write`"
        ) from error


def replay(
    bond: Bond[S],
    example: Counterexample,
    *,
    faulty: bool = False,
    constants: Constants | None = None,
    plane: str = PLANES[0],
    seed: int = 0,
    on_step: OnStep = ignore,
) -> Replayed:
    """Do the steps of a counterexample on the code, with the fault that answers to it or without.

    Args:
        faulty: switch the fault in: then it has to end as `Replayed.breaks_as_told` says.
            Without, the code refuses a step, or keeps the promise in another state.
        constants: of the model; left out, those of its row in the manifest.

    Raises:
        ConfigError: the trace is of another specification, no fault answers to it, or there is
            no such plane.
        ConformanceError: an action or argument is not of the alphabet, the observation has
            other variables, or nobody has said how to ask for the promise.
        ToolError: the trace was cut short, or the promise in Python is not that of the spec.
        DivergenceError: the code broke in a way that is no check of its own.
    """
    if constants is None:
        constants = bond.constants(bond.model(example.model))
    for step in example.steps[1:]:
        bond.alphabet.check(step.action)
    if stands_still(example) and bond.calls is None:
        raise ConformanceError(
            f"the trace of {example.model} comes to a standstill, and {bond.name} does not say "
            "what would get further; give the bond `calls`"
        )
    promise = _promise(bond, example, constants)
    setting = Setting(
        model=example.model,
        constants=constants,
        plane=plane,
        seed=seed,
        faulty=faulty,
        calls=tuple(step.action for step in example.steps[1:]),
    )
    with bond.begin(setting) as subject:
        require_variables(subject, example.steps[0].state, f"the trace of {example.model}")
        return follow(
            example,
            subject,
            promise,
            fault=example.model if faulty else None,
            blind=bond.blind.get(example.model, ()),
            calls=() if bond.calls is None else bond.calls(constants),
            on_step=on_step,
        )


def _promise(bond: Bond[S], example: Counterexample, constants: Constants) -> Promise:
    name = example.property
    if name == DEADLOCK or example.loop is not None:
        return always
    if name not in bond.promises:
        if bond.model(example.model).checks_liveness():
            raise cut_short(example)  # a behaviour that never ends has a loop
        raise ConformanceError(
            f"{bond.name} has no promise {name!r}, which the trace of {example.model} breaks; "
            f"it has {', '.join(bond.promises) or 'none'}: add it to `promises`"
        )
    asked = bond.promises[name]
    *before, last = (asked(step.state, constants) for step in example.steps)
    if last:
        raise cut_short(example)
    if not all(before):
        raise ToolError(
            f"the promise {name} in Python falls in step {before.index(False)} of "
            f"{example.model}, in the spec in the last one, {len(before)}; say the same in both"
        )
    return lambda state: asked(state, constants)
