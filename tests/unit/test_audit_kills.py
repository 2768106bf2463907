"""A run is killed wherever it announces an action, resumed from its disk alone, and audited."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cutlock.alphabet import Action
from cutlock.audit import Audit
from cutlock.bundle.publication import latest
from cutlock.cli.run import NEVER_ANNOUNCED
from cutlock.controller.assembly import build_prompts
from cutlock.controller.local import build_local
from cutlock.errors import BundleNotFoundError
from cutlock.run.config import RunConfig, parse_config
from cutlock.run.directory import RunDirectory
from cutlock.run.restore import verify_for_resume
from cutlock.samplers import SAMPLER_NAMES
from cutlock.stops import NO_STOPS, StopPoints
from tests.support.local_runs import (
    Camera,
    Run,
    SlowUnits,
    Trouble,
    in_one_thread,
    prompt_ids,
    tiny_config,
)

PROMPTS = prompt_ids(tiny_config())


@dataclass(frozen=True)
class Situation:
    """A configuration with what goes wrong in it; `same_steps` if every resume trains alike."""

    name: str
    changes: dict[str, Any]
    trouble: Trouble = field(default_factory=Trouble)
    same_steps: bool = False
    slow_units: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def config(self) -> RunConfig:
        return tiny_config(**{"checkpoint": {"every": 2, "keep": 2}, **self.changes})

    def create(self, root: Path) -> Run:
        run = Run.create(root, self.config, self.trouble)
        if self.slow_units:
            run.steps = SlowUnits()
        return run


SAMPLERS = [
    Situation(name, {"sampler": {"name": name}}, same_steps=name == "in_order")
    for name in SAMPLER_NAMES
]
FAILING = {
    "buffer": {"spare_prompts": 2},
    "failures": {"attempts": 2, "drop_budget": 4},
}
TROUBLES = [
    *(
        Situation(
            f"{name} with spares and failures",
            {**FAILING, "sampler": {"name": name}},
            Trouble(failing=frozenset(PROMPTS[1:2])),
        )
        for name in SAMPLER_NAMES
    ),
    Situation(
        "drops without spares",
        {"failures": {"attempts": 1, "drop_budget": 4}},
        Trouble(failing=frozenset(PROMPTS[:2])),
    ),
    Situation("no rows", {"checkpoint": {"every": 2, "rows": False}}, same_steps=True),
    Situation(
        "stale in flight",
        {"sampler": {"name": "windowed", "window": 0}, "buffer": {"capacity": 6}},
        Trouble(slow=frozenset(PROMPTS[:1])),
    ),
    Situation(
        "broken puts",
        {"failures": {"attempts": 3}},
        Trouble(broken_puts=frozenset({2, 3, 6})),
        same_steps=True,
    ),
    Situation(
        "broken saves",
        {"checkpoint": {"every": 1, "keep": 2}},
        Trouble(broken_saves=frozenset({2, 3, 5})),
        same_steps=True,
    ),
]
SITUATIONS = [*SAMPLERS, *TROUBLES]


def narrow(situation: Situation) -> Situation:
    """The same, saved by narrow cuts of which the units write their rows slowly."""
    checkpoint = {"every": 1, "keep": 2, **situation.changes.get("checkpoint", {})}
    changes = {**situation.changes, "checkpoint": {**checkpoint, "cut": "narrow"}}
    return replace(situation, name=f"{situation}, narrow", changes=changes, slow_units=True)


NARROW = [narrow(situation) for situation in SITUATIONS]
SOME_NARROW = (SAMPLERS[3], TROUBLES[0], TROUBLES[5], TROUBLES[-1])
"""What the default suite takes of them."""


class Undisturbed:
    """What a situation does when nobody kills it."""

    def __init__(self, situation: Situation, root: Path) -> None:
        run = situation.create(root)
        camera = Camera(run, root, lambda number, action, before: False)
        run.first(situation.config, camera)
        assert_all_accounted(run.audit(), restarts=0)
        assert_trained(run)
        self.announced = camera.announced
        self.steps = run.trainer.steps


def assert_all_accounted(audit: Audit, *, restarts: int) -> None:
    assert audit.problems == ()
    assert audit.ok
    assert (audit.lost, audit.trained_twice, audit.pending, audit.unread) == (0, 0, 0, 0)
    assert audit.trained_once + audit.dropped == audit.prompts == 2 * len(PROMPTS)
    assert {key for key, fate in audit.fates.items() if fate == "dropped"} == {*audit.drop_reasons}
    assert all(audit.drop_reasons.values())
    assert audit.restarts == restarts


def assert_trained(run: Run) -> None:
    """The audit's account is what the trainer itself has been trained on."""
    trained = [key for key, fate in run.audit().fates.items() if fate == "trained"]
    assert run.trainer.trained == Counter(trained)


def resume_to_the_end(run: Run, situation: Situation, steps: list[tuple[int, list[str]]]) -> None:
    """Audit what a kill left, resume, audit again."""
    left = run.audit()
    assert left.problems == ()
    assert (left.lost, left.trained_twice) == (0, 0)
    assert left.trained_once + left.dropped + left.pending + left.unread == left.prompts
    try:
        plan = run.plan()
    except BundleNotFoundError:
        assert (left.bundles, left.steps, left.unread) == ((), 0, left.prompts)
        return
    run.resume(plan)
    assert_all_accounted(run.audit(), restarts=left.restarts + (not plan.finished))
    if not plan.finished:
        assert_trained(run)
        if situation.same_steps:
            assert run.trainer.steps == steps


Point = tuple[Action, int]
"""An action, and how often it was announced before."""


def representative(announced: list[Action]) -> set[Point]:
    """Of each action the first announcement, the first with a bundle, and the last."""
    bundle = announced.index(Action.PRUNE_BUNDLES)
    chosen: set[Point] = set()
    for action in {*announced}:
        before, in_all = announced[:bundle].count(action), announced.count(action)
        chosen |= {(action, 0), (action, min(before, in_all - 1)), (action, in_all - 1)}
    return chosen


def kill_everywhere(situation: Situation, root: Path, *, every_announcement: bool) -> None:
    undisturbed = Undisturbed(situation, root / "undisturbed")
    points = None if every_announcement else representative(undisturbed.announced)
    run = situation.create(root / "run")
    camera = Camera(
        run,
        root / "killed",
        lambda number, action, before: points is None or (action, before) in points,
    )
    run.first(situation.config, camera)
    assert {kill.action for kill in camera.kills} == {*undisturbed.announced}
    for kill in camera.kills:
        resume_to_the_end(kill.run, situation, undisturbed.steps)


def of_narrow_saves() -> list[Any]:
    """Those that the default suite leaves out are behind `long`."""
    shown = {narrow(situation).name for situation in SOME_NARROW}
    return [
        pytest.param(one, id=str(one), marks=() if one.name in shown else pytest.mark.long)
        for one in NARROW
    ]


@pytest.mark.parametrize("situation", SITUATIONS, ids=str)
def test_a_kill_at_any_action_loses_and_repeats_nothing(
    ram_path: Path, situation: Situation
) -> None:
    kill_everywhere(situation, ram_path, every_announcement=False)


@pytest.mark.parametrize("situation", of_narrow_saves())
def test_a_kill_at_any_action_beside_a_narrow_save_loses_and_repeats_nothing(
    ram_path: Path, situation: Situation
) -> None:
    kill_everywhere(situation, ram_path, every_announcement=False)


def test_the_run_goes_on_for_whole_steps_while_a_narrow_save_is_written(ram_path: Path) -> None:
    """Or the kills beside a narrow save would show nothing."""
    situation = narrow(SAMPLERS[3])
    camera = Camera(run := situation.create(ram_path / "run"), ram_path, only(0))
    run.first(situation.config, camera)
    announced = camera.announced
    cuts = [place for place, action in enumerate(announced) if action is Action.TAKE_CUT]
    ends = [place for place, action in enumerate(announced) if action is Action.PUBLISH_BUNDLE]
    beside = [{*announced[cut:end]} for cut, end in zip(cuts, ends, strict=True)]
    whole = {Action.SELECT_GROUPS, Action.TRAIN_STEP, Action.CLEAR_ROWS, Action.FLUSH_DEFERRED}
    assert sum(whole <= actions for actions in beside) >= 2


OF_SAVE_AND_STEP = {Action.WRITE_POLICY, Action.CLEAR_ROWS}


@pytest.mark.parametrize("situation", [narrow(SAMPLERS[3]), SAMPLERS[3]], ids=str)
def test_a_run_is_resumed_under_the_other_mode_than_it_was_saved_with(
    ram_path: Path, situation: Situation
) -> None:
    steps = Undisturbed(situation, ram_path / "undisturbed").steps
    run = situation.create(ram_path / "run")
    camera = Camera(
        run,
        ram_path / "killed",
        lambda number, action, before: before > 1 and action in OF_SAVE_AND_STEP,
    )
    run.first(situation.config, camera)
    raw = situation.config.plain()
    other = "full" if raw["checkpoint"]["cut"] == "narrow" else "narrow"
    raw["checkpoint"]["cut"] = other
    assert {kill.action for kill in camera.kills} == OF_SAVE_AND_STEP
    for kill in camera.kills:
        plan = kill.run.plan(config=parse_config(raw))
        kill.run.resume(plan)
        assert_all_accounted(kill.run.audit(), restarts=int(not plan.finished))
        assert plan.finished or kill.run.trainer.steps == steps


@pytest.mark.long
@pytest.mark.parametrize("situation", [*SITUATIONS, *NARROW], ids=str)
def test_a_kill_at_any_announcement_loses_and_repeats_nothing(
    ram_path: Path, situation: Situation
) -> None:
    kill_everywhere(situation, ram_path, every_announcement=True)


def test_the_situations_announce_every_action_that_the_runtime_announces(ram_path: Path) -> None:
    announced: set[Action] = set()
    for situation in (*SITUATIONS, NARROW[3]):
        run = situation.create(ram_path / situation.name)
        camera = Camera(run, ram_path, lambda number, action, before: False)
        run.first(situation.config, camera)
        announced |= {*camera.announced}
    resumed = SITUATIONS[0].create(ram_path / "resumed")
    camera = Camera(resumed, ram_path, lambda number, action, before: number == 60)
    resumed.first(SITUATIONS[0].config, camera)
    again = Camera(camera.kills[0].run, ram_path, lambda number, action, before: False)
    camera.kills[0].run.resume(stops=again)
    assert announced | {*again.announced} == {*Action} - NEVER_ANNOUNCED


def test_a_kill_at_any_announcement_of_a_restore_changes_nothing(ram_path: Path) -> None:
    situation = TROUBLES[0]
    run = situation.create(ram_path / "run")
    first = Camera(
        run,
        ram_path / "first",
        lambda number, action, before: (action, before) == (Action.TRAIN_STEP, 3),
    )
    run.first(situation.config, first)
    (killed,) = first.kills
    bundle = killed.run.plan().bundle.name
    second = Camera(
        killed.run,
        ram_path / "second",
        lambda number, action, before: action.startswith("Restore"),
    )
    killed.run.resume(stops=second)
    assert len(second.kills) == 4
    for kill in second.kills:
        assert kill.run.plan().bundle.name == bundle
        assert kill.run.audit().restarts == 1
        resume_to_the_end(kill.run, situation, [])
        assert kill.run.audit().restarts == 2


SCHEDULES = 100


def only(at: int) -> Callable[[int, Action, int], bool]:
    return lambda number, action, before: number == at


def test_kills_in_a_row_lose_and_repeat_nothing(ram_path: Path) -> None:
    chance = random.Random(20240)
    restarted = Counter[int]()
    steps = [Undisturbed(one, ram_path / one.name).steps for one in SITUATIONS]
    for number in range(SCHEDULES):
        situation = SITUATIONS[number % len(SITUATIONS)]
        run = situation.create(ram_path / str(number))
        for start in range(2):
            at = chance.randint(50 if start == 0 else 1, 100)
            camera = Camera(run, ram_path / f"{number}-{start}", only(at))
            if start == 0:
                run.first(situation.config, camera)
            elif not run.plan().finished:
                run.resume(stops=camera)
            run = camera.kills[0].run if camera.kills else run
        resume_to_the_end(run, situation, steps[number % len(SITUATIONS)])
        restarted[run.audit().restarts] += 1
    assert restarted[2] > SCHEDULES // 2


# The same with the shipped workers, and with a controller that dies of an exception.


class Killed(BaseException):
    """Nothing in the runtime knows it."""


class Dies:
    """Raises at the n-th announcement of an action."""

    def __init__(self, action: Action, count: int) -> None:
        self._action = action
        self._left = count

    async def reach(self, action: Action, /, **where: object) -> None:
        if action is self._action:
            self._left -= 1
            if not self._left:
                raise Killed


@pytest.fixture
def one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def start_shipped(directory: RunDirectory, config: RunConfig, stops: StopPoints) -> None:
    async def run() -> None:
        bundles = [*directory.root.glob("step_*")]
        plan = verify_for_resume(latest(directory.root), build_prompts) if bundles else None
        controller = await build_local(directory, config, plan, stops=stops)
        await controller.run()

    in_one_thread(run())


@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.parametrize(
    ("sampler", "action"),
    [
        ("windowed", Action.COMMIT_GROUP),
        ("ready_first", Action.TRAIN_STEP),
        ("weight_fifo", Action.SAVE_PLANE),
        ("in_order", Action.PUBLISH_BUNDLE),
    ],
)
def test_the_shipped_workers_come_back_from_a_failure_as_from_a_kill(
    ram_path: Path, sampler: str, action: Action
) -> None:
    config = tiny_config(sampler={"name": sampler})
    directory = RunDirectory(ram_path / "run")
    directory.create(config, build_prompts(config))
    with pytest.raises(Killed):
        start_shipped(directory, config, Dies(action, 3))
    run = Run(directory)
    assert run.audit().ended == "Killed: "
    assert run.audit().problems == ()
    start_shipped(directory, config, NO_STOPS)
    assert_all_accounted(run.audit(), restarts=1)


@pytest.mark.parametrize("situation", [SAMPLERS[3], TROUBLES[0]], ids=str)
def test_a_failure_at_any_action_loses_and_repeats_nothing(
    ram_path: Path, situation: Situation
) -> None:
    undisturbed = Undisturbed(situation, ram_path / "undisturbed")
    announced = undisturbed.announced
    bundle = announced.index(Action.PRUNE_BUNDLES)
    for action in sorted({*announced[bundle:]}):
        run = situation.create(ram_path / action.snake)
        with pytest.raises(Killed):
            run.first(situation.config, Dies(action, announced[:bundle].count(action) + 1))
        ended = run.audit().ended
        assert ended is not None
        assert ended.startswith("Killed")
        resume_to_the_end(run, situation, undisturbed.steps)
