"""The stepper: real controllers under a schedule, one action of the alphabet at a time.

Every task of the controller stands before the action that it has announced. To do an action
is to release the one task that stands before it, and to turn the loop until nothing moves.
A crash ends everything but the disk, and the next start is a new controller on a new store.

Source: design, section 13; the table of actions in `spec/README.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from cutlock.bond.turns import TurnLoop
from cutlock.conformance.observation.observe import Observer
from cutlock.conformance.stepping.bookkeeping import miscounts
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.doing import Doing, Move
from cutlock.conformance.stepping.incarnation import Incarnation
from cutlock.conformance.stepping.moves import MOVES
from cutlock.conformance.stepping.planes import MemoryHost, PlaneHost
from cutlock.conformance.stepping.records import require_agreement
from cutlock.errors import ConformanceError, CutlockError, DivergenceError
from cutlock.run.directory import RunDirectory
from cutlock.tlc.action import ActionCall
from cutlock.tlc.values import Value

__all__ = ["Stepper"]


class Stepper:
    """One run of the size of a model, from its first start on; use it with `with`.

    Args:
        bounds: the size.
        directory: of the run; must not exist, or be empty.
        host: where rows live; None for stores in memory.
        unbarred: kinds of slot that a fault has taken away from the barrier: their actions
            are tried although the door is closed.
        prepare: told of every start before its first stage, to switch faults in.
        moves: how actions are brought about; a fault may add actions of its own.
        counted: whether to check after every action what `miscounts` knows; a broken code may
            go on without it, to the promise that falls.
    """

    def __init__(
        self,
        bounds: Bounds,
        directory: Path,
        *,
        host: PlaneHost | None = None,
        unbarred: frozenset[str] = frozenset(),
        prepare: Callable[[Incarnation], None] = lambda incarnation: None,
        moves: Mapping[str, Move] = MOVES,
        counted: bool = True,
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
        self._moves = moves
        self._counted = counted
        self._observer = Observer(self)

    def __enter__(self) -> Stepper:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End everything; a second call is no error."""
        if not self.loop.is_closed():
            self.kill()
            self.loop.close()

    def do(self, call: ActionCall, *, gives_up: bool = False) -> None:
        """Perform one action; prompts are those of the spec, `<<batch, member>>`.

        Args:
            gives_up: of an action that loses a rollout: whether the code gives the group up
                then, instead of trying it again.

        Raises:
            NotEnabledError: the code does not stand where the action could happen; nothing
                was changed.
            DivergenceError: the action did not come to what the event log should say, or the
                run broke.
            ConformanceError: there is no such action.
        """
        move = self._moves.get(call.name)
        if move is None:
            raise ConformanceError(f"the stepper knows no action {call.name!r}; see the alphabet")
        before = 0 if self.incarnation is None else self.incarnation.log.count
        records = move(Doing(self, call.arguments, gives_up))
        self.loop.quiesce()
        self._require_sound(call)
        if self.incarnation is not None and self.incarnation.refusal is None:
            found = self.incarnation.log.records[before:]
            require_agreement(call, records, found, self.bounds)

    def state(self) -> dict[str, Value]:
        """The spec's variables, as the real things have them now."""
        return self._observer.state()

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
        self.incarnation = Incarnation(self.bounds, self.directory, self.host, self.loop)
        self._prepare(self.incarnation)
        return self.incarnation

    def kill(self) -> None:
        """End the controller that lives, if one does, and its store."""
        if self.incarnation is not None:
            self.incarnation.die()
            self.incarnation = None

    def _require_sound(self, call: ActionCall) -> None:
        error = None if self.incarnation is None else self.incarnation.failure
        if error is not None:
            raise DivergenceError(f"{call}: the run broke: {error}") from error
        if self.loop.mishaps:
            mishaps, self.loop.mishaps = self.loop.mishaps, []
            raise DivergenceError(f"{call}: an error that nobody read: {'; '.join(mishaps)}")
        looked_at = self.incarnation if self._counted else None
        if looked_at is not None and (wrong := list(miscounts(looked_at))):
            raise DivergenceError(f"{call}: {'; '.join(wrong)}")
