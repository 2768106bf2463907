"""The bond of the checkpoint protocol: real runs, held to `spec/Cutlock.tla`.

With `cutlock_bond = "cutlock.conformance.protocol:CUTLOCK"` the pytest plugin replays traces of
the protocol on real runs; the commands `replay` and `paths` do so too.

Source: design, section 13.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import ClassVar

import torch

from cutlock.alphabet import ARGUMENTS, Action
from cutlock.bond.alphabet import Alphabet
from cutlock.bond.bond import PLANES, Bond, Constants, Setting, Stepper
from cutlock.bond.subject import State
from cutlock.conformance.faults import FAULTS, NONE, WITHOUT_A_FAULT, Switch
from cutlock.conformance.free.moves import MACHINE_MOVES, in_spec, refused_by
from cutlock.conformance.observation.compare import likely_cause
from cutlock.conformance.reference.invariants import INVARIANTS
from cutlock.conformance.reference.state import Bundle, Capture
from cutlock.conformance.reference.state import State as ReferenceState
from cutlock.conformance.reference.terms import Terms
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.doing import Move
from cutlock.conformance.stepping.incarnation import Drive, shipped_controller
from cutlock.conformance.stepping.moves import MOVES
from cutlock.conformance.stepping.planes import PlaneHost
from cutlock.errors import CutlockError, DivergenceError, NoticedError
from cutlock.plane.loopback import keep_ray_on_loopback
from cutlock.shipped import shipped
from cutlock.tlc.action import ActionCall
from cutlock.tlc.values import Value

__all__ = [
    "CUTLOCK",
    "FREE",
    "CutlockStepper",
    "FreeStepper",
    "bounds_of",
    "gives_up",
    "one_thread",
    "plane_host",
]

_MEMORY = Path("/dev/shm")
_MUTANTS = {mutant: fault for fault in FAULTS.values() for mutant in fault.mutants}


# The subject.


class CutlockStepper(Stepper):
    """A real run of the size of a model, in a directory of its own.

    What the counterexample of a mutant assumes of the environment is there with and without the
    fault.

    Args:
        second_lines: leave in place what else would notice the fault.
        host: where rows live, whatever the plane; None for a store of its own.
        drive: the loops over the engine that are stepped.
    """

    moves: ClassVar[Mapping[str, Move]] = MOVES

    def __init__(
        self,
        setting: Setting,
        *,
        second_lines: bool = False,
        host: PlaneHost | None = None,
        drive: Drive = shipped_controller,
    ) -> None:
        bounds = bounds_of(setting.constants)
        self._trace = None if setting.trace is None else setting.trace.steps
        self._calls = [in_spec(call) for call in setting.calls]
        self._done = 0
        self._switch = _switch(setting, second_lines)
        with ExitStack() as stack:
            memory = _MEMORY if _MEMORY.is_dir() else None
            home = stack.enter_context(tempfile.TemporaryDirectory(dir=memory))
            if host is None:
                host = stack.enter_context(plane_host(setting.plane, bounds))
            run = self._switch.stepper(bounds, Path(home, "run"), host, self.moves, drive)
            self._run = stack.enter_context(run)
            self._open = stack.pop_all()

    def do(self, call: ActionCall, /) -> None:
        """See `cutlock.conformance.stepping.stepper.Stepper.do`.

        Raises:
            NoticedError: in a trace, a check of the code has raised, or refused what the
                specification goes on with.
        """
        place, self._done = self._done, self._done + 1
        loses = place < len(self._calls) and gives_up(self._calls, place)
        try:
            self._run.do(call, gives_up=loses)
        except DivergenceError as error:
            if self._trace is not None and isinstance(error.__cause__, CutlockError):
                raise _noticed(error.__cause__) from error
            raise
        refusal = self._run.refusal
        if refusal is not None and self._trace is not None and not self._is_told_to_refuse():
            raise _noticed(refusal)

    def _is_told_to_refuse(self) -> bool:
        assert self._trace is not None
        told = self._trace[self._done].state if self._done < len(self._trace) else {}
        return told.get("up") == "refused"

    def state(self) -> State:
        """The variables of `spec/State.tla`."""
        return self._switch.state(self._run)

    def refusal(self) -> str:
        """Why a stage of the start was refused."""
        return str(self._run.refusal or "")

    def close(self) -> None:
        """End the run, and remove its directory."""
        self._open.close()


class FreeStepper(CutlockStepper):
    """The same with the moves of free schedules; see `cutlock.conformance.free`."""

    moves = MACHINE_MOVES


def _switch(setting: Setting, second_lines: bool) -> Switch:
    fault = _MUTANTS.get(setting.fault or setting.model)
    if fault is None:
        return NONE
    return fault.switch(protected=not setting.faulty, second_lines=second_lines)


def _noticed(error: CutlockError) -> NoticedError:
    return NoticedError(f"{type(error).__name__}: {error}")


def plane_host(plane: str, bounds: Bounds) -> AbstractContextManager[PlaneHost | None]:
    """Stores of that kind within this block; None for those in memory.

    Real TransferQueues take seconds to start, in a Ray that is started too unless there is one.
    """
    if plane == PLANES[0]:
        return nullcontext()
    keep_ray_on_loopback()
    os.environ.setdefault("TQ_LOGGING_LEVEL", "ERROR")
    from cutlock.conformance.transfer_queue import TransferQueueHost

    return TransferQueueHost(len(bounds.units))


def one_thread() -> None:
    """Prepare a process that takes walks: the tensors are tiny."""
    torch.set_num_threads(1)


def bounds_of(constants: Constants) -> Bounds:
    """The bounds that a model's constants mean; see `Bounds.of`."""
    return _bounds(frozenset(constants.items()))


@lru_cache
def _bounds(constants: frozenset[tuple[str, Value]]) -> Bounds:
    return Bounds.of(dict(constants))


# What the code decides earlier than the specification.

_LOSSES = (Action.FAIL_GROUP, Action.ROLLBACK_GROUP)
_GIVEN_UP = (Action.DROP_GROUP, Action.SUBSTITUTE_GROUP)


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


# What has to be possible in a state that has come to a standstill.

_TROUBLE = frozenset(
    {Action.CRASH, Action.FAIL_GROUP, Action.ROLLBACK_GROUP, Action.FAIL_SAVE, Action.END_RUN}
)
"""What may happen to a run, and what it does at its end, gets no run any further."""


def _further(constants: Constants) -> Iterator[ActionCall]:
    """Whatever may get a run further."""
    bounds = bounds_of(constants)
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


# Promises: those of `spec/Invariants.tla`, asked of what is observed of the code.


def _keeps(promise: str, state: State, constants: Constants) -> bool:
    return INVARIANTS[promise](_terms(bounds_of(constants), state))


def _terms(bounds: Bounds, state: State) -> Terms:
    """An observed state as the reference has it; of the capture, the index is enough."""
    index = state["cap"]["index"]
    seen = {
        **state,
        "disk": Bundle(**state["disk"]),
        "cap": Capture(index=index["v"] if index["set"] else None),
    }
    return Terms(bounds, ReferenceState(**seen), 0, False)


# The bond.


def _likely(call: ActionCall, variables: frozenset[str]) -> str:
    return likely_cause(call.name, variables)


_LATE = "Late"
"""What a mutant adds."""
_OPTIONAL = frozenset(itertools.chain(*ARGUMENTS.values())) - {"group", "substitute", "unit"}


CUTLOCK = Bond(
    name="cutlock",
    alphabet=Alphabet(
        {**{action.value: names for action, names in ARGUMENTS.items()}, _LATE: ()},
        optional=_OPTIONAL,
    ),
    manifest=shipped("model_check", "manifest.toml"),
    stepper=CutlockStepper,
    observe=CutlockStepper.state,
    promises={name: partial(_keeps, name) for name in INVARIANTS},
    faults=dict.fromkeys(_MUTANTS, ()),
    blind={mutant: tuple(fault.blind) for mutant, fault in _MUTANTS.items()},
    calls=_further,
    planes=PLANES,
    explain=_likely,
    no_place=dict(WITHOUT_A_FAULT),
)
"""The protocol of `spec/Cutlock.tla` and the real controller."""


def _free_moves() -> Iterator[tuple[str, tuple[str, ...]]]:
    for name in MACHINE_MOVES:
        move = ActionCall(name)
        yield name, ARGUMENTS[Action(in_spec(refused_by(move) or move).name)]


FREE = replace(
    CUTLOCK,
    alphabet=Alphabet(dict(_free_moves()), optional=_OPTIONAL),
    stepper=FreeStepper,
    faults={},
    blind={},
    no_place={},
)
"""The same for what a free schedule has left: walks whose moves are more than the actions, and
whose constants come with the trace."""
