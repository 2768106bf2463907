"""A plain asyncio loop with a store of its own, killed twice, resumed twice: nothing is lost.

    python plain_loop.py [DIRECTORY]

The loop is yours: when to generate, when to train, when to save. cutlock keeps account of every
prompt, and `run.save()` takes one cut of loader, cursor, ledger, buffer, spare pool and trainer.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from own_store import DictStore

import cutlock

CONFIG = cutlock.parse_config(
    {
        "epochs": 2,
        "prompts_per_step": 4,
        "group_size": 2,  # rollouts of one prompt
        "sampler": {"name": "in_order", "window": 1},  # batches ahead of the trainer
    }
)
PROMPTS = cutlock.PromptList(
    "numbers", [cutlock.Prompt(f"number-{n}", tokens=(n,)) for n in range(24)]
)


class Trainer:
    """Learns one number: what to answer to every prompt. Right is 3."""

    def __init__(self) -> None:
        self.answer = torch.zeros(1)
        # Which groups have made these weights: an audit compares it with the logs.
        self.history = cutlock.TrainedHistory()
        self._copy: dict[str, object] = {}

    def train(self, step: int, groups: Sequence[str], rows: cutlock.Fields) -> None:
        best = max(
            zip(rows["reward"], rows["response"], strict=True), key=lambda row: float(row[0])
        )
        self.answer += 0.5 * (best[1] - self.answer)
        self.history.extend(step, groups)

    # What a save needs (`cutlock.Checkpointable`): a copy at once, its files later.

    async def copy(self) -> tuple[int, str]:
        self._copy = {"answer": self.answer.tolist(), "history": self.history.state}
        return self.history.state

    async def save(self, directory: Path) -> Sequence[str]:
        (directory / "trainer.json").write_text(json.dumps(self._copy))
        return ["trainer.json"]

    async def load(self, directory: Path) -> None:
        saved = json.loads((directory / "trainer.json").read_text())
        self.answer = torch.tensor(saved["answer"])
        self.history = cutlock.TrainedHistory(*saved["history"])


async def generate(trainer: Trainer, group: cutlock.PromptGroup) -> cutlock.Fields:
    """Two guesses, after a while that differs from prompt to prompt."""
    draw = random.Random(group.group_id)
    await asyncio.sleep(draw.uniform(0.001, 0.004))
    guesses = [trainer.answer + draw.gauss(0, 1) for _ in range(CONFIG.group_size)]
    return {"response": guesses, "reward": [-(guess - 3).abs() for guess in guesses]}


async def roll_out(run: cutlock.Run, trainer: Trainer, group: cutlock.PromptGroup) -> None:
    async with run.attempt(group) as attempt:
        await attempt.commit(await generate(trainer, group))


async def roll_out_all(run: cutlock.Run, trainer: Trainer) -> None:
    async with asyncio.TaskGroup() as tasks:
        async for group in run.dispatch():
            tasks.create_task(roll_out(run, trainer, group))


async def train_all(run: cutlock.Run, trainer: Trainer, kill: str) -> None:
    while (entries := await run.next_step()) is not None:
        keys = [key for entry in entries for key in entry.row_keys]
        rows = await run.plane.get(keys, ["response", "reward"])
        trainer.train(run.step, [entry.group_id for entry in entries], rows)
        await run.finish_step()
        if kill == f"after step {run.step}":
            os.kill(os.getpid(), signal.SIGKILL)
        if run.step % 2 == 0:
            await run.save()
            if kill == f"in the save of step {run.step}":
                os.kill(os.getpid(), signal.SIGKILL)  # the cut is taken, its files are not written


async def start(root: Path, kill: str) -> None:
    """One start of the program. Whether it is the first, `open_run` sees from the directory."""
    trainer, store = Trainer(), DictStore()
    async with (
        cutlock.open_run(root, CONFIG, PROMPTS, trainer, store=store) as run,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(roll_out_all(run, trainer))
        await train_all(run, trainer, kill)


def main(root: Path) -> None:
    killed, whole = root / "killed", root / "whole"
    for kill in ("after step 5", "in the save of step 8", ""):
        ended = subprocess.run([sys.executable, __file__, killed, kill], check=False)
        print(f"start: {f'killed {kill}' if ended.returncode == -signal.SIGKILL else 'finished'}")
    asyncio.run(start(whole, kill=""))

    found = cutlock.audit_run(killed)
    print(
        f"{found.prompts} prompts: {found.trained_once} trained once, {found.trained_twice} twice"
    )
    print(f"lost: {found.lost}, restarts: {found.restarts}, audit clean: {found.ok}")
    same = last_chain(killed) == last_chain(whole)
    print(f"trained the same as a run that was never killed: {same}")
    print(f"go on with: cutlock audit {killed}; cutlock validate {killed}")


def last_chain(root: Path) -> str:
    """Digest over all groups in the order of their training, from the trainer's own file."""
    newest = max(root.glob("step_*"), key=lambda path: int(path.name.removeprefix("step_")))
    history: list[str] = json.loads((newest / "policy" / "trainer.json").read_text())["history"]
    return history[1]


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run(start(Path(sys.argv[1]), kill=sys.argv[2]))
    else:
        main(Path(sys.argv[1] if len(sys.argv) == 2 else tempfile.mkdtemp(prefix="plain-loop-")))
