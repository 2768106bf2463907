from __future__ import annotations

from pathlib import Path

import pytest

from cutlock.alphabet import Action
from cutlock.bond.bond import Setting
from cutlock.bond.subject import State
from cutlock.bond.walk import StatesDifferError, Walk, take
from cutlock.conformance.protocol import CUTLOCK, gives_up
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.errors import DivergenceError
from tests.replay.script import Script, bounds, everything, of


def walk_of(script: Script) -> Walk:
    return list(zip(script.done, script.states[1:], strict=True))


def taken(steps: Walk, bounds: Bounds) -> State:
    """Do a walk on a run, and look at the run."""
    calls = tuple(call for call, _ in steps)
    with CUTLOCK.begin(Setting(model="a walk", constants=bounds.constants, calls=calls)) as run:
        take(steps, run, explain=run.explain)
        return run.state()


def test_a_walk_that_was_done_is_done_again(ram_path: Path) -> None:
    for script in everything(ram_path):
        taken(walk_of(script), script.bounds)


def test_actions_alone_can_be_replayed(ram_path: Path) -> None:
    with Script(ram_path / "first") as script:
        script.finish()
    assert taken([(call, None) for call in script.done], script.bounds) == script.state


def test_a_state_that_differs_names_step_action_variables_and_cause(ram_path: Path) -> None:
    with Script(ram_path / "first") as script:
        script.start().to(Action.RESERVE_BATCH)
    steps = walk_of(script)
    call, state = steps[-1]
    wrong = [*steps[:-1], (call, {**state, "pos": 9})]
    with pytest.raises(StatesDifferError) as caught:
        taken(wrong, script.bounds)
    error = caught.value
    assert (error.number, error.call, error.variables) == (len(steps), call, frozenset({"pos"}))
    assert str(error).splitlines() == [
        f"step {len(steps)}, ReserveBatch(): specification and code differ",
        "  pos: spec 9, code 1",
        "  likely: the loader's position and what was done with its batch differ.",
    ]


def test_an_action_that_the_code_does_not_do_is_a_divergence() -> None:
    with pytest.raises(DivergenceError, match=r"step 1, StartPumps\(\): the code does not do it"):
        taken([(of(Action.START_PUMPS), {})], bounds())


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
