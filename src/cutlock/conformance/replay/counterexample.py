"""The replay of a counterexample of the model on a real run, with its fault and without.

Promises are those of `spec/Invariants.tla`, asked of what is observed of the code; a deadlock
is a state in which no action can be done.

Source: design, section 13.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cutlock.alphabet import Action
from cutlock.bond.following import DEADLOCK, OnStep, Replayed, cut_short, follow, ignore
from cutlock.bond.subject import State
from cutlock.conformance.faults import NONE, Fault, Switch
from cutlock.conformance.reference.invariants import INVARIANTS
from cutlock.conformance.reference.state import Bundle, Capture
from cutlock.conformance.reference.state import State as ReferenceState
from cutlock.conformance.reference.terms import Terms
from cutlock.conformance.replay.walk import Foreseen
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.moves import MOVES
from cutlock.conformance.stepping.planes import PlaneHost
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.errors import ConformanceError, CutlockError, DivergenceError, NoticedError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.itf import Counterexample, Step

__all__ = ["FOR_EVER", "further", "promised", "replay_example"]

Promise = Callable[[Bounds, State], bool]


def _any_state(bounds: Bounds, state: State) -> bool:
    return True


def replay_example(
    example: Counterexample,
    bounds: Bounds,
    directory: Path,
    *,
    fault: Fault | None = None,
    protected: bool = False,
    second_lines: bool = False,
    host: PlaneHost | None = None,
    on_step: OnStep = ignore,
) -> Replayed:
    """Follow a counterexample on a real run; see `follow`.

    Args:
        directory: of the run; must not exist, or be empty.
        fault: to switch in; None replays on the code as it is.
        protected: of the fault, switch in no more than what the world does.
        second_lines: leave the second lines of the fault in place.

    Raises:
        ConformanceError: the promise cannot be asked of a state, or the code has no such action.
        ToolError: the promise holds at the end of the counterexample, so it was cut short.
    """
    promise = _asked(example)
    if promise is not _any_state and promise(bounds, example.steps[-1].state):
        raise cut_short(example)
    switch = NONE if fault is None else fault.switch(protected=protected, second_lines=second_lines)
    with switch.stepper(bounds, directory, host) as stepper:
        return follow(
            example,
            _Faulty(stepper, switch, example.steps),
            lambda state: promise(bounds, state),
            fault=None if fault is None or protected else fault.name,
            blind=() if fault is None else tuple(fault.blind),
            calls=further(bounds),
            on_step=on_step,
        )


class _Faulty(Foreseen):
    """A run that may have a fault, which a check of the code may notice."""

    def __init__(self, stepper: Stepper, switch: Switch, steps: Sequence[Step]) -> None:
        super().__init__(stepper, [step.action for step in steps[1:]])
        self._switch = switch
        self._steps = steps

    def do(self, call: ActionCall, /) -> None:
        """See `Subject.do`."""
        try:
            super().do(call)
        except DivergenceError as error:
            if isinstance(error.__cause__, CutlockError):
                raise _noticed(error.__cause__) from error
            raise
        refusal = self._stepper.refusal
        told = self._steps[self._done].state if self._done < len(self._steps) else {}
        if refusal is not None and told.get("up") != "refused":
            raise _noticed(refusal)

    def state(self) -> State:
        """See `Switch.state`."""
        return self._switch.state(self._stepper)


def _noticed(error: CutlockError) -> NoticedError:
    return NoticedError(f"{type(error).__name__}: {error}")


_TROUBLE = frozenset(
    {Action.CRASH, Action.FAIL_GROUP, Action.ROLLBACK_GROUP, Action.FAIL_SAVE, Action.END_RUN}
)
"""What may happen to a run, and what it does at its end, gets no run any further."""


def further(bounds: Bounds) -> Iterator[ActionCall]:
    """Whatever may get a run further."""
    for name in MOVES:
        if name not in _TROUBLE:
            yield from _calls(name, bounds)


_OF_A_GROUP = frozenset(
    {
        Action.LAUNCH_GROUP,
        Action.BEGIN_COMMIT,
        Action.PUT_ROWS,
        Action.COMMIT_GROUP,
        Action.DROP_GROUP,
        Action.ABORT_STALE,
    }
)


def _calls(name: str, bounds: Bounds) -> Iterator[ActionCall]:
    if name == Action.SUBSTITUTE_GROUP:
        for group, spare in itertools.permutations(bounds.groups, 2):
            yield ActionCall(name, {"group": group, "substitute": spare})
    elif name == Action.STORE_ROW:
        for group, unit in itertools.product(bounds.groups, bounds.units):
            yield ActionCall(name, {"group": group, "unit": unit})
    elif name == Action.SAVE_UNIT:
        for unit in bounds.units:
            yield ActionCall(name, {"unit": unit})
    elif name in _OF_A_GROUP:
        for group in bounds.groups:
            yield ActionCall(name, {"group": group})
    else:
        yield ActionCall(name)


# Promises.

FOR_EVER = frozenset({"CutIsTaken", "DeferredEnds", "AdmittedEnds", "RestoreEnds", "RunEnds"})
"""What a behaviour promises that never ends; it falls by going round, or by standing still."""


def _asked(example: Counterexample) -> Promise:
    if example.loop is not None:
        return _any_state
    if example.property in FOR_EVER:
        raise cut_short(example)
    return promised(example.property)


def promised(name: str) -> Promise:
    """The promise of that name, to be asked of a state at given bounds.

    Raises:
        ConformanceError: it cannot be asked of an observed state.
    """
    if name in {DEADLOCK, ""}:
        return _any_state
    if name not in INVARIANTS:
        raise ConformanceError(
            f"the promise {name!r} cannot be asked of an observed state; choose from "
            f"{', '.join(INVARIANTS)}"
        )
    return lambda bounds, state: INVARIANTS[name](_terms(bounds, state))


def _terms(bounds: Bounds, state: State) -> Terms:
    """An observed state as the reference has it; of the capture, the index is enough."""
    index = state["cap"]["index"]
    seen = {
        **state,
        "disk": Bundle(**state["disk"]),
        "cap": Capture(index=index["v"] if index["set"] else None),
    }
    return Terms(bounds, ReferenceState(**seen), 0, False)
