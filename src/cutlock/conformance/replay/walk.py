"""The replay of a walk through the state graph on the real code, compared after every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cutlock.alphabet import Action
from cutlock.conformance.observation.compare import Difference, differences, likely_cause
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.errors import DivergenceError, NotEnabledError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.values import Value

__all__ = ["StatesDifferError", "Walk", "WalkError", "gives_up", "replay"]

Walk = Sequence[tuple[ActionCall, Mapping[str, Value] | None]]
"""Actions, each with the whole state after it; None where nothing is compared, which is faster."""

_INITIAL = ActionCall("Init")
_LOSSES = (Action.FAIL_GROUP, Action.ROLLBACK_GROUP)
_GIVEN_UP = (Action.DROP_GROUP, Action.SUBSTITUTE_GROUP)


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
        self, number: int, call: ActionCall, found: Sequence[Difference], reason: str = ""
    ) -> None:
        variables = frozenset(difference.variable for difference in found)
        cause = reason or likely_cause(call.name, variables)
        lines = [f"step {number}, {call}: specification and code differ", *map(str, found)]
        super().__init__(number, call, "\n  ".join([*lines, f"likely: {cause}"]))
        self.differences = tuple(found)
        self.variables = variables


def replay(
    steps: Walk,
    stepper: Stepper,
    *,
    start: Mapping[str, Value] | None = None,
    in_spec: Callable[[ActionCall], ActionCall] = lambda call: call,
) -> None:
    """Do every action of a walk and compare the states.

    Args:
        stepper: new, so that it is in the initial state.
        start: the initial state, if that is to be compared as well.
        in_spec: the action of the specification that a move of the walk is.

    Raises:
        StatesDifferError: naming the step and the variables that differ.
        WalkError: an action broke, or could not be done at all.
    """
    calls = [in_spec(call) for call, _ in steps]
    _compare(0, _INITIAL, start, stepper)
    for number, (call, state) in enumerate(steps, 1):
        try:
            stepper.do(call, gives_up=gives_up(calls, number - 1))
        except NotEnabledError as error:
            raise WalkError(
                number, call, f"step {number}, {call}: the code does not do it: {error}"
            ) from error
        except DivergenceError as error:
            raise WalkError(number, call, f"step {number}, {error}") from error
        _compare(number, call, state, stepper)


def _compare(
    number: int, call: ActionCall, state: Mapping[str, Value] | None, stepper: Stepper
) -> None:
    if state is not None and (found := differences(state, stepper.state())):
        refusal = stepper.refusal
        raise StatesDifferError(number, call, found, str(refusal) if refusal else "")


def gives_up(calls: Sequence[ActionCall], place: int) -> bool:
    """Whether the group that is lost at that place is given up later, or tried again.

    The code decides that in the step in which the group is lost, the spec afterwards.
    """
    if calls[place].name not in _LOSSES:
        return False
    group = calls[place].arguments.get("group")
    for call in calls[place + 1 :]:
        if call.name == Action.CRASH:
            return False
        if call.arguments.get("group") == group and call.name in (*_GIVEN_UP, Action.LAUNCH_GROUP):
            return call.name in _GIVEN_UP
    return False
