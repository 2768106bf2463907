"""The bond of the checkpoint protocol itself, for `cutlock.bond` and its pytest plugin.

`cutlock_bond = "cutlock.conformance.protocol:CUTLOCK"` replays traces of the protocol on real
runs. The commands `replay` and `paths` do the same with more options.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path

from cutlock.alphabet import ARGUMENTS
from cutlock.bond.alphabet import Alphabet
from cutlock.bond.bond import PLANES, Bond, Constants, Setting, Stepper
from cutlock.bond.subject import State
from cutlock.conformance.faults import FAULTS, NONE, fault_of
from cutlock.conformance.observation.compare import likely_cause
from cutlock.conformance.paths.hosts import plane_host
from cutlock.conformance.reference.invariants import INVARIANTS
from cutlock.conformance.replay.counterexample import further, promised
from cutlock.conformance.replay.walk import Foreseen
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.shipped import shipped
from cutlock.tlc.action import ActionCall
from cutlock.tlc.values import Value

__all__ = ["CUTLOCK", "Run"]

_MEMORY = Path("/dev/shm")
_NEEDED = frozenset({"group", "substitute", "unit"})
_LATE = "Late"
"""What a mutant adds."""
_MUTANTS = {mutant: fault for fault in FAULTS.values() for mutant in fault.mutants}


class Run(Stepper):
    """A real run of the size of a model, in a directory of its own.

    What the counterexample of a mutant assumes of the environment is there with and without the
    fault.
    """

    def __init__(self, setting: Setting) -> None:
        bounds = _bounds(frozenset(setting.constants.items()))
        fault = fault_of(setting.model) if setting.model in _MUTANTS else None
        self._switch = NONE if fault is None else fault.switch(protected=not setting.faulty)
        with ExitStack() as stack:
            memory = _MEMORY if _MEMORY.is_dir() else None
            home = stack.enter_context(tempfile.TemporaryDirectory(dir=memory))
            host = stack.enter_context(plane_host(setting.plane, bounds))
            run = Path(home, "run")
            self._stepper = stack.enter_context(self._switch.stepper(bounds, run, host))
            self._open = stack.pop_all()
        self._foreseen = Foreseen(self._stepper, setting.calls)

    def do(self, call: ActionCall, /) -> None:
        """See `cutlock.conformance.stepping.stepper.Stepper.do`."""
        self._foreseen.do(call)

    def state(self) -> State:
        """The variables of `spec/State.tla`."""
        return self._switch.state(self._stepper)

    def close(self) -> None:
        """End the run, and remove its directory."""
        self._open.close()


@lru_cache
def _bounds(constants: frozenset[tuple[str, Value]]) -> Bounds:
    return Bounds.of(dict(constants))


def _promise(name: str) -> Callable[[State, Constants], bool]:
    asked = promised(name)
    return lambda state, constants: asked(_bounds(frozenset(constants.items())), state)


def _further(constants: Constants) -> Iterable[ActionCall]:
    return further(_bounds(frozenset(constants.items())))


CUTLOCK = Bond(
    name="cutlock",
    alphabet=Alphabet(
        {**{action.value: names for action, names in ARGUMENTS.items()}, _LATE: ()},
        optional=frozenset(name for names in ARGUMENTS.values() for name in names) - _NEEDED,
    ),
    manifest=shipped("model_check", "manifest.toml"),
    stepper=Run,
    observe=Run.state,
    promises={name: _promise(name) for name in INVARIANTS},
    faults=dict.fromkeys(_MUTANTS, ()),
    blind={mutant: tuple(fault.blind) for mutant, fault in _MUTANTS.items()},
    calls=_further,
    planes=PLANES,
    explain=lambda call, variables: likely_cause(call.name, variables),
)
"""The protocol of `spec/Cutlock.tla` and the real controller."""
