"""What a fault is, and what is changed in a stepped run while it is switched in."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutlock.alphabet import Action
from cutlock.bond.patches import Patch, patched
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.doing import Move
from cutlock.conformance.stepping.incarnation import Drive, Incarnation, shipped_controller
from cutlock.conformance.stepping.moves import MOVES
from cutlock.conformance.stepping.planes import PlaneHost
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.run import open_save, start
from cutlock.run.state import RunState, build_state
from cutlock.stops import StopPoints
from cutlock.tlc.values import Value

__all__ = [
    "NONE",
    "TRUSTS_THE_CUT",
    "Fault",
    "Patch",
    "Reaching",
    "Switch",
    "built",
    "nothing",
]


def nothing(*arguments: object, **named: object) -> None:
    """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class Switch:
    """Changes that are switched in together; the hooks are those of `Stepper`."""

    patches: tuple[Patch, ...] = ()
    prepare: Callable[[Incarnation], None] = nothing
    unbarred: frozenset[str] = frozenset()
    moves: Mapping[str, Move] = field(default_factory=dict)
    shows: Callable[[Stepper, dict[str, Value]], None] = nothing
    """Puts into an observed state what only the faulty code has."""

    def __or__(self, other: Switch) -> Switch:
        """Both."""

        def prepare(incarnation: Incarnation) -> None:
            self.prepare(incarnation)
            other.prepare(incarnation)

        def shows(stepper: Stepper, state: dict[str, Value]) -> None:
            self.shows(stepper, state)
            other.shows(stepper, state)

        return Switch(
            patches=(*self.patches, *other.patches),
            prepare=prepare,
            unbarred=self.unbarred | other.unbarred,
            moves={**self.moves, **other.moves},
            shows=shows,
        )

    def applied(self) -> contextlib.AbstractContextManager[None]:
        """Within this block the patches are in place."""
        return patched(self.patches)

    @contextlib.contextmanager
    def stepper(
        self,
        bounds: Bounds,
        directory: Path,
        host: PlaneHost | None = None,
        moves: Mapping[str, Move] = MOVES,
        drive: Drive = shipped_controller,
    ) -> Iterator[Stepper]:
        """A stepper with all of it; see `Stepper` for the arguments."""
        with (
            self.applied(),
            Stepper(
                bounds,
                directory,
                host=host,
                unbarred=self.unbarred,
                prepare=self.prepare,
                moves={**moves, **self.moves},
                counted=self == Switch(),
                drive=drive,
            ) as stepper,
        ):
            yield stepper

    def state(self, stepper: Stepper) -> dict[str, Value]:
        """The spec's variables, as the faulty code has them now."""
        state = stepper.state()
        self.shows(stepper, state)
        return state


NONE = Switch()
"""No change."""

TRUSTS_THE_CUT = Switch(patches=(Patch(open_save, "require_consistent", nothing),))
"""Without a second line: before a cut is written, nobody looks for what it must not hold."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One protection of the protocol, taken away."""

    name: str
    what: str
    mutants: tuple[str, ...]
    """Rows of the manifest that it answers to."""
    protection: Switch
    """Takes it away."""
    world: Switch = NONE
    """What the counterexample assumes of the environment, with and without the fault."""
    second_lines: Switch = NONE
    """Takes away what would notice the fault before the promise breaks."""
    blind: Mapping[str, str] = field(default_factory=dict)
    """Places of a state, as `Difference.path` begins, that cannot be compared; and why."""

    def switch(self, *, protected: bool = False, second_lines: bool = False) -> Switch:
        """What is switched in.

        Args:
            protected: the protection is left in place, only the world is as assumed.
            second_lines: the second lines are left in place.
        """
        if protected:
            return self.world
        whole = self.world | self.protection
        return whole if second_lines else whole | self.second_lines


def built(change: Callable[[RunState], None]) -> Switch:
    """Change every controller's state as soon as it is built."""

    def build(*arguments: Any, **named: Any) -> RunState:
        state = build_state(*arguments, **named)
        change(state)
        return state

    return Switch(patches=(Patch(start, "build_state", build),))


class Reaching:
    """`StopPoints` with one action that is come to in another way.

    Args:
        inside: in place of the stop before that action; is given the stop, to await it.
    """

    def __init__(
        self,
        stops: StopPoints,
        action: Action,
        inside: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
    ) -> None:
        self._stops = stops
        self._action = action
        self._inside = inside

    async def reach(self, action: Action, /, **where: object) -> None:
        """See `StopPoints.reach`."""
        if action is self._action:
            await self._inside(lambda: self._stops.reach(action, **where))
        else:
            await self._stops.reach(action, **where)
