from __future__ import annotations

from pathlib import Path

import pytest

from cutlock.alphabet import Action
from cutlock.bond.walk import StatesDifferError, Walk
from cutlock.conformance.replay.walk import gives_up, replay
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.errors import DivergenceError
from tests.replay.script import Script, bounds, everything, of


def walk_of(script: Script) -> Walk:
    return list(zip(script.done, script.states[1:], strict=True))


def test_a_walk_that_was_done_is_done_again(ram_path: Path) -> None:
    for number, script in enumerate(everything(ram_path)):
        with Stepper(script.bounds, ram_path / f"again {number}") as stepper:
            replay(walk_of(script), stepper)


def test_actions_alone_can_be_replayed(ram_path: Path) -> None:
    with Script(ram_path / "first") as script:
        script.finish()
    calls: Walk = [(call, None) for call in script.done]
    with Stepper(script.bounds, ram_path / "again") as stepper:
        replay(calls, stepper)
        assert stepper.state() == script.state


def test_a_state_that_differs_names_step_action_variables_and_cause(ram_path: Path) -> None:
    with Script(ram_path / "first") as script:
        script.start().to(Action.RESERVE_BATCH)
    steps = walk_of(script)
    call, state = steps[-1]
    wrong = [*steps[:-1], (call, {**state, "pos": 9})]
    with (
        Stepper(script.bounds, ram_path / "again") as stepper,
        pytest.raises(StatesDifferError) as caught,
    ):
        replay(wrong, stepper)
    error = caught.value
    assert (error.number, error.call, error.variables) == (len(steps), call, frozenset({"pos"}))
    assert str(error).splitlines() == [
        f"step {len(steps)}, ReserveBatch(): specification and code differ",
        "  pos: spec 9, code 1",
        "  likely: the loader's position and what was done with its batch differ.",
    ]


def test_an_action_that_the_code_does_not_do_is_a_divergence(ram_path: Path) -> None:
    with (
        Stepper(bounds(), ram_path / "run") as stepper,
        pytest.raises(DivergenceError, match=r"step 1, StartPumps\(\): the code does not do it"),
    ):
        replay([(of(Action.START_PUMPS), {})], stepper)


def test_a_lost_group_is_given_up_if_that_comes_before_a_crash() -> None:
    fail, launch = of(Action.FAIL_GROUP, (1, 1)), of(Action.LAUNCH_GROUP, (1, 1))
    drop, other = of(Action.DROP_GROUP, (1, 1)), of(Action.DROP_GROUP, (2, 1))
    substitute = of(Action.SUBSTITUTE_GROUP, (1, 1), substitute=(2, 1))
    crash = of(Action.CRASH)
    assert gives_up([fail, other, drop], 0)
    assert gives_up([fail, substitute], 0)
    assert not gives_up([fail, launch, drop], 0)
    assert not gives_up([fail, crash, drop], 0)
    assert not gives_up([fail], 0)
    assert not gives_up([launch, drop], 0)
