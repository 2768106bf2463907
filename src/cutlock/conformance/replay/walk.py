"""The replay of a walk through the state graph on a real run, compared after every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cutlock.alphabet import Action
from cutlock.bond.subject import State
from cutlock.bond.walk import Walk, take
from cutlock.conformance.observation.compare import likely_cause
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.tlc.action import ActionCall
from cutlock.tlc.values import Value

__all__ = ["Foreseen", "gives_up", "replay"]

_LOSSES = (Action.FAIL_GROUP, Action.ROLLBACK_GROUP)
_GIVEN_UP = (Action.DROP_GROUP, Action.SUBSTITUTE_GROUP)


class Foreseen:
    """A stepper that is told what comes later, for what the code decides earlier than the spec.

    Args:
        stepper: new, so that it is in the initial state.
        calls: the actions of the specification that are done, in their order; those after
            them are not foreseen.
    """

    def __init__(self, stepper: Stepper, calls: Sequence[ActionCall]) -> None:
        self._stepper = stepper
        self._calls = calls
        self._done = 0

    def do(self, call: ActionCall, /) -> None:
        """See `Stepper.do`."""
        place, self._done = self._done, self._done + 1
        loses = place < len(self._calls) and gives_up(self._calls, place)
        self._stepper.do(call, gives_up=loses)

    def state(self) -> State:
        """See `Stepper.state`."""
        return self._stepper.state()

    def explain(self, call: ActionCall, variables: frozenset[str]) -> str:
        """The refusal that a start has met with, or what a difference usually means."""
        refusal = self._stepper.refusal
        return str(refusal) if refusal else likely_cause(call.name, variables)


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
    subject = Foreseen(stepper, [in_spec(call) for call, _ in steps])
    take(steps, subject, start=start, explain=subject.explain)


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
