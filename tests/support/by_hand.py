"""A loop of a user's own, with every try, loss and step done by hand: as `docs/guide.md` has it."""

from __future__ import annotations

import asyncio

from cutlock.errors import PlaneError, WorkerError
from cutlock.run.engine import Run
from cutlock.run.rollouts import PromptGroup
from cutlock.workers.base import Generator, Trainer


async def by_hand(run: Run, trainer: Trainer, generator: Generator) -> None:
    """Drive an engine with none of the shipped loops."""

    async def roll_out(group: PromptGroup) -> None:
        owed: PromptGroup | None = group
        while owed is not None:
            try:
                async with run.attempt(owed) as attempt:
                    rollouts = await generator.generate(
                        owed.prompt, group_size=run.config.group_size, seed=attempt.number
                    )
                    await attempt.commit(rollouts.fields)
                return
            except (WorkerError, PlaneError) as error:
                if attempt.number + 1 >= run.config.failures.attempts:
                    owed = await run.give_up(owed, error)

    async def roll_out_all() -> None:
        async with asyncio.TaskGroup() as tasks:
            async for group in run.dispatch():
                tasks.create_task(roll_out(group))

    async with run.going(), asyncio.TaskGroup() as tasks:
        rollouts = tasks.create_task(roll_out_all())
        while (entries := await run.next_step()) is not None:
            await trainer.train(run.step, {entry.group_id: entry.row_keys for entry in entries})
            await run.finish_step()
        await run.save()
        rollouts.cancel()
