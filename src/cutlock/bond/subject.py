"""What is put through a trace: something real that does actions and can be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from cutlock.tlc.action import ActionCall

__all__ = ["State", "Subject"]

State = Mapping[str, Any]
"""The spec's variables by name, with values of `cutlock.tlc.values`."""


class Subject(Protocol):
    """Real objects in the spec's initial state, which are stepped from there."""

    def do(self, call: ActionCall, /) -> None:
        """Do one action.

        Raises:
            NotEnabledError: the code does not stand where it could happen; nothing was changed.
            NoticedError: a check of the code has raised, so that nothing comes after it.
            DivergenceError: it did not come to what the action is.
        """

    def state(self) -> State:
        """Every variable of the spec, read off the real objects."""
