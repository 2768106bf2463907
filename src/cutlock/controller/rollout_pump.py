"""The rollout pump: from the dataloader through admission and generation to the buffer.

After a restore it first launches what was ADMITTED, in the order of dispatch and without a
new admission, then admits what was RESERVED, once per batch, and only then reads the
loader: admitted groups may be the only work that can move the trainer and open the gate.

Source: design, sections 4 and 7.
"""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections import Counter
from collections.abc import Sequence

from cutlock.alphabet import Action
from cutlock.barrier import Slot
from cutlock.controller.loader import Batch
from cutlock.controller.state import RunState
from cutlock.errors import (
    ConfigMismatchError,
    DropBudgetError,
    InvariantError,
    NoWorkerError,
    PlaneError,
    PlaneLostError,
    WorkerError,
    WorkerLostError,
)
from cutlock.plane.base import Fields
from cutlock.records import LedgerRecord, Occurrence
from cutlock.samplers import Admission, TransactionalAdmissionSampler
from cutlock.samplers.custom import admit_split, admit_whole
from cutlock.workers.base import Generator, Prompt

__all__ = ["RolloutPump"]


class RolloutPump:
    """Admits batches and runs one task per group that is in flight."""

    def __init__(self, state: RunState, generator: Generator) -> None:
        self._state = state
        self._generator = generator
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group_of: dict[asyncio.Task[None], str] = {}
        self._generating: set[str] = set()
        self._excused: Counter[str] = Counter()
        """Tries by group that ended with their worker, which is not the group's fault."""
        in_flight = state.config.buffer.max_in_flight or state.permits.capacity
        self._in_flight = asyncio.Semaphore(in_flight)
        self._group: asyncio.TaskGroup | None = None

    @property
    def in_flight(self) -> int:
        """Groups that are launched and neither committed nor gone."""
        return len(self._tasks)

    @property
    def oldest(self) -> tuple[str, ...]:
        """The groups in flight that were launched first, four at most."""
        return tuple(itertools.islice(self._tasks, 4))

    async def run(self) -> None:
        """Serve every prompt; return when all have been committed or are gone."""
        state = self._state
        async with asyncio.TaskGroup() as self._group:
            for record in state.ledger.admitted():
                await state.permits.acquire()
                self._launch(record)
            for admission_id, _ in state.ledger.reserved():
                await self._admit(admission_id)
            while (next_id := await self._next_batch()) is not None:
                await self._admit(next_id)

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

    async def _admit(self, admission_id: int) -> None:
        """Wait at the gate, admit the batch in one slot, launch each group that has a place.

        The first place is taken before the admission, so that start weights are fresh; to
        ask for all of them would deadlock when a step waits for part of this batch.
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
                admitted = await admit_split(sampler, state.barrier, state.version, opened, commit)
            else:
                admitted = await admit_whole(sampler, state.barrier, state.version, opened, commit)
        except BaseException:
            state.permits.release()
            raise
        for place, record in enumerate(admitted):
            if place:
                await state.permits.acquire()
            self._launch(record)

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

    # One group in flight.

    def _launch(self, record: LedgerRecord) -> None:
        """Start the rollout of an admitted group, which has a place in the buffer."""
        if self._group is None:
            raise InvariantError(f"group {record.group_id!r} launched before the pump runs")
        task = self._group.create_task(self._rollout(record), name=f"rollout {record.group_id}")
        self._tasks[record.group_id] = task
        self._group_of[task] = record.group_id
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Give back the place of a rollout without a commit, one that never began included."""
        if (group_id := self._group_of.get(task)) is not None:
            self._land(group_id)
            self._state.permits.release()
        self._state.changed.notify()

    def _land(self, group_id: str) -> None:
        """Note that a group is in flight no more; if it is finished, it keeps its place."""
        del self._group_of[self._tasks.pop(group_id)]
        self._excused.pop(group_id, None)

    async def _rollout(self, record: LedgerRecord) -> None:
        current: LedgerRecord | None = record
        while current is not None:
            current = await self._attempt(current)

    async def _attempt(self, record: LedgerRecord) -> LedgerRecord | None:
        """Generate and commit once; return what to try next, None when the task is done."""
        state = self._state
        group_id = record.group_id
        attempt = state.buffer.reserve(record)
        try:
            async with self._in_flight:
                fields = await self._generate(record, attempt)
            async with state.barrier.atomic_mutation("group_commit") as slot:
                await state.buffer.commit(slot, group_id, fields, end_weight=state.version.value)
                state.commits += 1
                self._land(group_id)
        except (NoWorkerError, PlaneLostError):
            # Nothing can be tried again: the prompt stays owed, and a resume tries it.
            raise
        except (WorkerError, PlaneError, asyncio.CancelledError) as error:
            failure = error if isinstance(error, Exception) else _cancelled_within(error)
            state.events.record(
                Action.FAIL_GROUP, group=group_id, attempt=attempt, error=str(failure)
            )
            self._excused[group_id] += isinstance(failure, WorkerLostError)
            if attempt + 1 - self._excused[group_id] < state.config.failures.attempts:
                return record
            return await self._give_up(record, failure)
        finally:
            state.buffer.release(group_id)
        return None

    async def _generate(self, record: LedgerRecord, attempt: int) -> Fields:
        state = self._state
        group_id = record.group_id
        await state.stops.reach(Action.LAUNCH_GROUP, group=group_id)
        state.events.record(Action.LAUNCH_GROUP, group=group_id, attempt=attempt)
        prompt = self._prompt(record.occurrence)
        seed = zlib.crc32(f"{state.config.seed}/{group_id}/{attempt}".encode())
        self._generating.add(group_id)
        try:
            rollouts = await self._generator.generate(
                prompt, group_size=state.config.group_size, seed=seed
            )
        finally:
            self._generating.discard(group_id)
        return rollouts.fields

    def _prompt(self, occurrence: Occurrence) -> Prompt:
        prompt = self._state.prompts.by_id(occurrence.prompt_id)
        if prompt.digest != occurrence.digest:
            raise ConfigMismatchError(
                f"prompt {occurrence.prompt_id!r} had the digest {occurrence.digest} when it "
                f"was handed out and has {prompt.digest} now; use the data set of the bundle"
            )
        return prompt

    # Losses.

    async def _give_up(self, record: LedgerRecord, error: Exception) -> LedgerRecord | None:
        """Replace a lost group by a spare, or close its step short; in one slot."""
        state = self._state
        group_id = record.group_id
        await state.stops.reach(Action.DROP_GROUP, group=group_id)
        async with state.barrier.atomic_mutation("drop") as slot:
            budget = state.config.failures.drop_budget
            if state.dropped >= budget:
                raise DropBudgetError(
                    f"group {group_id!r} failed {state.config.failures.attempts} times and "
                    f"failures.drop_budget = {budget} is used up; its prompt stays owed and a "
                    f"resume tries it again; last error: {error}"
                ) from error
            state.dropped += 1
            state.buffer.forget_attempts(group_id)
            self._excused.pop(group_id, None)
            for spare in state.pool.take(slot):
                weight = state.sampler.substitute_weight(
                    record.start_weight or 0, state.version.value
                )
                substitute = state.ledger.substitute(slot, group_id, spare, weight)
                state.events.record(
                    Action.SUBSTITUTE_GROUP, group=group_id, substitute=substitute.group_id
                )
                task = self._tasks.pop(group_id)
                self._tasks[substitute.group_id] = task
                self._group_of[task] = substitute.group_id
                return substitute
            state.ledger.discard(slot, group_id)
            if state.sampler.credits_shortfall():
                self._credit(slot, record.dispatch_index or 0)
            state.events.record(Action.DROP_GROUP, group=group_id, reason=str(error))
        return None

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
            task = self._tasks[group_id]
            task.cancel()
        await asyncio.wait({task})


def _cancelled_within(error: asyncio.CancelledError) -> WorkerError:
    """A call that ended as cancelled although nobody has cancelled its rollout, as a failure.

    A task that ends so looks like an aborted one: its group would be owed for ever.
    """
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise error
    return WorkerError("the generator or the store cancelled its own call; look into its log")


def _served(batch: Batch) -> dict[str, object]:
    return {
        "epoch": batch.epoch,
        "position": batch.position,
        "groups": _keys(batch.occurrences),
    }


def _keys(occurrences: Sequence[Occurrence]) -> list[str]:
    return [occurrence.key for occurrence in occurrences]
