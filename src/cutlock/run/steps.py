"""The training half of the engine: which groups the next step takes, and how a step is closed.

Source: spec actions `EvictGroups` to `SyncWeights`; design, sections 4, 6 and 11.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import torch

from cutlock.alphabet import Action
from cutlock.errors import InvariantError, MisuseError, StallError
from cutlock.records import IndexEntry
from cutlock.run.metrics import Metrics, TrainedStep
from cutlock.run.rollouts import Rollouts
from cutlock.run.save import Saver
from cutlock.run.state import Facts, RunState, StartPhase, TrainPhase
from cutlock.workers.base import StepReport
from cutlock.workers.training import group_relative_advantages

__all__ = ["Steps", "Sync"]

Sync = Callable[[int], Awaitable[object]]
"""Hands the weights of a version to whatever generates."""


class Steps(Rollouts):
    """Claims the groups of one training step after the other.

    Args:
        every: training steps between saves that are made by themselves; None for no such saves.
        sync: awaited at the start, and whenever the version has been raised.
    """

    def __init__(
        self,
        state: RunState,
        saver: Saver,
        metrics: Metrics,
        *,
        every: int | None = None,
        sync: Sync | None = None,
    ) -> None:
        super().__init__(state)
        self._saver = saver
        self._metrics = metrics
        self._every = every
        self._sync = sync
        self._save_requested = False
        self._considered = -1 if saver.saved_step is None else saver.saved_step
        """The step before which it was last considered whether to save."""
        self._asks_for_save = 0
        self._given_out = False
        """Whether the caller has the open step."""
        self.waiting_for = ""
        """In words, what the next step waits for."""
        self.history: list[TrainedStep] = []
        """The steps that this start has trained."""

    @property
    def target_reached(self) -> bool:
        """Whether the step budget leaves nothing to train."""
        budget = self._state.config.max_steps
        return budget is not None and self._state.step >= budget

    @property
    def busy(self) -> bool:
        """Whether the training loop trains or saves, as opposed to waiting for groups."""
        return self._asks_for_save > 0 or self._state.phases.train is not TrainPhase.IDLE

    # A step.

    async def next_step(self) -> list[IndexEntry] | None:
        """Wait for the groups of the next training step, and claim them; None at the end.

        The end is that of the data, or of `max_steps`. Their `advantage` is computed from
        `reward`, relative to the siblings, and written onto their rows: always anew, never taken
        over from a bundle. Groups that have become too old for the sampler are dropped meanwhile,
        recorded, and a step of which all groups were given up is counted without training. A
        save that was requested is made first. A call that was cancelled is made good by the next.

        Raises:
            MisuseError: the step before was not finished.
            StallError: nothing is left to wait for, and the sampler chooses none of what is there.

        Source: spec actions `EvictGroups`, `SelectGroups`, `WriteAdvantages`.
        """
        state = self._state
        if self._given_out:
            raise MisuseError(
                f"step {state.step} still owns {sorted(state.buffer.claimed)}; call finish_step() "
                "when it has trained"
            )
        await self._close_step()
        while True:
            if state.phases.train is TrainPhase.ADVANTAGES:
                await self._write_advantages()
            if state.phases.train is TrainPhase.TRAIN:
                # It is announced before the caller trains, and recorded by `finish_step`.
                await state.stops.reach(Action.TRAIN_STEP, step=state.step)
                self._given_out = True
                return [*state.buffer.claimed.values()]
            if self.target_reached:
                return None
            # Whatever has waited looks again, so that nothing is overlooked that came meanwhile.
            if self._save_due():
                self._save_requested, self._considered = False, state.step
                await self.save()
            elif self._saver.start_due:
                self.waiting_for = "the first bundle"
                await state.changed.wait()
            elif self.stale_groups():
                # A group may turn stale before its commit, so this is not done once per step.
                await self._evict()
            elif self.finished:
                return None
            elif self.selectable_groups() is None:
                await self._wait_for_groups()
            else:
                await self._select()
                await self._close_step()

    async def finish_step(self, report: StepReport | None = None) -> None:
        """Count the open step as trained: its rows are deleted and the version is raised.

        Args:
            report: what the step has done; kept as metrics, for plots only.

        Raises:
            MisuseError: no step is open.

        Source: spec actions `TrainStep` to `SyncWeights`.
        """
        state = self._state
        if not self._given_out:
            raise MisuseError(f"step {state.step} has claimed no groups; call next_step() first")
        entries = [*state.buffer.claimed.values()]
        state.events.record(
            Action.TRAIN_STEP, step=state.step, groups=[entry.group_id for entry in entries]
        )
        state.phases.train, self._given_out = TrainPhase.CLEAR, False
        state.trained += len(entries)
        if report is not None:
            oldest = min(entry.start_weight for entry in entries)
            step = TrainedStep(state.step, report, state.version.value - oldest)
            self.history.append(step)
            self._metrics.write(step)
        await self._close_step()

    async def save(self) -> None:
        """Save one cut of everything, between two steps; saving a step twice does nothing.

        Under the narrow cut this returns when the cut is taken and the trainer is copied; files
        are written while the loop goes on, and the next save waits for them. With
        `checkpoint.cut = "full"` the bundle is on disk then. A failed save leaves the run going:
        see `failed_saves`.

        Raises:
            InvariantError: a step is open; call `finish_step` first.
            SaveError: `checkpoint.failures_in_a_row` saves have failed.
            PlaneLostError, WorkerLostError: no later save can succeed either.

        Source: spec actions `RequestCut` to `PublishBundle`; design, sections 8 and 9.
        """
        self._asks_for_save += 1
        try:
            await self._saver.save()
        finally:
            self._asks_for_save -= 1

    def request_save(self) -> None:
        """Have `next_step` save as soon as no step is open, also while it waits for groups."""
        self._save_requested = True
        self._state.changed.notify()

    def _save_due(self) -> bool:
        if self._save_requested:
            return True
        if self._every is None or self._considered == self._state.step:
            return False
        return self._considered < 0 or self._state.step % self._every == 0

    # Choice.

    async def _wait_for_groups(self) -> None:
        state = self._state
        need, _ = self._choose()
        self.waiting_for = f"{need} groups of step {state.step}"
        if state.settled:
            raise StallError(
                f"step {state.step} needs {need} groups, no rollout is left, and sampler "
                f"{state.sampler.name!r} selects none of the {len(state.buffer.ready())} that "
                "are ready; they stay in the last bundle, resume from it with a wider window"
            )
        await state.changed.wait()

    def stale_groups(self) -> list[str]:
        """Finished groups that can never train."""
        state = self._state
        return state.sampler.evict(state.buffer, state.version.value)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to train."""
        state = self._state
        return state.settled and not state.buffer.ready()

    def _choose(self) -> tuple[int, list[str]]:
        """(groups needed, their ids; none while they are not all finished)."""
        state = self._state
        version = state.version.value
        need = state.sampler.need(
            version,
            state.config.prompts_per_step,
            state.shortfall.of(state.step),
            state.buffer,
        )
        if need == 0:
            return 0, []
        chosen = state.sampler.select(state.buffer, version, need)
        if not chosen and state.settled:
            # Nothing more will come: what is left makes a short step.
            need = min(need, len(state.buffer.ready()))
            chosen = state.sampler.select(state.buffer, version, need)
        return need, chosen

    def selectable_groups(self) -> list[str] | None:
        """The groups of the next step; None if they are not all there, or other work is due."""
        if self._save_requested or self.stale_groups() or self.finished:
            return None
        need, chosen = self._choose()
        return chosen if len(chosen) >= need else None

    async def _select(self) -> None:
        """Claim the groups of the next step, unless they are no longer to be selected."""
        state = self._state
        await state.stops.reach(Action.SELECT_GROUPS, step=state.step)
        async with state.barrier.atomic_mutation("select") as slot:
            chosen = self.selectable_groups()
            if chosen is None:
                return
            entries = state.buffer.select(slot, state.step, chosen)
            state.next_selection = state.step + 1
            state.shortfall.forget_before(slot, state.step)
            state.phases.train = TrainPhase.ADVANTAGES if entries else TrainPhase.RAISE
        state.permits.release(len(entries))

    async def _evict(self) -> None:
        """Drop finished groups that can never train, unless a save is due first."""
        state = self._state
        version = state.version.value
        await state.stops.reach(Action.EVICT_GROUPS, version=version)
        async with state.barrier.atomic_mutation("evict") as slot:
            stale = self.stale_groups()
            if self._save_requested or not stale:
                return
            try:
                await state.buffer.evict(slot, version, stale)
            finally:
                # They are out of the index also if the caller is cancelled meanwhile.
                state.permits.release(sum(group not in state.buffer for group in stale))

    async def _write_advantages(self) -> None:
        """Read the rewards, compute advantages within each group, write them onto the rows.

        It adds a field to rows that the open step has claimed, and runs in the task that saves,
        so it needs no slot.
        """
        state = self._state
        entries, size = [*state.buffer.claimed.values()], state.config.group_size
        keys = [key for entry in entries for key in entry.row_keys]

        async def write() -> Facts:
            rows = await state.plane.get(keys, ("reward",))
            rewards = [float(reward) for reward in rows["reward"]]
            if len(rewards) != len(keys):
                raise InvariantError(
                    f"step {state.step} has {len(rewards)} rows for {len(entries)} groups of "
                    f"{size}; groups train whole"
                )
            advantages: list[torch.Tensor] = []
            for start in range(0, len(rewards), size):
                group = rewards[start : start + size]
                advantages += [torch.tensor([a]) for a in group_relative_advantages(group)]
            await state.plane.put(keys, {"advantage": advantages})
            return {"step": state.step}

        await state.act(Action.WRITE_ADVANTAGES, write, step=state.step)
        state.phases.train = TrainPhase.TRAIN

    # The end of a step.

    async def _close_step(self) -> None:
        """Clear the rows of a trained step, count it and hand its weights on; from where it is."""
        phases = self._state.phases
        if phases.train is TrainPhase.CLEAR:
            await self._clear()
        if phases.train is TrainPhase.RAISE:
            await self._raise_version()
        if phases.train is TrainPhase.SYNC:
            await self._sync_weights()
            phases.train = TrainPhase.IDLE

    async def _clear(self) -> None:
        state = self._state
        try:
            async with state.barrier.atomic_mutation("clear") as slot:
                await state.buffer.clear_claimed(slot, state.step)
        finally:
            # They are cleared also if the caller is cancelled meanwhile.
            if not state.buffer.claimed:
                state.phases.train = TrainPhase.RAISE

    async def _raise_version(self) -> None:
        """Count the step, and open the gate with it."""
        state = self._state

        async def raised() -> Facts:
            state.step += 1
            state.version.raise_to(state.step)
            state.phases.train = TrainPhase.SYNC
            return {"version": state.version.value}

        await state.act(Action.RAISE_VERSION, raised, version=state.step + 1)

    async def _sync_weights(self) -> None:
        """Hand the trainer's weights to the generators; abort what has become stale."""
        state = self._state
        version = state.version.value
        stale = True
        while stale:
            await self.abort_stale(version)
            await state.stops.reach(Action.SYNC_WEIGHTS, version=version)
            # Whoever is held there finds rollouts that have begun meanwhile.
            stale = self.first_stale(version) is not None
        if self._sync is not None:
            await self._sync(version)
        state.events.record(Action.SYNC_WEIGHTS, version=version)
        if state.phases.start is StartPhase.STARTED:
            state.phases.start = StartPhase.RUNNING
