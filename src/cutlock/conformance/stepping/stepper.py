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

from cutlock.conformance.observation.observe import Observer
from cutlock.conformance.stepping.bookkeeping import miscounts
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.doing import Doing, Move
from cutlock.conformance.stepping.incarnation import Drive, Incarnation, shipped_controller
from cutlock.conformance.stepping.moves import MOVES
from cutlock.conformance.stepping.planes import PlaneHost
from cutlock.conformance.stepping.records import require_agreement
from cutlock.conformance.stepping.stepped_run import SteppedRun
from cutlock.errors import ConformanceError, DivergenceError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.values import Value

__all__ = ["Stepper"]


class Stepper(SteppedRun):
    """A run that does actions and can be looked at; use it with `with`.

    Args:
        bounds: see `SteppedRun`, also of the next four and the last.
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
        drive: Drive = shipped_controller,
    ) -> None:
        super().__init__(
            bounds, directory, host=host, unbarred=unbarred, prepare=prepare, drive=drive
        )
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
