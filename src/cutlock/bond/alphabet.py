"""The alphabet of a protocol: its actions, with the names of their arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutlock.errors import ConformanceError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.values import Value

__all__ = ["Alphabet"]


@dataclass(frozen=True)
class Alphabet:
    """Actions by their names in the spec, each with the names of its arguments.

    The same names stand in the spec's history variable, in traces and in logs.
    """

    actions: Mapping[str, tuple[str, ...]]
    optional: frozenset[str] = frozenset()
    """Arguments that the spec, or a log, may leave out."""

    def call(self, name: str, /, **arguments: Value) -> ActionCall:
        """An action with its arguments.

        Raises:
            ConformanceError: see `check`.
        """
        made = ActionCall(name, arguments)
        self.check(made)
        return made

    def check(self, call: ActionCall) -> None:
        """Refuse what is not of this alphabet.

        Raises:
            ConformanceError: the action is unknown, or has other arguments; names both sides.
        """
        if call.name not in self.actions:
            raise ConformanceError(
                f"the alphabet knows no action {call.name!r}; it has {_listed(self.actions)}: "
                "add it there, or mend the spec or the log that names it"
            )
        wanted, given = set(self.actions[call.name]), set(call.arguments)
        if given - wanted or wanted - given - self.optional:
            raise ConformanceError(
                f"{call} has the arguments ({_listed(sorted(given))}), the alphabet gives "
                f"{call.name} ({_listed(self.actions[call.name])}); use the same names in the "
                "spec, in logs and in the alphabet"
            )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
