"""A run that is stepped: its directory, its store, and the controller that lives, if one does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cutlock.bond.turns import TurnLoop
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.incarnation import Drive, Incarnation, shipped_controller
from cutlock.conformance.stepping.planes import MemoryHost, PlaneHost
from cutlock.errors import CutlockError
from cutlock.run.directory import RunDirectory

__all__ = ["SteppedRun"]


class SteppedRun:
    """One run of the size of a model, from its first start on, over any number of crashes.

    Args:
        bounds: the size.
        directory: of the run; must not exist, or be empty.
        host: where rows live; None for stores in memory.
        unbarred: kinds of slot that a fault has taken away from the barrier: their actions
            are tried although the door is closed.
        prepare: told of every start before its first stage, to switch faults in.
        drive: the loops over the engine that are stepped.
    """

    def __init__(
        self,
        bounds: Bounds,
        directory: Path,
        *,
        host: PlaneHost | None = None,
        unbarred: frozenset[str] = frozenset(),
        prepare: Callable[[Incarnation], None] = lambda incarnation: None,
        drive: Drive = shipped_controller,
    ) -> None:
        self.bounds = bounds
        self.directory = RunDirectory(directory)
        self.directory.create(bounds.config, bounds.prompts)
        self.host = MemoryHost(len(bounds.units)) if host is None else host
        self.unbarred = unbarred
        self.incarnation: Incarnation | None = None
        """The controller that lives, if one does."""
        self.crashes = 0
        self.failures = 0
        """Failed rollouts, failed commits and failed saves, together."""
        self.loop = TurnLoop()
        self._prepare = prepare
        self._drive = drive

    @property
    def up(self) -> str:
        """How far the start has come."""
        return "down" if self.incarnation is None else self.incarnation.stage

    @property
    def refusal(self) -> CutlockError | None:
        """Why a stage of the start was refused."""
        return None if self.incarnation is None else self.incarnation.refusal

    def begin(self) -> Incarnation:
        """A new controller, of which no stage has been gone through."""
        self.incarnation = Incarnation(
            self.bounds, self.directory, self.host, self.loop, self._drive
        )
        self._prepare(self.incarnation)
        return self.incarnation

    def kill(self) -> None:
        """End the controller that lives, if one does, and its store."""
        if self.incarnation is not None:
            self.incarnation.die()
            self.incarnation = None

    def close(self) -> None:
        """End everything; a second call is no error."""
        if not self.loop.is_closed():
            self.kill()
            self.loop.close()
