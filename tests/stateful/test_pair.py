from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from cutlock.alphabet import Action
from cutlock.conformance.free.moves import (
    CANCEL_COMMIT,
    CANCEL_COMMIT_TWICE,
    MACHINE_MOVES,
    refusal_of,
)
from cutlock.conformance.free.pair import LOSSES, Pair, constants_of_trace, trace_model
from cutlock.conformance.reference.model import Reference
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.errors import ConformanceError, DivergenceError
from cutlock.ledger import Ledger
from cutlock.tlc.action import ActionCall
from cutlock.tlc.itf import Counterexample, from_itf, to_itf
from cutlock.tlc.values import ModelValue
from tests.stateful.regressions import take_again

NEVER = {*LOSSES, Action.FAIL_SAVE.value, Action.CRASH.value}
SMALL = Bounds(batches=2, per_epoch=2, members=(1, 2), window=1, max_failures=3)


class Run:
    """A pair that does the first option, again and again."""

    def __init__(self, root: Path, bounds: Bounds = SMALL, crashes: int = 1) -> None:
        self.stepper = Stepper(bounds, root / "run", moves=MACHINE_MOVES)
        self.pair = Pair(Reference(bounds, max_crashes=crashes), self.stepper)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.stepper.close()

    def to(self, action: str, without: Iterable[str] = ()) -> ActionCall:
        while True:
            options = [c for c in self.pair.options() if c.name not in (*NEVER, *without)]
            self.pair.do(options[0])
            if options[0].name == action:
                return options[0]

    def choose(self, name: str, like: Callable[[ActionCall], bool] = lambda _: True) -> ActionCall:
        return next(c for c in self.pair.options() if c.name == name and like(c))


def test_a_run_goes_to_its_end_side_by_side(ram_path: Path) -> None:
    with Run(ram_path) as run:
        run.to(Action.END_RUN)
        assert set(run.pair.state.trained.values()) == {1}


@pytest.mark.parametrize("how", [Action.ROLLBACK_GROUP, CANCEL_COMMIT, CANCEL_COMMIT_TWICE])
@pytest.mark.parametrize("stop", [Action.BEGIN_COMMIT, Action.PUT_ROWS])
@pytest.mark.parametrize("gives_up", [False, True])
def test_a_commit_that_fails_or_is_cancelled_is_tried_again_or_given_up(
    ram_path: Path, how: str, stop: str, gives_up: bool
) -> None:
    with Run(ram_path) as run:
        run.to(stop)
        run.pair.do(run.choose(how), gives_up=gives_up)
        follows = {c.name for c in run.pair.options() if c.name in _AFTERWARDS}
        assert follows == {Action.DROP_GROUP if gives_up else Action.LAUNCH_GROUP}
        run.to(Action.END_RUN)
        assert len(run.pair.state.dropped) == gives_up


_AFTERWARDS = {Action.LAUNCH_GROUP, Action.DROP_GROUP, Action.SUBSTITUTE_GROUP}


@pytest.mark.parametrize("sampler", ["ready_first", "in_order"])
def test_a_loss_is_credited_to_no_step_that_has_passed(ram_path: Path, sampler: str) -> None:
    bounds = Bounds(batches=3, per_epoch=3, sampler=sampler, window=1, max_failures=1)
    with Run(ram_path, bounds) as run:
        lost = (1, 1) if sampler == "ready_first" else (2, 1)
        while (chosen := next(iter(selections(run)), None)) is None:
            run.pair.do(next(c for c in run.pair.options() if spares(c, lost)))
        run.pair.do(chosen)
        run.pair.do(run.choose(Action.FAIL_GROUP, lambda c: is_of(c, lost)), gives_up=True)
        run.pair.do(run.choose(Action.DROP_GROUP, lambda c: is_of(c, lost)))
        assert {step: n for step, n in run.pair.state.short.items() if n} == {1: 1}
        run.to(Action.END_RUN)
        assert sum(run.pair.state.trained.values()) == 2


def selections(run: Run) -> list[ActionCall]:
    return [c for c in run.pair.options() if c.name == Action.SELECT_GROUPS]


def is_of(call: ActionCall, group: object) -> bool:
    return call.arguments.get("group") == group


def spares(call: ActionCall, group: object) -> bool:
    """Whether the move leaves that group in generation."""
    return call.name not in NEVER and not (call.name == Action.BEGIN_COMMIT and is_of(call, group))


def test_what_the_spec_does_not_allow_is_refused(ram_path: Path) -> None:
    with Run(ram_path) as run:
        run.to(Action.COMMIT_GROUP)
        for action in Action:
            if f"Refused{action}" in MACHINE_MOVES:
                for call in run.pair.forbidden(action):
                    run.pair.refuse(call)
        run.to(Action.END_RUN)


def test_a_task_that_waits_for_a_door_is_a_temptation(ram_path: Path) -> None:
    with Run(ram_path) as run:
        run.to(Action.BEGIN_COMMIT, without=[Action.REQUEST_CUT])
        run.pair.do(run.choose(Action.REQUEST_CUT))
        tempting = run.pair.tempting()
        assert Action.BEGIN_COMMIT in {call.name for call in tempting}
        for call in tempting:
            run.pair.refuse(call)


def test_a_call_that_is_done_although_it_should_be_refused_is_a_divergence(ram_path: Path) -> None:
    with Run(ram_path) as run:
        run.to(Action.SYNC_WEIGHTS)
        with pytest.raises(DivergenceError, match="RequestCut was done, and the specification"):
            run.pair.refuse(run.choose(Action.REQUEST_CUT))


def test_of_few_places_the_code_says_who_gets_one(ram_path: Path) -> None:
    bounds = Bounds(
        batches=2, per_epoch=2, members=(1, 2, 3), sampler="windowed", window=1, capacity=3
    )
    with Run(ram_path, bounds) as run:
        run.to(Action.COMMIT_GROUP)
        run.to(Action.LAUNCH_GROUP)
        run.to(Action.END_RUN)


def spoilt(root: Path, patch: pytest.MonkeyPatch) -> Counterexample:
    """The trace of a run that a planted fault has ended."""
    patch.setattr(Ledger, "discard", lambda self, slot, group_id: self[group_id])
    with Run(root) as run:
        run.to(Action.PUT_ROWS)
        call = run.choose(Action.ROLLBACK_GROUP)
        run.pair.do(ActionCall(CANCEL_COMMIT, call.arguments))
        run.pair.refuse(ActionCall(Action.BEGIN_RUN.value))
        with pytest.raises(DivergenceError, match="CommitGroup"):
            run.to(Action.END_RUN)
        assert run.pair.walk().splitlines()[-2].endswith(f"{run.pair.steps[-2].action}")
        return run.pair.trace()


def test_a_failure_is_kept_as_a_trace_that_fails_again_until_the_code_is_mended(
    ram_path: Path,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        trace = from_itf(to_itf(spoilt(ram_path / "first", patch)))
        assert Bounds.of(constants_of_trace(trace)) == SMALL
        names = [step.action.name for step in trace.steps]
        assert {"Init", CANCEL_COMMIT, "RefusedBeginRun"} <= set(names)
        with pytest.raises(DivergenceError, match=f"step {len(names) - 1}, CommitGroup"):
            take_again(trace, SMALL)
    take_again(trace, SMALL)


def test_bounds_of_any_kind_are_read_back_from_a_trace() -> None:
    bounds = Bounds(
        batches=4,
        per_epoch=2,
        members=(ModelValue("a"), ModelValue("b")),
        window=2,
        sampler="weight_fifo",
        spare_mark=1,
        max_failures=2,
        units=("u1", "u2"),
    )
    trace = Counterexample(trace_model(bounds), "EqualStates", ())
    assert Bounds.of(constants_of_trace(trace)) == bounds
    with pytest.raises(ConformanceError, match="no record of constants"):
        constants_of_trace(Counterexample("graph_pair", "EqualStates", ()))


def test_a_refusal_has_the_arguments_of_the_call() -> None:
    call = ActionCall(Action.LAUNCH_GROUP.value, {"group": (1, 1)})
    assert refusal_of(call) == ActionCall("RefusedLaunchGroup", {"group": (1, 1)})
