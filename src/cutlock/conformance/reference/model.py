"""The executable reference: the protocol of the specification as plain Python.

It says what `spec/Cutlock.tla` says, action by action, so that random schedules with larger
bounds than a model's have something to be compared with. That the two are the same is shown
on graphs that TLC has explored: every state and every edge of them, no more and no less.

Source: `spec/Cutlock.tla`, `spec/LabelledCutlock.tla`; design, section 13.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cutlock.alphabet import Action
from cutlock.conformance.reference.actions import ACTIONS
from cutlock.conformance.reference.state import State, initial_state
from cutlock.conformance.reference.terms import Terms
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.errors import ConformanceError, NotEnabledError
from cutlock.tlc.action import ActionCall

__all__ = ["Reference"]


@dataclass(frozen=True)
class Reference:
    """The behaviours of the specification within bounds.

    Raises:
        ConformanceError: choices are left open; a code that chooses by order is not compared
            with them.
    """

    bounds: Bounds
    max_crashes: int = 0
    """`MaxCrashes` of the spec."""
    crash_anywhere: bool = True
    """`CrashAnywhere` of the spec; False allows a crash only right after a publication."""

    def __post_init__(self) -> None:
        if not self.bounds.ordered:
            raise ConformanceError("Ordered = FALSE: the reference has one choice; set it TRUE")

    def initial(self) -> State:
        """The state before the first start."""
        return initial_state(self.bounds)

    def terms(self, state: State) -> Terms:
        """The definitions of the spec over a state."""
        return Terms(self.bounds, state, self.max_crashes, self.crash_anywhere)

    def successors(self, state: State) -> Iterator[tuple[ActionCall, State]]:
        """Every action that may happen, with its arguments, and the state after it."""
        terms = self.terms(state)
        for action, act in ACTIONS.items():
            for arguments, after in act(terms):
                yield ActionCall(action.value, arguments), after

    def enabled(self, state: State) -> list[ActionCall]:
        """Every action that may happen, with its arguments."""
        return [call for call, _ in self.successors(state)]

    def apply(self, state: State, call: ActionCall) -> State:
        """The state after an action.

        Raises:
            NotEnabledError: the specification does not allow it.
            ConformanceError: there is no such action.
        """
        if call.name not in ACTIONS:
            raise ConformanceError(
                f"{call}: the reference has no action of that name; see cutlock.alphabet"
            )
        for arguments, after in ACTIONS[Action(call.name)](self.terms(state)):
            if arguments == call.arguments:
                return after
        raise NotEnabledError(f"{call}: the specification does not allow it in this state")
