"""The shipped controller: two loops over `Run`, one for rollouts and one for training.

Source: design, section 11.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable

from cutlock.plane.base import Fields
from cutlock.run.config import RunConfig
from cutlock.run.engine import Run
from cutlock.run.rollouts import Attempt
from cutlock.run.status import RunReport, Status
from cutlock.workers.base import Generator, Trainer

__all__ = ["Controller", "roll_out_all", "seeded", "train_all"]


class Controller:
    """Runs a restored run to its end.

    Args:
        run: made with `sync` and `every`, so that the generators get each version, and saves are
            made by themselves.
    """

    def __init__(self, run: Run, trainer: Trainer, generator: Generator) -> None:
        self.engine = run
        self._trainer = trainer
        self._generator = generator

    def request_save(self) -> None:
        """Save as soon as no step is open, e.g. because the machine is about to go."""
        self.engine.request_save()

    def status(self) -> Status:
        """A look at the run."""
        return self.engine.status()

    async def run(self) -> RunReport:
        """Run until the data or the step budget ends.

        Raises:
            ConfigError: the port of the metrics is taken; nothing was begun.
            CutlockError: the first failure of a loop; the event log's last record names it.
        """
        run = self.engine
        async with run.going():
            # Nothing would be trained any more otherwise, so no rollout is begun.
            if not run.target_reached:
                async with asyncio.TaskGroup() as tasks:
                    rollouts = tasks.create_task(
                        roll_out_all(run, self._generator), name="rollouts"
                    )
                    await train_all(run, self._trainer)
                    # Commits that are under way belong to the last bundle too.
                    await run.save()
                    rollouts.cancel()
        return run.report()


async def roll_out_all(run: Run, generator: Generator) -> None:
    """Serve every prompt, each group in a task of its own; return when all have ended."""

    generate = seeded(generator, run.config)
    async with asyncio.TaskGroup() as tasks:
        async for group in run.dispatch():
            tasks.create_task(run.roll_out(group, generate), name=f"rollout {group.group_id}")


def seeded(generator: Generator, config: RunConfig) -> Callable[[Attempt], Awaitable[Fields]]:
    """Generates tries with a generator, each with a seed of its own that a rerun repeats."""

    async def generate(attempt: Attempt) -> Fields:
        group = attempt.group
        seed = zlib.crc32(f"{config.seed}/{group.group_id}/{attempt.number}".encode())
        rollouts = await generator.generate(group.prompt, group_size=config.group_size, seed=seed)
        return rollouts.fields

    return generate


async def train_all(run: Run, trainer: Trainer) -> None:
    """Train to the end of the data or of the step budget."""
    while (entries := await run.next_step()) is not None:
        groups = {entry.group_id: entry.row_keys for entry in entries}
        await run.finish_step(await trainer.train(run.step, groups))
