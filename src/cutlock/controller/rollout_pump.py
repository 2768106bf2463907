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

from cutlock.alphabet import Action
from cutlock.errors import (
    ConfigMismatchError,
    InvariantError,
    NoWorkerError,
    PlaneError,
    PlaneLostError,
    WorkerError,
    WorkerLostError,
)
from cutlock.plane.base import Fields
from cutlock.records import LedgerRecord, Occurrence
from cutlock.run.dispatch import Dispatcher
from cutlock.run.state import RunState
from cutlock.workers.base import Generator, Prompt

__all__ = ["RolloutPump"]


class RolloutPump(Dispatcher):
    """Admits batches and runs one task per group that is in flight."""

    def __init__(self, state: RunState, generator: Generator) -> None:
        super().__init__(state)
        self._generator = generator
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group_of: dict[asyncio.Task[None], str] = {}
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

    # Admission.

    async def _admit(self, admission_id: int) -> None:
        """Admit a batch and launch each of its groups that has a place.

        To ask for all places at once would deadlock when a step waits for part of this batch.
        """
        for place, record in enumerate(await self._admission(admission_id)):
            if place:
                await self._state.permits.acquire()
            self._launch(record)

    # One group in flight.

    def _launch(self, record: LedgerRecord) -> None:
        """Start the rollout of an admitted group, which has a place in the buffer."""
        if self._group is None:
            raise InvariantError(
                f"group {record.group_id!r} launched before the pump runs; await run() first"
            )
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
            substitute = self._replace(slot, record, error)
            self._excused.pop(group_id, None)
            if substitute is not None:
                task = self._tasks.pop(group_id)
                self._tasks[substitute.group_id] = task
                self._group_of[task] = substitute.group_id
        return substitute

    def _stop(self, group_id: str) -> asyncio.Task[None]:
        task = self._tasks[group_id]
        task.cancel()
        return task


def _cancelled_within(error: asyncio.CancelledError) -> WorkerError:
    """A call that ended as cancelled although nobody has cancelled its rollout, as a failure.

    A task that ends so looks like an aborted one: its group would be owed for ever.
    """
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise error
    return WorkerError("the generator or the store cancelled its own call; look into its log")
