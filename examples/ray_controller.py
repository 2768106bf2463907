"""The controller on Ray and TransferQueue, with one's own trainer, generator and sampler.

    python ray_controller.py [DIRECTORY]

The controller has the loop: pumps, buffer, barrier, saves. Yours are three classes. The trainer and
each generator run in a Ray actor of their own; the sampler runs in the controller, which imports
it by its name.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import cutlock

QUESTIONS, ANSWERS = 20, 5

PROMPTS = cutlock.PromptList(
    "remainders", [cutlock.Prompt(f"{n} mod {ANSWERS}", tokens=(n,)) for n in range(QUESTIONS)]
)


class OldestFirst(cutlock.GatedSampler):
    """Trains what the oldest weights have generated first, so that nothing waits for long.

    `GatedSampler` has the gate (`window` batches ahead of the trainer), the cursor and its
    restore; what is left to say is which groups train.
    """

    name = "oldest_first"
    restorable = True  # finished groups of a bundle mean the same after a restart

    def select(self, view: cutlock.GroupView, version: int, need: int) -> list[str]:
        oldest_first = [
            entry.group_id
            for weight in view.ready_weights()
            for entry in view.ready_with_weight(weight)
        ]
        return oldest_first[:need] if len(oldest_first) >= need else []


class TableTrainer:
    """A policy of one row of logits per question, and its gradient by hand (`cutlock.Trainer`)."""

    def __init__(self, rows: cutlock.RowReader) -> None:
        self._rows = rows
        self._logits = torch.zeros(QUESTIONS, ANSWERS)
        self._history = cutlock.TrainedHistory()  # an audit compares it with the logs
        self._copy: tuple[torch.Tensor, tuple[int, str]] | None = None

    async def train(self, step: int, groups: Mapping[str, Sequence[str]]) -> cutlock.StepReport:
        keys = [key for group in sorted(groups) for key in groups[group]]
        rows = await self._rows.get(keys, ("prompt", "response", "reward", "advantage"))
        prompts, responses = torch.cat([*rows["prompt"]]), torch.cat([*rows["response"]])
        advantages = torch.cat([*rows["advantage"]])  # written by the controller
        chosen = torch.nn.functional.one_hot(responses, ANSWERS)
        pull = advantages[:, None] * (chosen - self._logits.softmax(1)[prompts])
        self._logits.index_add_(0, prompts, pull, alpha=0.5)
        self._history.extend(step, groups)
        return cutlock.StepReport(
            loss=float(-advantages.mean()),
            reward_mean=float(torch.cat([*rows["reward"]]).mean()),
            tokens=len(keys),
            groups=len(groups),
            grad_norm=float(pull.norm()),
        )

    async def weights(self) -> object:
        return self._logits.clone()

    async def copy(self) -> tuple[int, str]:
        self._copy = self._logits.clone(), self._history.state
        return self._history.state

    async def save(self, directory: Path) -> Sequence[str]:
        assert self._copy is not None, "copy() comes first"
        logits, history = self._copy
        save_file({"logits": logits}, directory / "weights.safetensors")
        (directory / "history.json").write_text(json.dumps(history))
        return ["weights.safetensors", "history.json"]

    async def load(self, directory: Path) -> None:
        self._logits = load_file(directory / "weights.safetensors")["logits"]
        self._history = cutlock.TrainedHistory(
            *json.loads((directory / "history.json").read_text())
        )

    async def close(self) -> None:
        pass


class TableGenerator:
    """Samples answers and rewards the right ones (`cutlock.Generator`)."""

    def __init__(self) -> None:
        self._policy = torch.full((QUESTIONS, ANSWERS), 1 / ANSWERS)

    async def generate(
        self, prompt: cutlock.Prompt, *, group_size: int, seed: int
    ) -> cutlock.Rollouts:
        (question,) = prompt.tokens
        random = torch.Generator().manual_seed(seed)
        answers = self._policy[question].multinomial(group_size, replacement=True, generator=random)
        rewards = [float(answer == question % ANSWERS) for answer in answers.tolist()]
        return cutlock.Rollouts(
            fields={
                "prompt": [torch.tensor([question])] * group_size,
                "response": [*answers.reshape(-1, 1)],
                "reward": [torch.tensor([reward]) for reward in rewards],
            },
            rewards=rewards,
        )

    async def load_weights(self, weights: object, version: int) -> None:
        assert isinstance(weights, torch.Tensor)
        self._policy = weights.softmax(1)

    async def close(self) -> None:
        pass


def config() -> cutlock.RunConfig:
    """In a function, because it looks the sampler up in this module."""
    return cutlock.parse_config(
        {
            "epochs": 8,
            "prompts_per_step": 4,
            "group_size": 8,
            "sampler": {
                "name": "custom",
                "path": "ray_controller:OldestFirst",  # module:Class
                "options": {"window": 2},
            },
            "checkpoint": {"every": 4},
            "workers": {"generators": 2},
        }
    )


async def start(root: Path, kill_at: float = math.inf) -> cutlock.RunReport | None:
    """One start of the run. Whether it is the first, the directory tells."""
    reached = asyncio.Event()

    def watch(stage: str, status: cutlock.Status | None) -> None:
        if status is not None and status.step >= kill_at:
            reached.set()

    async with cutlock.setup_single_controller(
        root, config(), PROMPTS, trainer=TableTrainer, generator=TableGenerator, watch=watch
    ) as controller:
        running = asyncio.create_task(controller.run())
        killing = asyncio.create_task(reached.wait())
        await asyncio.wait([running, killing], return_when=asyncio.FIRST_COMPLETED)
        killing.cancel()
        if running.done():
            return running.result()
        running.cancel()
    return None  # all actors were killed where they stood


async def main(root: Path) -> None:
    if await start(root, kill_at=10) is None:
        print("start: killed, in step 10 or a little later")
    report = await start(root)
    assert report is not None
    print(f"start: {report.ended}, the last {len(report.steps)} steps")
    found = cutlock.audit_run(root)
    print(
        f"{found.prompts} prompts: {found.trained_once} trained once, {found.trained_twice} twice"
    )
    print(f"lost: {found.lost}, restarts: {found.restarts}, audit clean: {found.ok}")
    print(f"right answers in the last step: {report.steps[-1].report.reward_mean:.0%}")
    print(f"go on with: cutlock audit {root}; cutlock inspect {root}/step_{found.steps}")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1] if len(sys.argv) == 2 else tempfile.mkdtemp())))
