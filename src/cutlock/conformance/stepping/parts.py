"""Workers and a log that are deterministic and do what the stepper says.

Rows are real and small, policy files are real files; there is no arithmetic on weights.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

import torch

from cutlock.errors import NotEnabledError, WorkerError
from cutlock.events import EventLog, Record
from cutlock.plane.base import DataPlane, DelegatingPlane, Fields
from cutlock.workers.base import POLICY_FILES, TRAINER_FILE, Prompt, Rollouts, StepReport
from cutlock.workers.training import FIRST_CHAIN, extend_chain

__all__ = [
    "CURRENT_GROUP",
    "NotingLog",
    "NotingPlane",
    "NotingTrainer",
    "ToldGenerator",
    "read_trained",
]

CURRENT_GROUP: ContextVar[str] = ContextVar("cutlock_current_group")
"""The group that the current rollout's task has announced the launch of."""


class ToldGenerator:
    """A `Generator` whose rollouts end when they are told to, and how."""

    def __init__(self) -> None:
        self.versions: list[int] = []
        """Of the weights that were loaded."""
        self._waiting: dict[str, asyncio.Future[None]] = {}

    @property
    def groups(self) -> frozenset[str]:
        """Groups that are generated now."""
        return frozenset(self._waiting)

    def succeed(self, group: str) -> None:
        """Let the rollout of a group return."""
        self._future(group).set_result(None)

    def fail(self, group: str) -> None:
        """Let the rollout of a group raise WorkerError."""
        self._future(group).set_exception(WorkerError(f"{group} was told to fail"))

    def _future(self, group: str) -> asyncio.Future[None]:
        if group not in self._waiting:
            raise NotEnabledError(f"group {group!r} is not generated; only {list(self._waiting)}")
        return self._waiting[group]

    async def generate(self, prompt: Prompt, *, group_size: int, seed: int) -> Rollouts:
        """See `Generator.generate`."""
        group = CURRENT_GROUP.get()
        self._waiting[group] = asyncio.get_running_loop().create_future()
        try:
            await self._waiting[group]
        finally:
            del self._waiting[group]
        return _rollouts(prompt, group_size)

    async def load_weights(self, weights: object, version: int) -> None:
        """See `Generator.load_weights`."""
        self.versions.append(version)

    async def close(self) -> None:
        """See `Generator.close`."""


@lru_cache(maxsize=256)
def _rollouts(prompt: Prompt, group_size: int) -> Rollouts:
    rewards = [float(sibling % 2) for sibling in range(group_size)]
    return Rollouts(
        fields={
            "prompt": [torch.tensor(prompt.tokens)] * group_size,
            "response": [torch.tensor([*reversed(prompt.tokens)])] * group_size,
            "logprobs": [torch.zeros(len(prompt.tokens))] * group_size,
            "reward": [torch.tensor([reward]) for reward in rewards],
        },
        rewards=rewards,
    )


class NotingTrainer:
    """A `Trainer` whose policy is the list of what it was trained on."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self.steps: list[tuple[int, list[str]]] = []
        """Step and group ids of every training step of the surviving history."""
        self.copied: list[tuple[int, list[str]]] = []
        """What the next save writes."""

    @property
    def trained(self) -> list[str]:
        """Group ids, as often as they were trained."""
        return [group for _, groups in self.steps for group in groups]

    @property
    def copied_groups(self) -> list[str]:
        """The same, of the copy."""
        return [group for _, groups in self.copied for group in groups]

    async def train(self, step: int, groups: Mapping[str, Sequence[str]]) -> StepReport:
        """See `Trainer.train`; the rows have to be there, with their advantages."""
        keys = [key for rows in groups.values() for key in rows]
        await self._plane.get(keys, ("reward", "advantage"))
        self.steps.append((step, sorted(groups)))
        return StepReport(0.0, 0.5, len(keys), len(groups), 0.0)

    async def weights(self) -> object:
        """See `Trainer.weights`."""
        return len(self.steps)

    async def copy(self) -> tuple[int, str]:
        """See `Trainer.copy`."""
        self.copied = list(self.steps)
        chain = FIRST_CHAIN
        for step, groups in self.copied:
            chain = extend_chain(chain, step, groups)
        return len(self.trained), chain

    async def save(self, directory: Path) -> Sequence[str]:
        """See `Trainer.save`."""
        for name in POLICY_FILES:
            content = self.copied if name == TRAINER_FILE else name
            (directory / name).write_text(json.dumps(content))
        return POLICY_FILES

    async def load(self, directory: Path) -> None:
        """See `Trainer.load`."""
        self.steps = _read_steps(directory)

    async def close(self) -> None:
        """See `Trainer.close`."""


def _read_steps(directory: Path) -> list[tuple[int, list[str]]]:
    content = json.loads((directory / TRAINER_FILE).read_text())
    return [(step, groups) for step, groups in content]


def read_trained(directory: Path) -> list[str]:
    """Group ids that the policy in a directory was trained on, as often as it was."""
    return [group for _, groups in _read_steps(directory) for group in groups]


class NotingPlane(DelegatingPlane):
    """A `DataPlane` that notes which rows were given advantages through it."""

    def __init__(self, plane: DataPlane) -> None:
        super().__init__(plane)
        self.advantaged: set[str] = set()
        """Keys of those rows; a key is never used twice."""

    async def put(self, keys: Sequence[str], fields: Fields) -> None:
        """See `DataPlane.put`."""
        await super().put(keys, fields)
        if "advantage" in fields:
            self.advantaged.update(keys)


class NotingLog(EventLog):
    """The real event log, whose records can be looked at; mute once its process is dead."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, clock=lambda: 0.0)
        self.records: list[Record] = []
        self._dead = False

    def die(self) -> None:
        """Close the file; what tasks still say while they are cancelled reaches nobody."""
        self._dead = True
        super().close()

    def sync(self) -> None:
        """See `EventLog.sync`."""
        if not self._dead:
            super().sync()

    def _append(self, record: Record) -> None:
        if self._dead:
            return
        super()._append(record)
        self.records.append(record)
