"""The first half of the rollout pump: from the dataloader to an admitted batch, and its losses.

Source: spec actions `ReserveBatch` to `CommitAdmission`, `DropGroup`, `SubstituteGroup` and
`AbortStale`; design, sections 4 and 7.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Sequence

from cutlock.alphabet import Action
from cutlock.barrier import Slot
from cutlock.errors import DropBudgetError, InvariantError
from cutlock.loader import Batch
from cutlock.records import LedgerRecord, Occurrence
from cutlock.run.state import RunState
from cutlock.samplers import Admission, TransactionalAdmissionSampler
from cutlock.samplers.custom import admit_split, admit_whole

__all__ = ["Dispatcher"]


class Dispatcher(abc.ABC):
    """Gives every prompt its owner in the ledger, replaces what is lost, stops what is too old."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._generating: set[str] = set()
        """Groups whose rollouts may still be stopped."""

    # From the loader or the pool to the ledger.

    async def _next_batch(self) -> int | None:
        """Reserve the next batch and return its admission id; None when no prompt is left."""
        while not self._state.loader.exhausted:
            admission_id = await self._advance_loader()
            if admission_id is not None:
                return admission_id
        # Spares may still be needed to replace losses until everything launched has settled.
        while len(self._state.ledger):
            await self._state.changed.wait()
        return await self._drain_pool() if len(self._state.pool) else None

    async def _advance_loader(self) -> int | None:
        state = self._state
        await state.stops.reach(Action.RESERVE_BATCH)
        async with state.barrier.mutation("loader_advance") as slot:
            batch = state.loader.next_batch(slot)
            if batch is None:
                return None
            admission_id = None
            if self._pool_is_low():
                state.pool.fill(slot, batch.occurrences)
                state.events.record(Action.FILL_SPARE_POOL, **_served(batch))
            else:
                admission_id = state.ledger.reserve(slot, batch.occurrences)
                state.events.record(Action.RESERVE_BATCH, admission=admission_id, **_served(batch))
            if batch.ends_epoch:
                try:
                    await state.stops.reach(Action.RAISE_EPOCH, epoch=batch.epoch + 1)
                finally:
                    # The batch has its owner: a cancellation may not part it from its epoch.
                    state.loader.raise_epoch(slot)
                    state.events.record(Action.RAISE_EPOCH, epoch=state.loader.epoch)
            return admission_id

    def _pool_is_low(self) -> bool:
        state = self._state
        return state.sampler.cursor >= 0 and len(state.pool) < state.config.buffer.spare_prompts

    async def _drain_pool(self) -> int:
        state = self._state
        await state.stops.reach(Action.DRAIN_SPARE_POOL)
        async with state.barrier.atomic_mutation("spare_drain") as slot:
            spares = state.pool.take(slot, state.config.prompts_per_step)
            admission_id = state.ledger.reserve(slot, spares)
            state.events.record(
                Action.DRAIN_SPARE_POOL, admission=admission_id, groups=_keys(spares)
            )
            return admission_id

    # Admission.

    async def _admission(self, admission_id: int) -> list[LedgerRecord]:
        """Wait at the gate and admit the batch in one slot; return its records.

        The first of them has a place in the buffer, which is taken before the admission so that
        start weights are fresh; the others need one each before they are launched.
        """
        state = self._state
        await state.permits.acquire()

        async def opened() -> None:
            state.events.record(
                Action.OPEN_GATE, admission=admission_id, version=state.version.value
            )
            await state.stops.reach(Action.COMMIT_ADMISSION, admission=admission_id)

        def commit(slot: Slot, admission: Admission) -> list[LedgerRecord]:
            return self._commit_admission(slot, admission_id, admission)

        sampler = state.sampler
        try:
            await state.stops.reach(Action.OPEN_GATE, admission=admission_id)
            if isinstance(sampler, TransactionalAdmissionSampler):
                return await admit_split(sampler, state.barrier, state.version, opened, commit)
            return await admit_whole(sampler, state.barrier, state.version, opened, commit)
        except BaseException:
            state.permits.release()
            raise

    def _commit_admission(
        self, slot: Slot, admission_id: int, admission: Admission
    ) -> list[LedgerRecord]:
        state = self._state
        if admission.stamp is not None and self._covered(admission.stamp):
            raise InvariantError(
                f"step {admission.stamp} already has groups; a stamp is given once, so the "
                f"cursor {state.sampler.cursor} was restored or moved wrongly"
            )
        version = state.version.value
        records = state.ledger.admit(
            slot,
            admission_id,
            dispatch_index=admission.dispatch_index,
            stamp=admission.stamp,
            start_weight=version,
        )
        missing = state.config.prompts_per_step - len(records)
        if missing and state.sampler.credits_shortfall():
            self._credit(slot, admission.dispatch_index, missing)
        state.events.record(
            Action.COMMIT_ADMISSION,
            admission=admission_id,
            cursor=state.sampler.cursor,
            stamp=admission.stamp,
            start_weight=version,
            groups=[record.group_id for record in records],
        )
        return records

    def _covered(self, stamp: int) -> bool:
        state = self._state
        return (
            stamp < state.next_selection
            or bool(state.buffer.ready_with_stamp(stamp))
            or stamp in state.ledger.stamps
        )

    def _credit(self, slot: Slot, dispatch_index: int, count: int = 1) -> None:
        state = self._state
        state.shortfall.credit(slot, max(dispatch_index, state.next_selection), count)

    # Losses.

    def _replace(self, slot: Slot, record: LedgerRecord, error: Exception) -> LedgerRecord | None:
        """Replace a lost group by a spare, or else close its step short; one synchronous step.

        Raises:
            DropBudgetError: no more prompts may be given up; nothing was changed.
        """
        state = self._state
        group_id = record.group_id
        budget = state.config.failures.drop_budget
        if state.dropped >= budget:
            raise DropBudgetError(
                f"group {group_id!r} failed {state.config.failures.attempts} times and "
                f"failures.drop_budget = {budget} is used up; its prompt stays owed and a "
                f"resume tries it again; last error: {error}"
            ) from error
        state.dropped += 1
        state.buffer.forget_attempts(group_id)
        for spare in state.pool.take(slot):
            weight = state.sampler.substitute_weight(record.start_weight or 0, state.version.value)
            substitute = state.ledger.substitute(slot, group_id, spare, weight)
            state.events.record(
                Action.SUBSTITUTE_GROUP, group=group_id, substitute=substitute.group_id
            )
            return substitute
        state.ledger.discard(slot, group_id)
        if state.sampler.credits_shortfall():
            self._credit(slot, record.dispatch_index or 0)
        state.events.record(Action.DROP_GROUP, group=group_id, reason=str(error))
        return None

    # Stale rollouts.

    async def abort_stale(self, version: int) -> None:
        """Abort rollouts that can never train any more: the stale-rollout watchdog.

        In the order of dispatch. A group that has left generation is past this: it is
        committed, and evicted if stale.
        """
        # Every abort waits, and meanwhile rollouts begin and end.
        while (group_id := self.first_stale(version)) is not None:
            await self._abort(group_id, version)

    def first_stale(self, version: int) -> str | None:
        """The rollout that `abort_stale` would abort next."""
        state = self._state
        stale = {
            weight
            for weight in state.ledger.in_flight_weights
            if state.sampler.stale_in_flight(weight, version)
        }
        if not stale:
            return None
        for record in state.ledger.admitted():
            if record.group_id in self._generating and record.start_weight in stale:
                return record.group_id
        return None

    async def _abort(self, group_id: str, version: int) -> None:
        state = self._state
        await state.stops.reach(Action.ABORT_STALE, group=group_id)
        async with state.barrier.atomic_mutation("stale_abort") as slot:
            # It may have left generation meanwhile, or an earlier one have come to it.
            if self.first_stale(version) != group_id:
                return
            state.ledger.discard(slot, group_id)
            state.buffer.release(group_id)
            state.buffer.forget_attempts(group_id)
            self._generating.discard(group_id)
            state.events.record(Action.ABORT_STALE, group=group_id, version=version)
            stopped = self._stop(group_id)
        await asyncio.wait({stopped})

    @abc.abstractmethod
    def _stop(self, group_id: str) -> asyncio.Future[None]:
        """Cancel the rollout of a group that has no owner any more; return what is done then."""


def _served(batch: Batch) -> dict[str, object]:
    return {
        "epoch": batch.epoch,
        "position": batch.position,
        "groups": _keys(batch.occurrences),
    }


def _keys(occurrences: Sequence[Occurrence]) -> list[str]:
    return [occurrence.key for occurrence in occurrences]
