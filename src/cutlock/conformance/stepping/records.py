"""Whether the event log says of an action what the specification says of it."""

from __future__ import annotations

from collections.abc import Sequence

from cutlock.alphabet import ARGUMENTS, Action
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.errors import ConformanceError, DivergenceError
from cutlock.events import Record
from cutlock.tlc.action import ActionCall
from cutlock.tlc.values import Value, to_tla

__all__ = ["require_agreement"]


def require_agreement(
    call: ActionCall, expected: Sequence[Action], found: Sequence[Record], bounds: Bounds
) -> None:
    """Compare the records that an action has left with those that it has to leave.

    The record of the action itself must have the arguments of the call. `EndRun` is no action
    of its own in the code: a run that has nothing left to do ends with what it did last.

    Raises:
        DivergenceError: the log says something else.
        ConformanceError: the call has an argument that its record does not have.
    """
    kept = [record for record in found if record.action != Action.END_RUN]
    names = [record.action for record in kept]
    if names != list(expected):
        raise DivergenceError(
            f"{call} is recorded as {', '.join(names) or 'nothing'}, not as "
            f"{', '.join(expected) or 'nothing'}"
        )
    if not call.arguments:
        return
    # Of several records the last one is of this call.
    record = next((record for record in reversed(kept) if record.action == call.name), None)
    if record is None:
        return
    for name, value in call.arguments.items():
        if name not in record.args:
            raise ConformanceError(
                f"{call}: no argument {name!r}; {call.name} has "
                f"{', '.join(ARGUMENTS[Action(call.name)]) or 'none'}"
            )
        recorded = _translated(name, record.args[name], bounds)
        if recorded != value:
            raise DivergenceError(
                f"{call}: {name} is recorded as {to_tla(recorded)}, not as {to_tla(value)}"
            )


def _translated(name: str, value: object, bounds: Bounds) -> Value:
    match name, value:
        case (("group" | "substitute"), str()):
            return bounds.prompt(value)
        case "unit", int():
            return bounds.units[value]
        case "groups", list():
            return bounds.prompts_of(value)
        case _, None:
            return -1
        case _, int() | str():
            return value
    raise ConformanceError(f"argument {name} = {value!r} has no form in the spec; give it one here")
