"""Code and reference side by side: what may be done next, and both after it.

A driver, random or not, asks for the options and picks; after every action the whole state
of the code is compared with that of the reference, and the promises are looked at.

Source: design, section 13, the free direction.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from cutlock.alphabet import ARGUMENTS, Action
from cutlock.bond.bond import Constants
from cutlock.bond.compare import differences
from cutlock.bond.walk import INITIAL, StatesDifferError
from cutlock.conformance.free.moves import (
    CANCEL_COMMIT,
    CANCEL_COMMIT_TWICE,
    in_spec,
    refusal_of,
    refused_by,
)
from cutlock.conformance.observation.compare import likely_cause
from cutlock.conformance.observation.words import record
from cutlock.conformance.protocol import gives_up
from cutlock.conformance.reference.invariants import broken
from cutlock.conformance.reference.model import Reference
from cutlock.conformance.reference.state import prompts_of
from cutlock.conformance.reference.terms import Terms
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.errors import ConformanceError, DivergenceError, NotEnabledError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.itf import Counterexample, Step
from cutlock.tlc.values import Function, Value, parse_value, to_tla

__all__ = ["LOSSES", "Pair", "constants_of_trace", "trace_model"]

LOSSES = frozenset(
    {Action.FAIL_GROUP.value, Action.ROLLBACK_GROUP.value, CANCEL_COMMIT, CANCEL_COMMIT_TWICE}
)
"""Moves after which the code tries a group again or gives it up, as it was told."""

_LAUNCH = Action.LAUNCH_GROUP
_GIVING_UP = (Action.DROP_GROUP, Action.SUBSTITUTE_GROUP)
_TROUBLE = LOSSES | {Action.FAIL_SAVE.value}
_CHOSEN = (Action.DRAIN_SPARE_POOL, Action.EVICT_GROUPS, Action.SELECT_GROUPS)
_EQUAL = "EqualStates"


class Pair:
    """One run of the code, and the state that the reference has after the same actions.

    Args:
        stepper: new, with the moves of `MACHINE_MOVES`.
    """

    def __init__(self, reference: Reference, stepper: Stepper) -> None:
        self.reference = reference
        self.stepper = stepper
        self.state = reference.initial()
        self.steps = [Step(INITIAL, self.state.variables)]
        """What was done, with the state of the reference after it."""
        self._given_up: dict[Value | None, bool] = {}
        # The code decides when it loses a group what the spec decides afterwards.
        self._compare(INITIAL)

    @property
    def terms(self) -> Terms:
        """The definitions of the spec over the state."""
        return self.reference.terms(self.state)

    # What may be done.

    def options(self) -> list[ActionCall]:
        """The moves that the spec allows and that the code, as it was told, makes."""
        return [move for call in self.reference.enabled(self.state) for move in self._moves(call)]

    def _moves(self, call: ActionCall) -> Iterator[ActionCall]:
        given_up = self._given_up.get(call.arguments.get("group"))
        if call.name == _LAUNCH:
            possible = not given_up and self._has_place(call)
        elif "unit" in call.arguments:
            possible = call.arguments["unit"] == self._next_unit(call)
        else:
            possible = call.name not in _GIVING_UP or given_up is True
        if possible:
            yield call
        if call.name == Action.ROLLBACK_GROUP and self._is_cancelled_at_once(call):
            yield ActionCall(CANCEL_COMMIT, call.arguments)
            yield ActionCall(CANCEL_COMMIT_TWICE, call.arguments)

    def _has_place(self, launch: ActionCall) -> bool:
        """Whether the group is one that the code launches next.

        Of several groups that wait for few places the spec lets any be the first.
        """
        terms, incarnation = self.terms, self.stepper.incarnation
        if terms.wanted <= self.reference.bounds.capacity or incarnation is None:
            return True
        standing = {self.stepper.bounds.prompt(g) for g in incarnation.stands.groups(_LAUNCH)}
        return launch.arguments["group"] in standing or standing.isdisjoint(terms.unlaunched)

    def _next_unit(self, call: ActionCall) -> Value:
        """The unit that the store comes to next, where the spec lets any be the first."""
        group = call.arguments.get("group")
        seen = (
            self.state.cap.files if group is None else {u for g, u in self.state.rows if g == group}
        )
        return next(unit for unit in self.reference.bounds.units if unit not in seen)

    def _is_cancelled_at_once(self, call: ActionCall) -> bool:
        """Whether a cancellation of the commit has to wait for no part of its put."""
        task: Mapping[Value, str] = self.state.task  # type: ignore[assignment]
        return not self.reference.bounds.narrow or task[call.arguments["group"]] == "put"

    def forbidden(self, action: Action) -> list[ActionCall]:
        """Calls of an action that the code has to refuse now."""
        if action is Action.CRASH:
            return [] if self.state.up != "down" else [ActionCall(action.value)]
        if action in _TROUBLE and self.state.failures >= self.reference.bounds.max_failures:
            # The bounds forbid it, and the code knows nothing of them.
            return []
        options = self.options()
        return [c for c in self._conceivable(action) if not any(_covers(c, o) for o in options)]

    def tempting(self) -> list[ActionCall]:
        """Calls that the code has to refuse although one of its tasks stands before them."""
        incarnation = self.stepper.incarnation
        if incarnation is None:
            return []
        generated = [(Action.BEGIN_COMMIT, group) for group in sorted(incarnation.generator.groups)]
        names = self.stepper.bounds.names
        return [
            call
            for action, group in (*incarnation.stands.places, *generated)
            for call in self.forbidden(action)
            if call.arguments.get("group") == names.get(group or "")
        ]

    def _conceivable(self, action: Action) -> Iterator[ActionCall]:
        prompts = prompts_of(self.reference.bounds)
        match ARGUMENTS[action]:
            case ("group", "substitute"):
                for group, spare in itertools.product(prompts, prompts):
                    yield ActionCall(action.value, {"group": group, "substitute": spare})
            case ("group", "unit"):
                for group, unit in itertools.product(prompts, self.reference.bounds.units):
                    yield ActionCall(action.value, {"group": group, "unit": unit})
            case ("unit",):
                for unit in self.reference.bounds.units:
                    yield ActionCall(action.value, {"unit": unit})
            case ("group", *_):
                yield from (ActionCall(action.value, {"group": group}) for group in prompts)
            case _:
                yield ActionCall(action.value)
                if action in _CHOSEN:
                    for group in prompts:
                        yield ActionCall(action.value, {"groups": frozenset({group})})

    # What is done.

    def do(self, move: ActionCall, *, gives_up: bool = False) -> None:
        """Make a move on both sides, and compare.

        Raises:
            DivergenceError: the two differ, or a promise is broken.
        """
        self.state = self.reference.apply(self.state, in_spec(move))
        self._note(move, gives_up)
        try:
            self.stepper.do(move, gives_up=gives_up)
        except NotEnabledError as error:
            raise DivergenceError(f"{move}: the code does not do it: {error}") from error
        self._compare(move)

    def refuse(self, call: ActionCall) -> None:
        """Try what the spec does not allow.

        Raises:
            DivergenceError: it was done, or something changed all the same.
        """
        move = refusal_of(call)
        self.steps.append(Step(move, self.state.variables))
        self.stepper.do(move)
        self._compare(move)

    def make(self, moves: Sequence[ActionCall]) -> None:
        """Make the moves of a trace, refusals among them.

        Raises:
            DivergenceError: see `do` and `refuse`.
            NotEnabledError: the spec does not allow one of them.
        """
        calls = [in_spec(move) for move in moves]
        for place, move in enumerate(moves):
            refused = refused_by(move)
            if refused is not None:
                self.refuse(refused)
            else:
                self.do(move, gives_up=gives_up(calls, place))

    def _note(self, move: ActionCall, gives_up: bool) -> None:
        self.steps.append(Step(move, self.state.variables))
        if move.name == Action.CRASH:
            self._given_up.clear()
        group = move.arguments.get("group")
        if move.name in LOSSES:
            self._given_up[group] = gives_up
        elif move.name == _LAUNCH:
            self._given_up.pop(group, None)

    def _compare(self, move: ActionCall) -> None:
        if found := differences(self.state.variables, self.stepper.state()):
            variables = frozenset(difference.variable for difference in found)
            cause = likely_cause(move.name, variables)
            raise StatesDifferError(len(self.steps) - 1, move, found, cause)
        # The observed state is this one.
        if promises := broken(self.terms):
            raise DivergenceError(f"{move}: the state breaks {', '.join(promises)}")

    # What is kept of it.

    def walk(self) -> str:
        """The moves, one a line."""
        moves = [step.action for step in self.steps[1:]]
        return "\n".join(f"{number:4} {move}" for number, move in enumerate(moves, 1))

    def trace(self) -> Counterexample:
        """The moves as a trace, which ends where code and reference differ."""
        return Counterexample(trace_model(self.reference.bounds), _EQUAL, tuple(self.steps))


def _covers(call: ActionCall, option: ActionCall) -> bool:
    same = call.name == option.name
    return same and (not call.arguments or call.arguments == option.arguments)


def trace_model(bounds: Bounds) -> str:
    """The bounds as the model of a trace: a record of the constants of the spec."""
    return to_tla(record(**bounds.constants))


def constants_of_trace(trace: Counterexample) -> Constants:
    """The constants of a trace that a pair has left; it is replayed with the bond `FREE`.

    Raises:
        ConformanceError: the model of the trace is none of those.
    """
    constants = parse_value(trace.model) if trace.model.startswith("[") else None
    if not isinstance(constants, Function):
        raise ConformanceError(
            f"the model {trace.model!r} is no record of constants; keep the trace again"
        )
    return {str(name): value for name, value in constants.items()}
