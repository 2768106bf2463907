"""The bond of a protocol: what ties its specification to its code."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from cutlock.alphabet import snake
from cutlock.bond.alphabet import Alphabet
from cutlock.bond.patches import Patch, patched
from cutlock.bond.subject import State, Subject
from cutlock.bond.walk import Explain, unexplained
from cutlock.errors import ConfigError, ConformanceError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.itf import Counterexample
from cutlock.tlc.logcheck import LogSpec
from cutlock.tlc.manifest import Manifest, Model, load_manifest
from cutlock.tlc.values import Value

__all__ = ["PLANES", "Bond", "Constants", "Setting", "Stepped", "Stepper", "require_variables"]

PLANES = ("memory", "transfer_queue")
"""Where what a protocol stores may live."""

Constants = Mapping[str, Value]
"""Constants of a model by their names in the spec."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a stepper is made for."""

    model: str
    """The row of the manifest that a trace or graph is of."""
    constants: Constants
    plane: str = PLANES[0]
    seed: int = 0
    """For whatever is random in the stepper, so that it is the same every time."""
    fault: str | None = None
    """The fault that is switched in, by its name in `Bond.faults`; None for the code as it is."""
    calls: tuple[ActionCall, ...] = ()
    """The actions that will be done: for a choice that the code makes earlier than the spec."""
    trace: Counterexample | None = None
    """What is replayed; None for a walk through a graph."""

    @property
    def faulty(self) -> bool:
        """Whether a fault is switched in."""
        return self.fault is not None


class Stepper:
    """Real objects under a schedule, one action at a time; made in the spec's initial state.

    A subclass has a method for each action, with the name of the action in snake case and
    arguments of the same names. It raises `NotEnabledError`, before anything has changed, where
    the code does not stand where the action could happen.
    """

    def do(self, call: ActionCall, /) -> None:
        """Do one action of the alphabet."""
        getattr(self, snake(call.name))(**call.arguments)

    def refusal(self) -> str:
        """What a check of the code has said that goes no further; empty if none has.

        It is told beside a difference, in place of what `Bond.explain` says.
        """
        return ""

    def close(self) -> None:
        """End everything."""


S = TypeVar("S", bound=Stepper)


@dataclass(frozen=True, kw_only=True)
class Bond(Generic[S]):
    """A protocol's specification and its code, and what says how they go together."""

    name: str
    alphabet: Alphabet
    manifest: Path
    """The list of models; see `cutlock.tlc.manifest`."""
    stepper: Callable[[Setting], S]
    """Makes new real objects, in the initial state."""
    observe: Callable[[S], State]
    """The observation: every variable of the spec, read off the real objects."""
    promises: Mapping[str, Callable[[State, Constants], bool]] = field(default_factory=dict)
    """By the names of the invariants of the spec: whether a state keeps it."""
    faults: Mapping[str, tuple[Patch, ...]] = field(default_factory=dict)
    """By the mutants of the manifest: what is changed in the code to take the same protection
    away."""
    calls: Callable[[Constants], Iterable[ActionCall]] | None = None
    """Whatever may get further a state that has come to a standstill: what has to be fair."""
    blind: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the mutants of the manifest: places of a state, as `Difference.path` begins, that cannot
    be compared while a fault is in."""
    planes: tuple[str, ...] = PLANES[:1]
    """Those of `PLANES` that the stepper can be made on."""
    logs: LogSpec | None = None
    """The module that accepts logs."""
    explain: Explain = unexplained
    """What a difference usually means."""
    no_place: Mapping[str, str] = field(default_factory=dict)
    """By the mutants of the manifest whose counterexamples cannot be replayed on this code: why."""

    @cached_property
    def models(self) -> Manifest:
        """The manifest.

        Raises:
            ConfigError: it cannot be read, or a row breaks a rule of checking.
        """
        return load_manifest(self.manifest)

    def model(self, name: str) -> Model:
        """The row of that name.

        Raises:
            ConfigError: there is none, so what names it is of another specification.
        """
        named = {model.name: model for model in self.models.models}
        if name not in named:
            raise ConfigError(
                f"{name!r} is no model of {self.name}, whose manifest {self.manifest} has "
                f"{', '.join(named)}; a trace of another specification goes with its own bond"
            )
        return named[name]

    def constants(self, model: Model) -> Constants:
        """The constants of a model."""
        return self.models.config(model).constants

    @contextlib.contextmanager
    def begin(self, setting: Setting) -> Iterator[Stepped[S]]:
        """Real objects in the initial state, with the fault switched in if it is asked for.

        Raises:
            ConfigError: there is no such fault or plane.
            ConformanceError: the stepper has no method for an action, or one of other arguments.
        """
        require_plane(self, setting.plane)
        if setting.fault is not None and setting.fault not in self.faults:
            raise ConfigError(
                f"no fault of {self.name} answers to {setting.fault!r}; there are: "
                f"{', '.join(self.faults) or 'none'}; add it to `faults`"
            )
        with patched(() if setting.fault is None else self.faults[setting.fault]):
            stepper = self.stepper(setting)
            try:
                _require_methods(self.alphabet, stepper)
                yield Stepped(self, stepper)
            finally:
                stepper.close()


def require_plane(bond: Bond[S], plane: str) -> None:
    """Refuse a plane that the bond's stepper cannot be made on.

    Raises:
        ConfigError: naming those that it can.
    """
    if plane not in bond.planes:
        raise ConfigError(
            f"{bond.name} has no plane {plane!r}; choose from {', '.join(bond.planes)}"
        )


class Stepped(Generic[S]):
    """A stepper with its alphabet and its observation: a `Subject`."""

    def __init__(self, bond: Bond[S], stepper: S) -> None:
        self._bond = bond
        self._stepper = stepper

    def do(self, call: ActionCall, /) -> None:
        """See `Subject.do`."""
        self._bond.alphabet.check(call)
        self._stepper.do(call)

    def explain(self, call: ActionCall, variables: frozenset[str]) -> str:
        """What has refused, or what a difference in these variables usually means."""
        return self._stepper.refusal() or self._bond.explain(call, variables)

    def state(self) -> State:
        """See `Subject.state`."""
        return self._bond.observe(self._stepper)


def require_variables(subject: Subject, told: State, where: str) -> None:
    """Refuse to compare states of different variables.

    Raises:
        ConformanceError: naming those that only one side has.
    """
    seen = subject.state().keys()
    if seen != told.keys():
        lacks = ", ".join(sorted(told.keys() - seen)) or "nothing"
        more = ", ".join(sorted(seen - told.keys())) or "nothing"
        raise ConformanceError(
            f"the observation lacks {lacks} of the variables of {where}, and has {more} that is "
            "none of them; observe every variable of the spec and no other, and hold a trace of "
            "another specification against its own bond"
        )


def _require_methods(alphabet: Alphabet, stepper: Stepper) -> None:
    if type(stepper).do is not Stepper.do:
        return
    kind = type(stepper).__name__
    for action, arguments in alphabet.actions.items():
        method = getattr(stepper, snake(action), None)
        if method is None:
            raise ConformanceError(
                f"{kind} has no method {snake(action)} for the action {action}; write "
                f"`def {snake(action)}({', '.join(('self', *arguments))})`"
            )
        given = tuple(inspect.signature(method).parameters)
        if given != arguments:
            raise ConformanceError(
                f"{kind}.{snake(action)} takes ({', '.join(given)}), the alphabet gives {action} "
                f"({', '.join(arguments)}); use the same names in the same order"
            )
