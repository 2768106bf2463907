"""From a restored plane to a running controller; the same in-process and in the actor."""

from __future__ import annotations

from dataclasses import dataclass, field

from cutlock.controller.core import Controller
from cutlock.run.config import RunConfig
from cutlock.run.restore import PlaneReady
from cutlock.run.start import StartParts, begin
from cutlock.workers.base import Generator, Trainer
from cutlock.workers.prompts import ReverseTask

__all__ = ["Parts", "assemble", "build_prompts"]


def build_prompts(config: RunConfig) -> ReverseTask:
    """The shipped data set of a configuration."""
    task = config.task
    return ReverseTask(
        task.prompts, length=task.length, vocabulary=task.vocabulary, seed=config.seed
    )


@dataclass(kw_only=True)
class Parts(StartParts):
    """What a controller is handed; nothing of it is built by the controller."""

    trainer: Trainer
    """Already loaded with the policy of the bundle, if there is one."""
    generator: Generator
    every: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.every = self.config.checkpoint.every
        self.sync = self._load_weights

    async def _load_weights(self, version: int) -> None:
        await self.generator.load_weights(await self.trainer.weights(), version)


async def assemble(ready: PlaneReady, parts: Parts) -> Controller:
    """Connect, restore the state, and make the controller; `run` starts its loops.

    Raises:
        CutlockError: a stage refused; no loop was started.
    """
    start = await begin(ready, parts)
    return Controller(await start.restore(), parts.trainer, parts.generator)
