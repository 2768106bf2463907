"""From a restored plane to a running controller; the same in-process and in the actor."""

from __future__ import annotations

from dataclasses import dataclass

from cutlock.controller.core import Controller
from cutlock.run.assembly import StateParts, begin, take_over
from cutlock.run.config import RunConfig
from cutlock.run.restore import PlaneReady, restore_state
from cutlock.workers.base import Generator, Trainer
from cutlock.workers.task import ReverseTask

__all__ = ["Parts", "assemble", "build_prompts"]


def build_prompts(config: RunConfig) -> ReverseTask:
    """The shipped data set of a configuration."""
    task = config.task
    return ReverseTask(
        task.prompts, length=task.length, vocabulary=task.vocabulary, seed=config.seed
    )


@dataclass(kw_only=True)
class Parts(StateParts):
    """What a controller is handed; nothing of it is built by the controller."""

    trainer: Trainer
    """Already loaded with the policy of the bundle, if there is one."""
    generator: Generator


async def assemble(ready: PlaneReady, parts: Parts) -> Controller:
    """Connect, restore the state, and make the controller; `run` starts its pumps.

    Raises:
        CutlockError: a stage refused; no pump was started.
    """
    connected, state = await begin(ready, parts)
    restored = await restore_state(connected, state)
    take_over(ready, parts)
    return Controller(restored, parts.trainer, parts.generator, parts.identity, parts.root)
