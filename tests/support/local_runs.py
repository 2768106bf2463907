"""Whole runs in one process and one thread, killed by looking at the disk.

All that a killed process leaves is its disk. So a kill is a copy of the run directory, made
while the runtime announces an action: the run itself goes on, one run gives the remains of a
kill at every announcement, and each copy is resumed and audited by itself. With the file
work on the loop's own thread, the copy is exact and every run is the same.

The workers are arithmetic; the trainer notes what it was trained on, which is the witness
that owes nothing to logs and ledgers.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from cutlock.alphabet import Action
from cutlock.audit import Audit, audit_run
from cutlock.bond.turns import InlineExecutor
from cutlock.bundle.publication import latest
from cutlock.controller.assembly import Parts, assemble, build_prompts
from cutlock.controller.core import Controller, RunReport
from cutlock.errors import PlaneError, WorkerError
from cutlock.events import EventLog
from cutlock.plane.base import DataPlane, Fields
from cutlock.plane.memory import (
    NO_STEPS,
    MemoryBootstrap,
    MemoryPlane,
    MemoryStore,
    PlaneStep,
    PlaneSteps,
)
from cutlock.run.config import RunConfig, parse_config
from cutlock.run.directory import RunDirectory
from cutlock.run.restore import ResumePlan, load_plane, verify_for_resume
from cutlock.run.save import RunIdentity
from cutlock.stops import NO_STOPS, StopPoints
from cutlock.workers.base import POLICY_FILES, TRAINER_FILE, Prompt, Rollouts, StepReport
from cutlock.workers.training import FIRST_CHAIN, extend_chain

T = TypeVar("T")


def tiny_config(**changes: Any) -> RunConfig:
    """Ten prompt occurrences in steps of two, saved at every step."""
    raw: dict[str, Any] = {
        "epochs": 2,
        "prompts_per_step": 2,
        "group_size": 2,
        "sampler": {"name": "in_order"},
        "checkpoint": {"every": 1, "cut": "full"},
        "plane": {"kind": "memory"},
        "task": {"prompts": 5, "length": 2, "vocabulary": 3},
        "failures": {"pause_s": 0},
    }
    for name, value in changes.items():
        raw[name] = {**raw.get(name, {}), **value} if isinstance(value, dict) else value
    return parse_config(raw)


def prompt_ids(config: RunConfig) -> list[str]:
    prompts = build_prompts(config)
    return [prompts[position].prompt_id for position in range(len(prompts))]


class LightTrainer:
    """A `Trainer` whose policy is the list of what it was trained on."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self.steps: list[tuple[int, list[str]]] = []
        self.copied: list[tuple[int, list[str]]] = []

    async def train(self, step: int, groups: Mapping[str, Sequence[str]]) -> StepReport:
        keys = [key for rows in groups.values() for key in rows]
        rows = await self._plane.get(keys, ("reward", "advantage"))
        assert len(rows["advantage"]) == len(keys)
        self.steps.append((step, sorted(groups)))
        return StepReport(0.0, 0.5, len(keys), len(groups), 0.0)

    async def weights(self) -> object:
        return len(self.steps)

    async def copy(self) -> tuple[int, str]:
        self.copied = list(self.steps)
        chain = FIRST_CHAIN
        for step, groups in self.copied:
            chain = extend_chain(chain, step, groups)
        return sum(len(groups) for _, groups in self.copied), chain

    async def save(self, directory: Path) -> Sequence[str]:
        for name in POLICY_FILES:
            text = json.dumps(self.copied if name == TRAINER_FILE else name)
            (directory / name).write_text(text)
        return POLICY_FILES

    async def load(self, directory: Path) -> None:
        self.steps = [
            (step, groups) for step, groups in json.loads((directory / TRAINER_FILE).read_text())
        ]

    async def close(self) -> None:
        pass

    @property
    def trained(self) -> Counter[str]:
        return Counter(group for _, groups in self.steps for group in groups)


@dataclass(frozen=True)
class Trouble:
    """What goes wrong in a run."""

    failing: frozenset[str] = frozenset()
    """Prompts whose generation always fails."""
    slow: frozenset[str] = frozenset()
    """Prompts whose generation takes longer than several steps."""
    broken_puts: frozenset[int] = frozenset()
    """Numbers, in each start, of the puts of rollouts that fail after they have stored."""
    broken_saves: frozenset[int] = frozenset()
    """Numbers, in the first start, of the saves that fail inside their cut."""


class LightGenerator:
    """A `Generator` of constant rows; groups take different numbers of turns of the loop."""

    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble

    async def generate(self, prompt: Prompt, *, group_size: int, seed: int) -> Rollouts:
        for _ in range(300 if prompt.prompt_id in self._trouble.slow else seed % 7):
            await asyncio.sleep(0)
        if prompt.prompt_id in self._trouble.failing:
            raise WorkerError(f"no rollout of {prompt.prompt_id}")
        rewards = [float(sibling % 2) for sibling in range(group_size)]
        fields = {
            "prompt": [torch.tensor(prompt.tokens) for _ in rewards],
            "response": [torch.tensor([1]) for _ in rewards],
            "logprobs": [torch.tensor([0.0]) for _ in rewards],
            "reward": [torch.tensor([reward]) for reward in rewards],
        }
        return Rollouts(fields, rewards)

    async def load_weights(self, weights: object, version: int) -> None:
        pass

    async def close(self) -> None:
        pass


class BrokenPlane(MemoryPlane):
    """A plane some of whose calls fail when they have done their work."""

    def __init__(self, store: MemoryStore, trouble: Trouble) -> None:
        super().__init__(store)
        self._trouble = trouble
        self._puts = 0
        self._saves = 0

    async def put(self, keys: Sequence[str], fields: Fields) -> None:
        await super().put(keys, fields)
        self._puts += "reward" in fields
        if "reward" in fields and self._puts in self._trouble.broken_puts:
            raise PlaneError(f"put number {self._puts} is broken")

    async def snapshot_index(self, directory: Path) -> None:
        await super().snapshot_index(directory)
        self._saves += 1
        if self._saves in self._trouble.broken_saves:
            raise PlaneError(f"save number {self._saves} is broken")


class SlowUnits:
    """Steps of a store whose units take their time over a snapshot."""

    async def reach(self, step: PlaneStep, /) -> None:
        for _ in range(60 if (step.op, step.phase) == ("snapshot", "unit") else 0):
            await asyncio.sleep(0)


def in_one_thread(work: Coroutine[Any, Any, T], make_task: Any = None) -> T:
    """Run a coroutine to its end; `make_task` is a task factory of its loop."""
    with asyncio.Runner() as runner:
        runner.get_loop().set_default_executor(InlineExecutor())
        runner.get_loop().set_task_factory(make_task)
        return runner.run(work)


@dataclass
class Run:
    """A run directory, and what goes wrong in it."""

    directory: RunDirectory
    trouble: Trouble = Trouble()
    steps: PlaneSteps = NO_STEPS
    """Told every step of the store."""
    new_trainer: Callable[[DataPlane], LightTrainer] = LightTrainer
    make_task: Any = None
    """Task factory of every start's loop."""
    in_front: Callable[[DataPlane], DataPlane] = lambda plane: plane
    """What stands in front of the controller's client."""
    trainer: LightTrainer = field(init=False, repr=False)
    """Of the last start."""

    @classmethod
    def create(cls, root: Path, config: RunConfig, trouble: Trouble = Trouble()) -> Run:
        directory = RunDirectory(root)
        directory.create(config, build_prompts(config))
        return cls(directory, trouble)

    @property
    def root(self) -> Path:
        return self.directory.root

    def copy(self, root: Path) -> Run:
        """The run as a kill at this instant would leave it."""
        shutil.copytree(self.root, root)
        trouble = replace(self.trouble, broken_saves=frozenset())
        return Run(RunDirectory(root), trouble, self.steps)

    def first(self, config: RunConfig, stops: StopPoints = NO_STOPS) -> RunReport:
        return in_one_thread(self._run(config, None, stops), self.make_task)

    def plan(
        self, bundle: str | None = None, config: RunConfig | None = None, *, with_rows: bool = True
    ) -> ResumePlan:
        path = self.root / bundle if bundle else latest(self.root, self.directory.facts().run_id)
        return verify_for_resume(path, build_prompts, config, with_rows=with_rows)

    def resume(self, plan: ResumePlan | None = None, stops: StopPoints = NO_STOPS) -> None:
        """Go on to the end; nothing is launched if the bundle is the end."""
        plan = plan or self.plan()
        if not plan.finished:
            in_one_thread(self._run(plan.config, plan, stops), self.make_task)

    def audit(self) -> Audit:
        return audit_run(self.directory)

    async def _build(
        self, config: RunConfig, plan: ResumePlan | None, stops: StopPoints
    ) -> tuple[Controller, EventLog]:
        bootstrap = MemoryBootstrap(MemoryStore(config.plane.units, self.steps))
        ready = await load_plane(plan, bootstrap)

        async def connect() -> DataPlane:
            return self.in_front(BrokenPlane(bootstrap.store, self.trouble))

        self.trainer = self.new_trainer(MemoryPlane(bootstrap.store))
        if plan is not None:
            await self.trainer.load(plan.policy_directory)
        incarnation = self.directory.next_incarnation()
        turns = itertools.count()
        events = EventLog(self.directory.log_path(incarnation), lambda: float(next(turns)))
        parts = Parts(
            config=config,
            prompts=build_prompts(config),
            connect=connect,
            trainer=self.trainer,
            generator=LightGenerator(self.trouble),
            identity=RunIdentity(self.directory.facts().run_id, incarnation),
            root=self.root,
            events=events,
            stops=stops,
            sleep=_sleep,
        )
        return await assemble(ready, parts), events

    async def _run(
        self, config: RunConfig, plan: ResumePlan | None, stops: StopPoints
    ) -> RunReport:
        controller, events = await self._build(config, plan, stops)
        try:
            return await controller.run()
        finally:
            events.close()


async def _sleep(seconds: float) -> None:
    """Limits take their time; pauses between tries take none, in a loop that is turned by hand."""
    await asyncio.sleep(seconds if seconds >= 1 else 0)


@dataclass(frozen=True)
class Kill:
    """A run as a kill at an announcement leaves it."""

    number: int
    """Of the announcement, from 1."""
    action: Action
    run: Run


class Camera:
    """Copies a run at announcements, and lets everything go on.

    Args:
        wanted: whether to copy at an announcement: its number, its action, and how often
            that action was announced before.
    """

    def __init__(
        self,
        run: Run,
        copies: Path,
        wanted: Callable[[int, Action, int], bool] = lambda number, action, before: True,
    ) -> None:
        self._run = run
        self._copies = copies
        self._wanted = wanted
        self.announced: list[Action] = []
        self.kills: list[Kill] = []

    async def reach(self, action: Action, /, **where: object) -> None:
        before = self.announced.count(action)
        self.announced.append(action)
        number = len(self.announced)
        if self._wanted(number, action, before):
            copy = self._run.copy(self._copies / f"{number}-{action.snake}")
            self.kills.append(Kill(number, action, copy))


def killed(root: Path, config: RunConfig, action: Action, before: int) -> Run:
    """A new run as a kill leaves it, at an action that was announced so often before."""
    run = Run.create(root / "run", config)
    camera = Camera(run, root / "killed", lambda _, at, seen: (at, seen) == (action, before))
    run.first(config, camera)
    return camera.kills[0].run
