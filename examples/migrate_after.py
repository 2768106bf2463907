"""After: the loop of `migrate_before.py` with one cut. A resume loses nothing.

    python migrate_after.py [DIRECTORY]

What has become of its parts:

- position, cursor, buffer and duplicate guard are the run's: `dispatch`, `commit`, `next_step`;
- the save is one call, and so is the resume, which is the same call as the start;
- what the trainer has learned is still the loop's own, as three small methods.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

import cutlock

PROMPTS = [f"prompt-{n}" for n in range(40)]
SAVE_AT = 7
CONFIG = cutlock.parse_config(
    {
        "prompts_per_step": 4,
        "group_size": 1,
        "sampler": {"name": "in_order", "window": 1},
        "checkpoint": {"cut": "full"},  # the save is on disk when its call returns
    }
)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Trainer:
    def __init__(self) -> None:
        self.trained: list[str] = []
        self.history = cutlock.TrainedHistory()
        self._copy = ""

    async def copy(self) -> tuple[int, str]:
        self._copy = json.dumps({"trained": self.trained, "history": self.history.state})
        return self.history.state

    async def save(self, directory: Path) -> Sequence[str]:
        await turns(20)  # write the weights
        (directory / "trainer.json").write_text(self._copy)
        return ["trainer.json"]

    async def load(self, directory: Path) -> None:
        saved = json.loads((directory / "trainer.json").read_text())
        self.trained, self.history = saved["trained"], cutlock.TrainedHistory(*saved["history"])


async def roll_out(run: cutlock.Run, group: cutlock.PromptGroup) -> None:
    async with run.attempt(group) as attempt:
        await turns(5)  # generate
        await attempt.commit({"reward": [torch.ones(1)]})


async def roll_out_all(run: cutlock.Run) -> None:
    async with asyncio.TaskGroup() as rollouts:
        async for group in run.dispatch():
            rollouts.create_task(roll_out(run, group))


class Killed(Exception):
    pass


async def train(root: Path, trainer: Trainer, *, killed: bool) -> None:
    prompts = cutlock.PromptList(
        "forty", [cutlock.Prompt(name, tokens=(n,)) for n, name in enumerate(PROMPTS)]
    )
    async with (
        cutlock.open_run(root, CONFIG, prompts, trainer) as run,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(roll_out_all(run))
        while (entries := await run.next_step()) is not None:
            trainer.trained += [entry.occurrence.prompt_id for entry in entries]
            trainer.history.extend(run.step, [entry.group_id for entry in entries])
            await run.finish_step()
            if killed and run.step == SAVE_AT:
                await run.save()
                raise Killed


async def main(root: Path) -> None:
    try:
        await train(root, Trainer(), killed=True)
    except Killed:
        resumed = Trainer()
        await train(root, resumed, killed=False)
    lost = [prompt for prompt in PROMPTS if prompt not in resumed.trained]
    print(f"{len(PROMPTS)} prompts, killed after the save of step {SAVE_AT}, resumed")
    print(f"trained: {len(resumed.trained)}, lost: {len(lost)}: {', '.join(lost) or 'none'}")
    print(f"go on with: cutlock audit {root}")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1] if len(sys.argv) == 2 else tempfile.mkdtemp())))
