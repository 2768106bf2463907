"""The replay of a counterexample of the model on the real code, with its fault and without.

With the fault the code has to go through every state of the counterexample, and the promise
breaks in the same step. Without, the code refuses a step, or comes to another state than the
faulty one and keeps its promise. Promises are those of `spec/Invariants.tla`, asked of what is
observed of the code; a deadlock is a state in which no action can be done.

Source: design, section 13.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cutlock.alphabet import Action
from cutlock.conformance.faults import NONE, Fault, Switch
from cutlock.conformance.observation.compare import Difference, differences
from cutlock.conformance.reference.invariants import INVARIANTS
from cutlock.conformance.reference.state import Bundle, Capture
from cutlock.conformance.reference.state import State as ReferenceState
from cutlock.conformance.reference.terms import Terms
from cutlock.conformance.replay.walk import gives_up
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.moves import MOVES
from cutlock.conformance.stepping.planes import PlaneHost
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.errors import (
    ConformanceError,
    CutlockError,
    DivergenceError,
    NotEnabledError,
    ToolError,
)
from cutlock.tlc.action import ActionCall
from cutlock.tlc.itf import Counterexample, Step

__all__ = ["DEADLOCK", "Ending", "OnStep", "Replayed", "cut_short", "replay_example"]

DEADLOCK = "deadlock"
"""The property of a counterexample whose last state has no successor."""

State = Mapping[str, Any]
Promise = Callable[[Bounds, State], bool]

OnStep = Callable[[int, Step, str], None]
"""Is told of every step: its number, and `done`, `differs`, or how the replay ends there."""


class Ending(enum.StrEnum):
    """How a replay has ended."""

    BROKEN = "broken"
    """The promise does not hold of the state that the code has come to."""
    NOTICED = "noticed"
    """A check of the code has raised: the run is over, or its start was refused."""
    REFUSED = "refused"
    """The code does not do the step."""
    KEPT = "kept"
    """Every step was done, and the promise has held throughout."""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one replay."""

    model: str
    promise: str
    """The property of the counterexample; empty for a behaviour that breaks none."""
    fault: str | None
    length: int
    """Steps of the counterexample."""
    ending: Ending
    step: int
    """The last one that was tried, from 1."""
    action: str
    diverged: int | None
    """The first step after which the state was not that of the counterexample."""
    differences: tuple[str, ...]
    """What was not, in that step."""
    why: str
    """The words of the refusal or of the check; what breaks, or what can still be done."""

    @property
    def breaks_as_told(self) -> bool:
        """Whether the promise has broken in the last step, and every state was as it should."""
        as_told = self.diverged is None and self.step == self.length
        return self.ending is Ending.BROKEN and as_told


def replay_example(
    example: Counterexample,
    bounds: Bounds,
    directory: Path,
    *,
    fault: Fault | None = None,
    protected: bool = False,
    second_lines: bool = False,
    host: PlaneHost | None = None,
    on_step: OnStep = lambda number, step, what: None,
) -> Replayed:
    """Do the steps of a counterexample until the promise breaks or the code does not go along.

    After a state that is not that of the counterexample the steps are still tried.

    Args:
        directory: of the run; must not exist, or be empty.
        fault: to switch in; None replays on the code as it is.
        protected: of the fault, switch in no more than what the world does.
        second_lines: leave the second lines of the fault in place.

    Raises:
        ConformanceError: the promise cannot be asked of a state, or the code has no such action.
        ToolError: the promise holds at the end of the counterexample, so it was cut short.
    """
    promise = _promise(example.property)
    if example.property not in {DEADLOCK, ""} and promise(bounds, example.steps[-1].state):
        raise cut_short(example)
    switch = NONE if fault is None else fault.switch(protected=protected, second_lines=second_lines)
    blind = () if fault is None else tuple(fault.blind)
    with switch.stepper(bounds, directory, host) as stepper:
        return _Replay(example, stepper, switch, blind, promise, on_step).run(
            None if fault is None or protected else fault.name
        )


def cut_short(example: Counterexample) -> ToolError:
    """The error for a counterexample that shows nothing; the code would pass it for no reason."""
    return ToolError(
        f"the {len(example.steps)} states of {example.model} do not break {example.property}: the "
        f"last ones are missing; make it anew with `cutlock mutants {example.model} --traces "
        "FOLDER --write`"
    )


class _Replay:
    """One replay that goes on."""

    def __init__(
        self,
        example: Counterexample,
        stepper: Stepper,
        switch: Switch,
        blind: Sequence[str],
        promise: Promise,
        on_step: OnStep,
    ) -> None:
        self._example = example
        self._stepper = stepper
        self._switch = switch
        self._blind = tuple(blind)
        self._promise = promise
        self._on_step = on_step
        self._diverged: int | None = None
        self._differences: tuple[str, ...] = ()

    def run(self, fault: str | None) -> Replayed:
        """Do the steps."""
        example = self._example
        steps = example.steps
        calls = [step.action for step in steps[1:]]
        self._look(0, steps[0])
        ending, number, why = Ending.KEPT, 0, ""
        for number, step in enumerate(steps[1:], 1):
            found = self._step(number, step, gives_up(calls, number - 1))
            if found is not None:
                ending, why = found
                self._on_step(number, step, ending)
                break
            self._on_step(number, step, "differs" if self._diverged == number else "done")
        else:
            ending, why = self._at_the_end()
        return Replayed(
            model=example.model,
            promise=example.property,
            fault=fault,
            length=len(calls),
            ending=ending,
            step=number,
            action=str(steps[number].action),
            diverged=self._diverged,
            differences=self._differences,
            why=why,
        )

    def _step(self, number: int, step: Step, loses: bool) -> tuple[Ending, str] | None:
        """Do one; how the replay ends here, if it does."""
        try:
            self._stepper.do(step.action, gives_up=loses)
        except NotEnabledError as error:
            return Ending.REFUSED, str(error)
        except DivergenceError as error:
            if isinstance(error.__cause__, CutlockError):
                return Ending.NOTICED, f"{type(error.__cause__).__name__}: {error.__cause__}"
            if error.__cause__ is not None:
                raise
            self._differ(number, [str(error)])
        state = self._look(number, step)
        refusal = self._stepper.refusal
        if refusal is not None and step.state["up"] != "refused":
            return Ending.NOTICED, f"{type(refusal).__name__}: {refusal}"
        if not self._promise(self._stepper.bounds, state):
            return Ending.BROKEN, f"{self._example.property} does not hold"
        return None

    def _look(self, number: int, step: Step) -> State:
        state = self._switch.state(self._stepper)
        self._differ(number, [str(d) for d in differences(step.state, state) if self._seen(d)])
        return state

    def _seen(self, difference: Difference) -> bool:
        return not difference.path.startswith(self._blind)

    def _differ(self, number: int, what: Sequence[str]) -> None:
        if what and self._diverged is None:
            self._diverged, self._differences = number, tuple(what)

    def _at_the_end(self) -> tuple[Ending, str]:
        if self._example.property != DEADLOCK:
            return Ending.KEPT, f"{self._example.property} has held after every step"
        call = _possible(self._stepper)
        if call is None:
            return Ending.BROKEN, "no action can be done any more"
        return Ending.KEPT, f"{call} can still be done"


_TROUBLE = frozenset(
    {Action.CRASH, Action.FAIL_GROUP, Action.ROLLBACK_GROUP, Action.FAIL_SAVE, Action.END_RUN}
)
"""What may happen to a run, and what it does at its end, gets no run any further."""


def _possible(stepper: Stepper) -> ActionCall | None:
    """Some action that gets the run further, done; None if there is none."""
    for name in MOVES:
        if name in _TROUBLE:
            continue
        for call in _calls(name, stepper.bounds):
            try:
                stepper.do(call)
            except NotEnabledError:
                continue
            return call
    return None


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


def _promise(name: str) -> Promise:
    if name in {DEADLOCK, ""}:
        return lambda bounds, state: True
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
