"""The steps of a trainer: which groups the next one takes, and how one is closed.

Source: spec actions `EvictGroups`, `SelectGroups`, `ClearRows`, `RaiseVersion`; design, sections 4
and 6.
"""

from __future__ import annotations

from cutlock.alphabet import Action
from cutlock.errors import StallError
from cutlock.records import IndexEntry
from cutlock.run.state import RunState

__all__ = ["Steps"]


class Steps:
    """Claims the groups of one step after the other."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self.waiting_for = ""
        """In words, what the next step waits for."""

    def _held_up(self) -> bool:
        """Whether other work comes before the next claim."""
        return False

    @property
    def target_reached(self) -> bool:
        """Whether the step budget leaves nothing to train."""
        budget = self._state.config.max_steps
        return budget is not None and self._state.step >= budget

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

    def _stale(self) -> list[str]:
        """Finished groups that can never train."""
        state = self._state
        return state.sampler.evict(state.buffer, state.version.value)

    def _finished(self) -> bool:
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

    def _selectable(self) -> list[str] | None:
        """The groups of the next step; None if they are not all there, or other work is due."""
        if self._held_up() or self._stale() or self._finished():
            return None
        need, chosen = self._choose()
        return chosen if len(chosen) >= need else None

    async def _select(self) -> list[IndexEntry] | None:
        """Claim the groups of the next step; None if they are no longer to be selected."""
        state = self._state
        await state.stops.reach(Action.SELECT_GROUPS, step=state.step)
        async with state.barrier.atomic_mutation("select") as slot:
            chosen = self._selectable()
            if chosen is None:
                return None
            entries = state.buffer.select(slot, state.step, chosen)
            state.next_selection = state.step + 1
            state.shortfall.forget_before(slot, state.step)
        state.permits.release(len(entries))
        return entries

    async def _evict(self) -> None:
        """Drop finished groups that can never train, unless a save is due first."""
        state = self._state
        version = state.version.value
        await state.stops.reach(Action.EVICT_GROUPS, version=version)
        async with state.barrier.atomic_mutation("evict") as slot:
            stale = self._stale()
            if self._held_up() or not stale:
                return
            try:
                await state.buffer.evict(slot, version, stale)
            finally:
                # They are out of the index also if the caller is cancelled meanwhile.
                state.permits.release(sum(group not in state.buffer for group in stale))

    # The end of a step.

    async def _clear(self) -> None:
        """Delete the rows of the open step."""
        state = self._state
        async with state.barrier.atomic_mutation("clear") as slot:
            await state.buffer.clear_claimed(slot, state.step)

    async def _raise_version(self) -> None:
        """Count the step, and open the gate with it."""
        state = self._state
        await state.stops.reach(Action.RAISE_VERSION, version=state.step + 1)
        state.step += 1
        state.version.raise_to(state.step)
        state.events.record(Action.RAISE_VERSION, version=state.version.value)
