"""A small loop of a caller's own, in parts that a test puts together as it likes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import torch

from cutlock import (
    BootstrapPlane,
    Fields,
    Prompt,
    PromptGroup,
    PromptList,
    Run,
    RunConfig,
    TrainedHistory,
    open_run,
    parse_config,
)

PROMPTS = PromptList("twelve", [Prompt(f"p{n}", (n,)) for n in range(12)])


def config(**changes: Any) -> RunConfig:
    raw: dict[str, Any] = {
        "prompts_per_step": 3,
        "group_size": 2,
        "sampler": {"name": "in_order", "window": 1},
        "failures": {"pause_s": 0},
    }
    return parse_config(raw | changes)


class Learner:
    """A trainer whose weights are the list of what it was trained on."""

    def __init__(self) -> None:
        self.trained: list[str] = []
        self.history = TrainedHistory()
        self.files: Sequence[str] = ("learner.json",)

    def train(self, step: int, groups: Sequence[str]) -> None:
        self.trained += groups
        self.history.extend(step, groups)

    async def copy(self) -> tuple[int, str]:
        self._copy = json.dumps([self.trained, self.history.state])
        return self.history.state

    async def save(self, directory: Path) -> Sequence[str]:
        (directory / "learner.json").write_text(self._copy)
        return self.files

    async def load(self, directory: Path) -> None:
        self.trained, history = json.loads((directory / "learner.json").read_text())
        self.history = TrainedHistory(*history)


class Killed(Exception):
    pass


def rows(run: Run) -> Fields:
    return {"reward": [torch.ones(1)] * run.config.group_size}


async def finish(run: Run, group: PromptGroup) -> None:
    async with run.attempt(group) as attempt:
        await attempt.commit(rows(run))


async def dispatch(
    run: Run, roll_out: Callable[[Run, PromptGroup], Coroutine[Any, Any, None]] = finish
) -> None:
    async with asyncio.TaskGroup() as rollouts:
        async for group in run.dispatch():
            rollouts.create_task(roll_out(run, group))


async def first(run: Run, count: int = 1) -> list[PromptGroup]:
    """The first groups that are dispatched; nothing of them is generated."""
    groups: list[PromptGroup] = []
    async for group in run.dispatch():
        groups.append(group)
        if len(groups) == count:
            break
    return groups


async def train(run: Run, learner: Learner) -> bool:
    """One step; False at the end."""
    entries = await run.next_step()
    if entries is None:
        return False
    learner.train(run.step, [entry.group_id for entry in entries])
    await run.finish_step()
    return True


@contextlib.asynccontextmanager
async def rolling(
    root: Path,
    learner: Learner,
    *,
    store: BootstrapPlane | None = None,
    sync: Callable[[int], Awaitable[object]] | None = None,
    **changes: Any,
) -> AsyncIterator[Run]:
    """A run whose rollouts go on by themselves."""
    async with (
        open_run(root, config(**changes), PROMPTS, learner, store=store, sync=sync) as run,
        asyncio.TaskGroup() as tasks,
    ):
        rollouts = tasks.create_task(dispatch(run))
        yield run
        rollouts.cancel()
