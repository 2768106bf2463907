"""Whole runs whose tasks are cancelled at every await, stopped, and resumed to their end."""

from __future__ import annotations

import asyncio
import gc
import inspect
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cutlock.alphabet import Action
from cutlock.errors import BundleNotFoundError
from cutlock.events import read_log
from cutlock.run.config import RunConfig
from tests.support.cancelling import Books, Pauses
from tests.support.local_runs import Run, Trouble, tiny_config
from tests.support.loop import StepLoop
from tests.support.tally import tally

STALL_TURNS = 150
"""After so many turns without a record, a run whose pump was taken away is stopped."""

CONFIGS = {
    cut: tiny_config(
        epochs=1,
        buffer={"spare_prompts": 1},
        failures={"attempts": 2, "drop_budget": 1},
        checkpoint={"every": 1, "keep": 2, "cut": cut},
    )
    for cut in ("full", "narrow")
}
TROUBLE = Trouble(broken_puts=frozenset({2}))

Await = tuple[str, ...]
"""The task, and the lines at which it and what it awaits stand."""


class RunLoop(StepLoop):
    """One run, whose tasks can be found by name."""

    def __init__(self, root: Path, config: RunConfig) -> None:
        super().__init__()
        self.config = config
        self.run = Run.create(root, config, TROUBLE)
        pauses = Pauses()
        self.controller, self.events = self.do(self.run._build(config, None, pauses))
        self.engine = self.controller.engine
        self.store = self.engine.state.plane._plane._store  # type: ignore[attr-defined]
        pauses.on, self.store.steps = True, pauses
        self.task = self.loop.create_task(self.controller.run(), name="run")
        self.turn()

    def own_tasks(self) -> dict[str, asyncio.Task[Any]]:
        """The run's own tasks that have begun, by name."""
        found = {}
        for task in self.tasks:
            name = task.get_name()
            if name.startswith(("run", "rollout", "train", "save")) and _begun(task):
                found[name] = task
        return found

    def stop(self) -> None:
        """Wait for the end of the run; end it when nothing moves any more."""
        seen, since, turn = -1, 0, 0
        while not self.task.done():
            self.turn()
            turn += 1
            if self.events.count != seen:
                seen, since = self.events.count, turn
            elif turn - since == STALL_TURNS:
                self.task.cancel()
            assert turn - since < 3 * STALL_TURNS, f"no end: {self.tasks}"

    def check(self) -> None:
        """The run has ended as it may, and left nothing behind but its directory."""
        self.events.close()
        assert not self.tasks, f"still at work when the run has ended: {self.tasks}"
        assert not self.loop.mishaps
        records = list(read_log(self.events.path))
        assert records[-1].action == Action.END_RUN
        prompts = self.engine.state.prompts
        Books(self.controller, self.store, records, prompts).check()


def _begun(task: asyncio.Task[Any]) -> bool:
    coroutine: Any = task.get_coro()
    return coroutine.cr_await is not None


_KINDS = ("cr", "gi", "ag")
_AWAITED = ("cr_await", "gi_yieldfrom", "ag_await")


def await_of(name: str, task: asyncio.Task[Any]) -> Await:
    """Where a task stands; the same for all rollouts."""
    lines, at = list[str](), task.get_coro()
    while True:
        if type(at).__name__.startswith("async_generator_"):
            # The step of an asynchronous generator, which alone knows its generator.
            at = next(filter(inspect.isasyncgen, gc.get_referents(at)))
        frame = next(filter(None, (getattr(at, f"{kind}_frame", None) for kind in _KINDS)), None)
        if frame is None:
            break
        lines.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        at = next(filter(None, (getattr(at, name, None) for name in _AWAITED)), None)
    return (name.split(" reverse")[0].split(" of step")[0], *lines)


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    ram = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=ram if ram.is_dir() else None) as made:
        yield Path(made)


@pytest.fixture(scope="module", params=CONFIGS)
def config(request: pytest.FixtureRequest) -> RunConfig:
    return CONFIGS[request.param]


@pytest.fixture(scope="module")
def moments(memory: Path, config: RunConfig) -> dict[Await, list[tuple[int, str]]]:
    """Every await of the run's tasks: in which turns a task stands there, and its name."""
    found: dict[Await, list[tuple[int, str]]] = {}
    with RunLoop(memory / f"whole-{config.checkpoint.cut}", config) as run:
        turn = 0
        while not run.task.done():
            for name, task in run.own_tasks().items():
                found.setdefault(await_of(name, task), []).append((turn, name))
            run.turn()
            turn += 1
        assert run.task.result().ended == "exhausted"
        run.check()
        assert run.run.audit().ok
    return found


def resumed(run: Run, config: RunConfig) -> None:
    """Resume to the end, from the last bundle or else from nothing; and audit."""
    try:
        plan = run.plan()
    except BundleNotFoundError:
        run.first(config)
    else:
        run.resume(plan)
    audit = run.audit()
    assert audit.ok, audit.problems
    assert (audit.lost, audit.trained_twice) == (0, 0)
    assert audit.trained_once + audit.dropped == audit.prompts


TASKS = ("run", "rollouts", "rollout")

AWAITS = {
    "full": {"rollouts": 8, "run": 38, "rollout": 8, "turns": 45, "saves": 20},
    "narrow": {"rollouts": 7, "run": 20, "rollout": 7, "turns": 44, "saves": 18},
}
"""How many points there are at least; with fewer, a test has shrunk."""


class Trial:
    """One run in which something is done to it in some turns; then it is stopped and resumed."""

    def __init__(self, root: Path, config: RunConfig) -> None:
        self._root = root
        self._config = config
        self.cut = config.checkpoint.cut

    def __call__(self, events: dict[int, Callable[[RunLoop], object]]) -> BaseException | None:
        """Returns the error that the run has ended with, if it was not cancelled."""
        with RunLoop(self._root, self._config) as run:
            for turn in range(max(events) + 1):
                if turn in events:
                    events[turn](run)
                run.turn()
            run.stop()
            run.check()
            error = None if run.task.cancelled() else run.task.exception()
        resumed(run.run, run.config)
        shutil.rmtree(self._root)
        return error


@pytest.fixture
def trial(memory: Path, config: RunConfig) -> Trial:
    return Trial(memory / "trial", config)


def cancel(name: str) -> Callable[[RunLoop], object]:
    def event(run: RunLoop) -> None:
        # The task may be at its end already when it is cancelled again.
        if name in run.own_tasks():
            run.own_tasks()[name].cancel()

    return event


def fail(run: RunLoop) -> None:
    """A rollout raises what ends the run."""

    async def rollout() -> None:
        raise RuntimeError("a rollout has failed")

    loop: Any = run.own_tasks()["rollouts"].get_coro()
    loop.cr_frame.f_locals["tasks"].create_task(rollout())


def times(first: int, name: str, count: int) -> dict[int, Callable[[RunLoop], object]]:
    return {first + number: cancel(name) for number in range(count)}


@pytest.mark.parametrize("kind", TASKS)
def test_a_task_that_is_cancelled_at_any_await_costs_the_run_nothing_but_time(
    trial: Trial, moments: dict[Await, list[tuple[int, str]]], kind: str
) -> None:
    points = [when[0] for at, when in moments.items() if at[0] == kind]
    for turn, name in points:
        assert trial(times(turn, name, 1)) is None, f"{name} in turn {turn}"
    assert len(points) >= AWAITS[trial.cut][kind]
    tally("cancellations tried", len(points))


def test_a_run_that_is_cancelled_twice_in_a_row_wherever_its_tasks_stand_is_resumed(
    trial: Trial, moments: dict[Await, list[tuple[int, str]]]
) -> None:
    turns = sorted({when[0][0] for when in moments.values()})
    for turn in turns:
        assert trial(times(turn, "run", 2)) is None, f"in turn {turn}"
    assert len(turns) >= AWAITS[trial.cut]["turns"]
    tally("cancellations tried", 2 * len(turns))


def test_a_run_whose_rollout_fails_wherever_a_save_stands_is_resumed(
    trial: Trial, moments: dict[Await, list[tuple[int, str]]]
) -> None:
    pumping = {turn for at, when in moments.items() if at[0] == "rollouts" for turn, _ in when}
    saving = [
        min(pumping & {turn for turn, _ in when})
        for at, when in moments.items()
        if "Saver._save" in str(at) and pumping & {turn for turn, _ in when}
    ]
    for turn in saving:
        assert str(trial({turn: fail})) == "a rollout has failed", f"in turn {turn}"
    assert len(saving) >= AWAITS[trial.cut]["saves"]
    tally("cancellations tried", len(saving))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("kind", TASKS)
def test_a_task_that_is_cancelled_in_any_turn_costs_the_run_nothing_but_time(
    trial: Trial, moments: dict[Await, list[tuple[int, str]]], kind: str, count: int
) -> None:
    points = {point for at, when in moments.items() if at[0] == kind for point in when}
    for turn, name in sorted(points):
        assert trial(times(turn, name, count)) is None, f"{name} in turn {turn}"
    tally("cancellations tried", len(points))
