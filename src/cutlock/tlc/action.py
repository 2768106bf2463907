"""The action of a step, taken from the history variable in which the specification keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cutlock.alphabet import ARGUMENTS, Action
from cutlock.errors import ToolError
from cutlock.tlc.values import Function, Value, to_tla

__all__ = ["ACT", "ActionCall", "read_action"]

ACT = "act"
"""The history variable."""


@dataclass(frozen=True)
class ActionCall:
    """An action and what it was done with."""

    name: str
    arguments: Mapping[str, Value] = field(default_factory=dict)

    def __str__(self) -> str:
        given = ", ".join(f"{name} = {to_tla(value)}" for name, value in self.arguments.items())
        return f"{self.name}({given})"


def read_action(act: Value) -> ActionCall:
    """Read `[name |-> "Fill", units |-> 2]`, or `<<"Fill", 2>>`, the value of the variable.

    In the tuple form the arguments have the names that the alphabet gives them.

    Raises:
        ToolError: it is neither, or the alphabet does not know the tuple's arguments.
    """
    if isinstance(act, Function):
        name = act.get("name")
        if isinstance(name, str):
            return ActionCall(name, {str(k): v for k, v in act.items() if k != "name"})
    if isinstance(act, tuple) and act and isinstance(act[0], str):
        return _from_tuple(act[0], act[1:])
    raise ToolError(
        f'the variable {ACT} is {to_tla(act)}; set it to [name |-> "Name", ...] or <<"Name", ...>>'
    )


def _from_tuple(name: str, values: tuple[Value, ...]) -> ActionCall:
    if not values:
        return ActionCall(name)
    names = ARGUMENTS[Action(name)] if name in list(Action) else ()
    if len(names) != len(values):
        raise ToolError(
            f"{name} has {len(values)} arguments in {ACT}, the alphabet gives it {len(names)}; "
            f'write {ACT} as a record, [name |-> "{name}", ...]'
        )
    return ActionCall(name, dict(zip(names, values, strict=True)))
