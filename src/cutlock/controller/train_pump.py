"""The train pump: evict, select, advantages, train, clear, raise the version, sync, save.

Trainer version and step counters move only in this task, which waits while a save reads them
and while the trainer is copied.

Source: design, sections 4 and 6.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cutlock.alphabet import Action
from cutlock.controller.rollout_pump import RolloutPump
from cutlock.errors import InvariantError
from cutlock.records import IndexEntry
from cutlock.run.metrics import Metrics, TrainedStep
from cutlock.run.save import Saver
from cutlock.run.state import RunState
from cutlock.run.steps import Steps
from cutlock.workers.advantages import group_relative_advantages
from cutlock.workers.base import Generator, Trainer

__all__ = ["TrainPump"]


class TrainPump(Steps):
    """Runs training steps until the data or the step budget ends."""

    def __init__(
        self,
        state: RunState,
        rollouts: RolloutPump,
        trainer: Trainer,
        generator: Generator,
        saver: Saver,
        metrics: Metrics,
    ) -> None:
        super().__init__(state)
        self._rollouts = rollouts
        self._trainer = trainer
        self._generator = generator
        self._saver = saver
        self._metrics = metrics
        self._save_requested = False
        self.busy = False
        """Training or saving, as opposed to waiting for groups."""
        self.history: list[TrainedStep] = []

    def request_save(self) -> None:
        """Save at the next moment between two steps, also while waiting for groups."""
        self._save_requested = True
        self._state.changed.notify()

    def _held_up(self) -> bool:
        return self._save_requested

    async def run(self) -> str:
        """Train to the end; return `max_steps` or `exhausted`.

        The start is saved as well, so that there is always a bundle to resume from.
        """
        async with self._saver:
            return await self._train()

    async def _train(self) -> str:
        state = self._state
        self.busy = True
        await self._saver.save()
        while not self.target_reached:
            self.busy = False
            entries = await self._next_groups()
            self.busy = True
            if entries is None:
                await self._saver.save_final()
                return "exhausted"
            await self._step(entries)
            if state.step % state.config.checkpoint.every == 0 or self._save_requested:
                self._save_requested = False
                if not self.target_reached:
                    await self._saver.save()
        await self._saver.save_final()
        return "max_steps"

    async def sync_weights(self) -> None:
        """Hand the trainer's weights to the generators; abort what has become stale."""
        version = self._state.version.value
        stale = True
        while stale:
            await self._rollouts.abort_stale(version)
            await self._state.stops.reach(Action.SYNC_WEIGHTS, version=version)
            # Whoever is held there finds rollouts that have begun meanwhile.
            stale = self._rollouts.first_stale(version) is not None
        await self._generator.load_weights(await self._trainer.weights(), version)
        self._state.events.record(Action.SYNC_WEIGHTS, version=version)

    # Choice.

    async def _next_groups(self) -> list[IndexEntry] | None:
        """Wait for the groups of the next step and claim them; None when none will come.

        An empty list is a step whose groups were all lost: the version moves on without
        training, so that the gate does.
        """
        # Whatever has waited looks again, so that nothing is overlooked that came meanwhile.
        while True:
            if self._save_requested:
                self._save_requested = False
                self.busy = True
                await self._saver.save()
                self.busy = False
            elif self._saver.start_due:
                self.waiting_for = "the first bundle"
                await self._state.changed.wait()
            elif self._stale():
                # A group may turn stale before its commit, so this is not done once per step.
                await self._evict()
            elif self._finished():
                return None
            elif self._selectable() is not None:
                entries = await self._select()
                if entries is not None:
                    return entries
            else:
                await self._wait_for_groups()

    # One step.

    async def _step(self, entries: Sequence[IndexEntry]) -> None:
        state = self._state
        step = state.step
        if entries:
            await self._write_advantages(step, entries)
            await state.stops.reach(Action.TRAIN_STEP, step=step)
            report = await self._trainer.train(step, {e.group_id: e.row_keys for e in entries})
            state.events.record(Action.TRAIN_STEP, step=step, groups=[e.group_id for e in entries])
            oldest = min(entry.start_weight for entry in entries)
            trained = TrainedStep(step, report, state.version.value - oldest)
            self.history.append(trained)
            state.trained += len(entries)
            self._metrics.write(trained)
            await self._clear()
        await self._raise_version()
        await self.sync_weights()

    async def _write_advantages(self, step: int, entries: Sequence[IndexEntry]) -> None:
        """Read the rewards, compute advantages within each group, write them onto the rows.

        Always computed anew, never taken over from a restored row. It adds a field to rows
        that the open step has claimed, and runs in the task that saves, so it needs no slot.
        """
        state = self._state
        await state.stops.reach(Action.WRITE_ADVANTAGES, step=step)
        keys = [key for entry in entries for key in entry.row_keys]
        rows = await state.plane.get(keys, ("reward",))
        rewards = [float(reward) for reward in rows["reward"]]
        if len(rewards) != len(entries) * state.config.group_size:
            raise InvariantError(
                f"step {step} has {len(rewards)} rows for {len(entries)} groups of "
                f"{state.config.group_size}; groups train whole"
            )
        advantages: list[torch.Tensor] = []
        for start in range(0, len(rewards), state.config.group_size):
            group = rewards[start : start + state.config.group_size]
            advantages += [torch.tensor([a]) for a in group_relative_advantages(group)]
        await state.plane.put(keys, {"advantage": advantages})
        state.events.record(Action.WRITE_ADVANTAGES, step=step)
