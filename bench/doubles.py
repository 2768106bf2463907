"""Parts of a run that do nothing, so that what stands beside them is measured alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from cutlock.alphabet import Action
from cutlock.plane.base import Fields, PlaneInfo, PlaneStamp
from cutlock.run.metrics import Metrics, TrainedStep
from cutlock.workers.base import POLICY_FILES, Prompt, Rollouts, StepReport

__all__ = ["IdleGenerator", "IdleTrainer", "NoEvents", "NoMetrics", "NoPlane"]


class NoEvents:
    """An event log that forgets everything."""

    count = 0

    def record(self, action: Action, /, **args: object) -> None:
        pass

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


class NoPlane:
    """A plane that takes every row and has none."""

    info = PlaneInfo(kind="none", version="0", units=1)
    splits_snapshot = True

    async def put(self, keys: Sequence[str], fields: Fields) -> None:
        pass

    async def get(
        self, keys: Sequence[str], fields: Sequence[str]
    ) -> dict[str, list[torch.Tensor]]:
        return {field: [] for field in fields}

    async def clear(self, keys: Sequence[str]) -> None:
        pass

    async def list_keys(self) -> list[str]:
        return []

    async def snapshot_index(self, directory: Path) -> None:
        pass

    async def snapshot_rows(self, directory: Path, stamp: PlaneStamp) -> None:
        pass

    async def close(self) -> None:
        pass


class NoMetrics(Metrics):
    """Metrics that nobody reads."""

    def __init__(self) -> None:
        pass

    def write(self, step: TrainedStep) -> None:
        pass


class IdleGenerator:
    """Gives every prompt the same ready-made rollouts."""

    def __init__(self, group_size: int) -> None:
        fields = {
            "prompt": torch.zeros(3, dtype=torch.int64),
            "response": torch.zeros(4, dtype=torch.int64),
            "logprobs": torch.zeros(4),
            "reward": torch.zeros(1),
        }
        self._rollouts = Rollouts(
            {name: [row] * group_size for name, row in fields.items()}, [0.0] * group_size
        )

    async def generate(self, prompt: Prompt, *, group_size: int, seed: int) -> Rollouts:
        await asyncio.sleep(0)
        return self._rollouts

    async def load_weights(self, weights: object, version: int) -> None:
        pass

    async def close(self) -> None:
        pass


class IdleTrainer:
    """Reads no row and learns nothing."""

    async def train(self, step: int, groups: Mapping[str, Sequence[str]]) -> StepReport:
        return StepReport(loss=0.0, reward_mean=0.0, tokens=0, groups=len(groups), grad_norm=0.0)

    async def weights(self) -> object:
        return None

    async def copy(self) -> tuple[int, str]:
        return 0, ""

    async def save(self, directory: Path) -> Sequence[str]:
        for name in POLICY_FILES:
            (directory / name).write_bytes(b"{}")
        return POLICY_FILES

    async def load(self, directory: Path) -> None:
        pass

    async def close(self) -> None:
        pass
