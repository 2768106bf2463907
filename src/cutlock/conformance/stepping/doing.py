"""One action that is being done: its arguments, and what it may ask of the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cutlock.alphabet import Action
from cutlock.conformance.stepping.incarnation import Incarnation
from cutlock.conformance.stepping.stepped_run import SteppedRun
from cutlock.errors import ConformanceError, NotEnabledError
from cutlock.tlc.values import Value, to_tla

__all__ = ["Doing", "Move", "Records"]


@dataclass(frozen=True)
class Doing:
    """One action that is being done."""

    stepper: SteppedRun
    arguments: Mapping[str, Value]
    gives_up: bool

    @property
    def incarnation(self) -> Incarnation:
        """The controller that lives."""
        if self.stepper.incarnation is None:
            raise NotEnabledError("no controller lives; begin one with BeginRun")
        return self.stepper.incarnation

    @property
    def running(self) -> Incarnation:
        """The controller, whose pumps run."""
        incarnation = self.incarnation
        if incarnation.stage != "running" or incarnation.run is None or incarnation.run.done():
            raise NotEnabledError(f"no pumps run; the start has come to {incarnation.stage!r}")
        return incarnation

    @property
    def group(self) -> str:
        """The group id of the argument of that name."""
        return self.stepper.bounds.group(self._argument("group"))

    @property
    def groups(self) -> frozenset[str] | None:
        """The group ids of the argument of that name, if it is given."""
        given = self.arguments.get("groups")
        if given is None:
            return None
        if not isinstance(given, frozenset):
            raise ConformanceError(f"groups = {given!r} is no set; give a set of prompts")
        return frozenset(map(self.stepper.bounds.group, given))

    @property
    def unit(self) -> int:
        """The place among the units of the argument of that name."""
        return self.stepper.bounds.units.index(self._argument("unit"))

    @property
    def substitute(self) -> str:
        """The group id of the argument of that name."""
        return self.stepper.bounds.group(self._argument("substitute"))

    def _argument(self, name: str) -> Value:
        if name not in self.arguments:
            raise ConformanceError(f"the argument {name!r} is missing; {dict(self.arguments)}")
        return self.arguments[name]

    def quiesce(self) -> None:
        """Turn the loop until nothing moves."""
        self.stepper.loop.quiesce()

    def require_door(self, kind: str) -> None:
        """Refuse to ask for a slot that would have to wait."""
        barrier = self.running.engine.barrier
        if barrier.instant and kind not in _SPANNING:
            return
        if kind not in self.stepper.unbarred and (barrier.cut_open or barrier.waiting):
            raise NotEnabledError(f"a slot {kind!r} would wait: a cut is open or requested")

    def require_choice(self, what: str, chosen: Sequence[str]) -> None:
        """Refuse groups that the code would not take."""
        if self.groups is not None and self.groups != frozenset(chosen):
            prompt = self.stepper.bounds.prompt
            raise NotEnabledError(
                f"the code would {what} {[to_tla(prompt(group)) for group in chosen]}"
            )

    def at(self, action: Action, group: str | None = None) -> bool:
        """Whether somebody stands before that action."""
        return self.incarnation.stands.at(action, group)

    def release(
        self, action: Action, group: str | None = None, error: Exception | None = None
    ) -> None:
        """Let go on who stands before that action."""
        self.incarnation.stands.release(action, group, error)

    def require_at(self, action: Action, group: str | None = None) -> None:
        """Raise NotEnabledError unless somebody stands before that action."""
        self.incarnation.stands.require(action, group)


_SPANNING = frozenset({"loader_advance"})
"""Kinds of slot that a cut of one step waits for: `Spanning` of the spec."""

Records = tuple[Action, ...]

Move = Callable[[Doing], Records]
"""Brings an action about, and returns the records that it has to leave in the log."""
