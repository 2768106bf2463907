"""A walk through the state graph, done on the real code and compared after its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cutlock.bond.compare import Difference, differences
from cutlock.bond.subject import Subject
from cutlock.errors import DivergenceError, NotEnabledError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.values import Value

__all__ = ["INITIAL", "Explain", "StatesDifferError", "Walk", "WalkError", "take", "unexplained"]

Walk = Sequence[tuple[ActionCall, Mapping[str, Value] | None]]
"""Actions, each with the whole state after it; None where nothing is compared, which is faster."""

Explain = Callable[[ActionCall, frozenset[str]], str]
"""What a difference in these variables after that action usually means; empty for nothing."""


def unexplained(call: ActionCall, variables: frozenset[str]) -> str:
    """An `Explain` that has nothing to say."""
    return ""


INITIAL = ActionCall("Init")
"""What the initial state is found by."""


class WalkError(DivergenceError):
    """A walk could not be done on the code to its end."""

    def __init__(self, number: int, call: ActionCall, text: str) -> None:
        self.number = number
        """The step, from 1; 0 is the start of the walk."""
        self.call = call
        self.variables: frozenset[str] = frozenset()
        """Those that differ; none if the code does not do the action, or breaks."""
        super().__init__(text)


class StatesDifferError(WalkError):
    """A step of a walk did not come to the state that the specification has there."""

    def __init__(
        self, number: int, call: ActionCall, found: Sequence[Difference], cause: str = ""
    ) -> None:
        variables = frozenset(difference.variable for difference in found)
        lines = [f"step {number}, {call}: specification and code differ", *map(str, found)]
        if cause:
            lines.append(f"likely: {cause}")
        super().__init__(number, call, "\n  ".join(lines))
        self.differences = tuple(found)
        self.variables = variables


def take(
    steps: Walk,
    subject: Subject,
    *,
    start: Mapping[str, Value] | None = None,
    explain: Explain = unexplained,
) -> None:
    """Do every action of a walk and compare the states.

    Args:
        subject: in its initial state.
        start: the initial state, if that is to be compared as well.

    Raises:
        StatesDifferError: naming the step and the variables that differ.
        WalkError: an action broke, or could not be done at all.
    """

    def compare(number: int, call: ActionCall, state: Mapping[str, Value] | None) -> None:
        if state is not None and (found := differences(state, subject.state())):
            variables = frozenset(difference.variable for difference in found)
            raise StatesDifferError(number, call, found, explain(call, variables))

    compare(0, INITIAL, start)
    for number, (call, state) in enumerate(steps, 1):
        try:
            subject.do(call)
        except NotEnabledError as error:
            raise WalkError(
                number, call, f"step {number}, {call}: the code does not do it: {error}"
            ) from error
        except DivergenceError as error:
            raise WalkError(number, call, f"step {number}, {error}") from error
        compare(number, call, state)
