"""A counterexample of a protocol's model, replayed on its code until it is clear what comes of it.

With the fault of the mutant switched in, every state has to be that of the counterexample, and
the promise breaks in the same step. Without, the code refuses a step, or comes to another state
than the faulty one and keeps its promise.

Source: design, section 13.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from cutlock.bond.bond import PLANES, Bond, Constants, S, Setting, require_variables
from cutlock.bond.compare import differences
from cutlock.bond.subject import State, Subject
from cutlock.errors import (
    ConformanceError,
    DivergenceError,
    NoPlaceError,
    NotEnabledError,
    NoticedError,
    ToolError,
)
from cutlock.tlc.action import ActionCall
from cutlock.tlc.itf import Counterexample, Step, from_itf

__all__ = [
    "DEADLOCK",
    "Ending",
    "OnStep",
    "Promise",
    "Replayed",
    "always",
    "cut_short",
    "follow",
    "ignore",
    "read_trace",
    "replay",
    "stands_still",
    "walk_of",
]

DEADLOCK = "deadlock"
"""The property of a counterexample whose last state has no successor."""

Promise = Callable[[State], bool]
"""Whether a state keeps it."""

OnStep = Callable[[int, Step, str], None]
"""Is told of every step: its number, and `done`, `differs`, or how the replay ends there."""


class Ending(enum.StrEnum):
    """How a replay has ended."""

    BROKEN = "broken"
    """The promise does not hold of the state that the code has come to."""
    NOTICED = "noticed"
    """A check of the code has raised: nothing comes after it."""
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


def ignore(number: int, step: Step, what: str) -> None:
    """An `OnStep` that does nothing."""


def always(state: State) -> bool:
    """The promise of what cannot be asked of one state."""
    return True


def cut_short(example: Counterexample) -> ToolError:
    """The error for a counterexample that shows nothing; the code would pass it for no reason."""
    return ToolError(
        f"the {len(example.steps)} states of {example.model} do not break {example.property}: the "
        f"last ones are missing; make it anew with `cutlock mutants {example.model} --traces "
        "FOLDER --write`"
    )


def stands_still(example: Counterexample) -> bool:
    """Whether the behaviour has no further step: a deadlock, or no step that would be fair."""
    return example.property == DEADLOCK or example.loop == len(example.steps) - 1


def read_trace(path: Path) -> Counterexample:
    """The trace of a file.

    Raises:
        ToolError: it is none; says what is wrong.
    """
    try:
        return from_itf(path.read_bytes())
    except (OSError, ToolError) as error:
        raise ToolError(
            f"{path}: {error}; make it anew with `cutlock mutants --traces {path.parent} --write`"
        ) from error


def walk_of(example: Counterexample) -> Counterexample:
    """The steps of a trace without its promise: what is asked of the code is each state."""
    return Counterexample(example.model, "", example.steps)


def replay(
    bond: Bond[S],
    example: Counterexample,
    *,
    faulty: bool = False,
    fault: str | None = None,
    constants: Constants | None = None,
    plane: str = PLANES[0],
    seed: int = 0,
    on_step: OnStep = ignore,
) -> Replayed:
    """Do the steps of a counterexample on the code, with the fault that answers to it or without.

    Args:
        faulty: switch the fault in: then it has to end as `Replayed.breaks_as_told` says.
            Without, the code refuses a step, or keeps the promise in another state.
        fault: switch in this one of `Bond.faults` instead.
        constants: of the model; left out, those of its row in the manifest.

    Raises:
        NoPlaceError: the bond says that the code has no place for it.
        ConfigError: the trace is of another specification, no fault answers to it, or there is
            no such plane.
        ConformanceError: an action or argument is not of the alphabet, the observation has
            other variables, nobody has said how to ask for the promise, or there is neither a
            promise nor a step.
        ToolError: the trace was cut short, or the promise in Python is not that of the spec.
        DivergenceError: the code broke in a way that is no check of its own.
    """
    if example.model in bond.no_place:
        raise NoPlaceError(
            f"{example.model} has no place in the code of {bond.name}: "
            f"{bond.no_place[example.model]}; `cutlock mutants {example.model}` checks it on the "
            "model"
        )
    if not example.property and len(example.steps) < 2:
        raise ConformanceError(f"a trace of {example.model} has no step; keep it again")
    if constants is None:
        constants = bond.constants(bond.model(example.model))
    for step in example.steps[1:]:
        bond.alphabet.check(step.action)
    if stands_still(example) and bond.calls is None:
        raise ConformanceError(
            f"the trace of {example.model} comes to a standstill, and {bond.name} does not say "
            "what would get further; give the bond `calls`"
        )
    promise = _promise(bond, example, constants)
    fault = fault or (example.model if faulty else None)
    setting = Setting(
        model=example.model,
        constants=constants,
        plane=plane,
        seed=seed,
        fault=fault,
        calls=tuple(step.action for step in example.steps[1:]),
        trace=example,
    )
    with bond.begin(setting) as subject:
        require_variables(subject, example.steps[0].state, f"the trace of {example.model}")
        return follow(
            example,
            subject,
            promise,
            fault=fault,
            blind=bond.blind.get(fault or example.model, ()),
            calls=() if bond.calls is None else bond.calls(constants),
            on_step=on_step,
        )


def _promise(bond: Bond[S], example: Counterexample, constants: Constants) -> Promise:
    name = example.property
    if name in {DEADLOCK, ""} or example.loop is not None:
        return always
    if name not in bond.promises:
        if bond.model(example.model).checks_liveness():
            raise cut_short(example)  # a behaviour that never ends has a loop
        raise ConformanceError(
            f"{bond.name} has no promise {name!r}, which the trace of {example.model} breaks; "
            f"it has {', '.join(bond.promises) or 'none'}: add it to `promises`"
        )
    asked = bond.promises[name]
    *before, last = (asked(step.state, constants) for step in example.steps)
    if last:
        raise cut_short(example)
    if not all(before):
        raise ToolError(
            f"the promise {name} in Python falls in step {before.index(False)} of "
            f"{example.model}, in the spec in the last one, {len(before)}; say the same in both"
        )
    return lambda state: asked(state, constants)


def follow(
    example: Counterexample,
    subject: Subject,
    promise: Promise = always,
    *,
    fault: str | None = None,
    blind: Sequence[str] = (),
    calls: Iterable[ActionCall] = (),
    on_step: OnStep = ignore,
) -> Replayed:
    """Do the steps of a counterexample until the promise breaks or the code does not go along.

    After a state that is not that of the counterexample the steps are still tried. A behaviour
    that never ends goes round once more.

    Args:
        subject: in its initial state.
        promise: that falls; `always` where it falls by going round, or by standing still.
        fault: its name, if one is switched in.
        blind: places of a state, as `Difference.path` begins, that cannot be compared.
        calls: what would get a state further that has come to a standstill: each is tried.
    """
    return _Following(example, subject, promise, tuple(blind), calls, on_step).run(fault)


class _Following:
    """One replay that goes on."""

    def __init__(
        self,
        example: Counterexample,
        subject: Subject,
        promise: Promise,
        blind: tuple[str, ...],
        calls: Iterable[ActionCall],
        on_step: OnStep,
    ) -> None:
        self._example = example
        self._subject = subject
        self._promise = promise
        self._blind = blind
        self._calls = calls
        self._on_step = on_step
        self._diverged: int | None = None
        self._differences: tuple[str, ...] = ()
        self._past = 0
        """The last step that was done, of those that were done for the first time."""

    def run(self, fault: str | None) -> Replayed:
        steps = self._example.steps
        self._look(0, steps[0])
        ending, number, why = Ending.KEPT, 0, ""
        for number in self._numbers():
            found = self._close(number) if self._closes(number) else self._step(number)
            if found is not None:
                ending, why = found
                self._on_step(number, steps[number], ending)
                break
            what = "differs" if self._diverged == number else "done"
            self._on_step(number, steps[number], what)
            self._past = max(self._past, number)
        else:
            ending, why = self._at_the_end()
        return Replayed(
            model=self._example.model,
            promise=self._example.property,
            fault=fault,
            length=len(steps) - 1,
            ending=ending,
            step=number,
            action=str(steps[number].action),
            diverged=self._diverged,
            differences=self._differences,
            why=why,
        )

    def _numbers(self) -> list[int]:
        """The steps in their order; a loop once more, from the state that it goes back to."""
        every, loop = [*range(len(self._example.steps))], self._example.loop
        return (
            every[1:]
            if loop is None or stands_still(self._example)
            else [*every[1:], *every[loop:]]
        )

    def _closes(self, number: int) -> bool:
        """Whether this step goes back to the state that the loop begins with."""
        return number == self._example.loop and self._past == len(self._example.steps) - 1

    def _close(self, number: int) -> tuple[Ending, str] | None:
        """Do the step that closes a loop; TLC does not name its action.

        Most often it is the one that has led to that state before. While all is as told, what
        else the behaviour has is tried as well: what is refused has changed nothing.
        """
        state, found = self._example.steps[number].state, None
        tried: list[ActionCall] = []
        for step in (self._example.steps[number], *self._example.steps):
            if step.action in tried or step is self._example.steps[0]:
                continue
            tried.append(step.action)
            found = self._step(number, Step(step.action, state))
            if found is None or found[0] is not Ending.REFUSED or self._diverged is not None:
                break
        return found

    def _step(self, number: int, step: Step | None = None) -> tuple[Ending, str] | None:
        """Do one; how the replay ends here, if it does."""
        step = self._example.steps[number] if step is None else step
        try:
            self._subject.do(step.action)
        except NotEnabledError as error:
            return Ending.REFUSED, str(error)
        except NoticedError as error:
            self._look(number, step)
            return Ending.NOTICED, str(error)
        except DivergenceError as error:
            if error.__cause__ is not None:
                # Something is broken that is no check.
                raise DivergenceError(
                    f"{self._example.model}, step {number}, {step.action}: {error}"
                ) from error.__cause__
            self._differ(number, [str(error)])
        if not self._promise(self._look(number, step)):
            return Ending.BROKEN, f"{self._example.property} does not hold"
        return None

    def _look(self, number: int, step: Step) -> State:
        state = self._subject.state()
        found = differences(step.state, state)
        self._differ(number, [str(d) for d in found if not d.path.startswith(self._blind)])
        return state

    def _differ(self, number: int, what: Sequence[str]) -> None:
        if what and self._diverged is None:
            self._diverged, self._differences = number, tuple(what)

    def _at_the_end(self) -> tuple[Ending, str]:
        example = self._example
        if stands_still(example):
            call = self._possible()
            if call is None:
                return Ending.BROKEN, "no action can be done any more"
            return Ending.KEPT, f"{call} can still be done"
        if example.loop is not None and self._diverged is None:
            return Ending.BROKEN, f"{example.property} does not hold: this goes on for ever"
        return Ending.KEPT, f"{example.property} has held after every step"

    def _possible(self) -> ActionCall | None:
        """Some action that gets further, done; None if there is none."""
        for call in self._calls:
            try:
                self._subject.do(call)
            except NotEnabledError:
                continue
            return call
        return None
