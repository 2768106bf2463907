"""Schedules: the first action that is possible, in a fixed order, until a condition holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from cutlock.alphabet import Action
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.moves import SAVE_STOPS
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.errors import NotEnabledError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.values import Function, Value

START = (
    Action.BEGIN_RUN,
    Action.VERIFY_BUNDLE,
    Action.LOAD_PLANE,
    Action.CONNECT_PLANE,
    Action.RESTORE_INDEX,
    Action.RESTORE_SPARE_POOL,
    Action.RESTORE_LEDGER,
    Action.RESTORE_CURSOR,
    Action.START_PUMPS,
)
NARROW = frozenset({Action.TAKE_CUT, Action.COPY_POLICY, Action.SAVE_UNIT})
"""Stops of a save that the full window does not have."""
FULL = frozenset(SAVE_STOPS[: SAVE_STOPS.index(Action.SAVE_PLANE)]) - NARROW | {Action.CLOSE_CUT}
"""Stops of a save that the narrow cut does not have."""


def _save_without(stops: frozenset[Action]) -> tuple[Action, ...]:
    kept = (stop for stop in SAVE_STOPS if stop not in stops)
    return (Action.REQUEST_CUT, *kept, Action.PRUNE_BUNDLES)


SAVE = _save_without(NARROW)
NARROW_SAVE = _save_without(FULL)
OF_A_GROUP = (
    Action.ABORT_STALE,
    Action.LAUNCH_GROUP,
    Action.BEGIN_COMMIT,
    Action.STORE_ROW,
    Action.PUT_ROWS,
    Action.COMMIT_GROUP,
    Action.DROP_GROUP,
    Action.SUBSTITUTE_GROUP,
)
ALONE = (
    *START,
    Action.RAISE_EPOCH,
    Action.RESERVE_BATCH,
    Action.FILL_SPARE_POOL,
    Action.DRAIN_SPARE_POOL,
    Action.OPEN_GATE,
    Action.COMMIT_ADMISSION,
    Action.EVICT_GROUPS,
    Action.SELECT_GROUPS,
    Action.WRITE_ADVANTAGES,
    Action.TRAIN_STEP,
    Action.CLEAR_ROWS,
    Action.RAISE_VERSION,
    Action.SYNC_WEIGHTS,
)


def of(action: Action, group: Value | None = None, **more: Value) -> ActionCall:
    return ActionCall(action, {**({} if group is None else {"group": group}), **more})


def bounds(**changes: object) -> Bounds:
    """Two batches of one prompt in one epoch."""
    return Bounds(**{"batches": 2, "per_epoch": 2, **changes})  # type: ignore[arg-type]


class Script:
    """A stepper, and what it has done."""

    def __init__(self, directory: Path, **changes: object) -> None:
        self.bounds = bounds(**changes)
        self.stepper = Stepper(self.bounds, directory)
        self.done: list[ActionCall] = []
        self.states: list[dict[str, Value]] = [self.stepper.state()]

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *_: object) -> None:
        self.stepper.close()

    @property
    def names(self) -> list[str]:
        return [call.name for call in self.done]

    @property
    def state(self) -> dict[str, Value]:
        return self.states[-1]

    @property
    def everything_trained_once(self) -> bool:
        return self.state["trained"] == Function(dict.fromkeys(self.bounds.groups, 1))

    def do(
        self, action: Action, group: Value | None = None, gives_up: bool = False, **more: Value
    ) -> dict[str, Value]:
        """One action; returns the state after it."""
        call = of(action, group, **more)
        self.stepper.do(call, gives_up=gives_up)
        self.done.append(call)
        self.states.append(self.stepper.state())
        return self.state

    def go(self, until: Callable[[Script], bool], without: tuple[Action, ...] = ()) -> Script:
        """Do the first action that is possible, again and again; of saves those that are due."""
        while not until(self):
            for action, group in self._options():
                if action not in without and self._tried(action, group):
                    break
            else:
                raise AssertionError(f"nothing is possible after {self.names[-5:]}")
        return self

    def to(self, action: Action, without: tuple[Action, ...] = ()) -> Script:
        """Go on until such an action has been done."""
        before = self.names.count(action)
        return self.go(lambda script: script.names.count(action) > before, without)

    def start(self) -> Script:
        return self.to(Action.START_PUMPS).to(Action.SYNC_WEIGHTS)

    def save(self) -> Script:
        """A save from its request to its end."""
        for action in self._save:
            assert self._tried(action, None), f"{action} is not possible"
        return self

    @property
    def _save(self) -> tuple[Action, ...]:
        return NARROW_SAVE if self.bounds.narrow else SAVE

    def _options(self) -> Iterator[tuple[Action, Value | None]]:
        incarnation = self.stepper.incarnation
        if incarnation is not None and incarnation.stands.at(Action.REQUEST_CUT):
            yield Action.REQUEST_CUT, None
        for action in (Action.FLUSH_DEFERRED, *self._save[1:], *ALONE):
            yield action, None
        for prompt in self.bounds.groups:
            for action in OF_A_GROUP:
                yield action, prompt

    def _tried(self, action: Action, group: Value | None) -> bool:
        try:
            if action is Action.SUBSTITUTE_GROUP:
                spares = self.state["pool"]
                assert isinstance(spares, frozenset)
                for spare in sorted(spares, key=repr)[:1]:
                    self.do(action, group, substitute=spare)
                    return True
                return False
            if action in {Action.STORE_ROW, Action.SAVE_UNIT}:
                return any(self._stored(action, group, unit) for unit in self.bounds.units)
            self.do(action, group)
        except NotEnabledError:
            return False
        return True

    def _stored(self, action: Action, group: Value | None, unit: Value) -> bool:
        try:
            self.do(action, group, unit=unit)
        except NotEnabledError:
            return False
        return True

    def finish(self) -> Script:
        """To the end of the run."""

        def ended(script: Script) -> bool:
            incarnation = script.stepper.incarnation
            run = None if incarnation is None else incarnation.run
            return run is not None and run.done()

        self.go(ended)
        self.do(Action.END_RUN)
        return self


def everything(root: Path) -> list[Script]:
    """Runs to the end that together do every action."""
    with Script(root / "spares", batches=3, per_epoch=3, spare_mark=1) as spares:
        spares.start().to(Action.FILL_SPARE_POOL).to(Action.LAUNCH_GROUP)
        spares.do(Action.FAIL_GROUP, (1, 1), gives_up=True)
        spares.to(Action.SUBSTITUTE_GROUP).to(Action.PUT_ROWS)
        spares.do(Action.ROLLBACK_GROUP, spares.done[-1].arguments["group"])
        spares.finish()
    with Script(root / "losses", batches=3, per_epoch=3, spare_mark=1) as losses:
        losses.start().to(Action.LAUNCH_GROUP, without=(Action.FILL_SPARE_POOL,))
        losses.do(Action.FAIL_GROUP, (1, 1), gives_up=True)
        losses.do(Action.DROP_GROUP, (1, 1))
        losses.to(Action.SYNC_WEIGHTS)
        for action in (Action.REQUEST_CUT, Action.OPEN_CUT, Action.FAIL_SAVE):
            losses.do(action)
        losses.to(Action.COMMIT_GROUP).save().do(Action.CRASH)
        losses.to(Action.DRAIN_SPARE_POOL).finish()
    with Script(root / "stale", batches=3, per_epoch=3, sampler="windowed", window=0) as stale:
        stale.start().go(
            lambda script: script.names.count(Action.LAUNCH_GROUP) == 3,
            without=(Action.BEGIN_COMMIT,),
        )
        for prompt in ((1, 1), (2, 1)):
            for action in (Action.BEGIN_COMMIT, Action.PUT_ROWS, Action.COMMIT_GROUP):
                stale.do(action, prompt)
        stale.finish()
    with Script(root / "narrow", narrow=True) as narrow:
        beside_a_save(narrow)
        narrow.finish()
    return [spares, losses, stale, narrow]


def beside_a_save(script: Script) -> dict[str, Value]:
    """A step is trained and cleared while a narrow save writes; returns the state of its cut."""
    script.start().to(Action.SYNC_WEIGHTS).to(Action.COMMIT_GROUP)
    for action in (Action.REQUEST_CUT, Action.TAKE_CUT, Action.COPY_POLICY, Action.SAVE_PLANE):
        script.do(action)
    cut = script.state
    script.to(Action.CLEAR_ROWS, without=(Action.SAVE_UNIT, Action.WRITE_POLICY))
    return cut
