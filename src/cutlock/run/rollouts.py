"""The rollout half of the engine: from the dataloader through admission and tries to the buffer.

Source: spec actions `ReserveBatch` to `CommitGroup`, `DropGroup`, `SubstituteGroup` and
`AbortStale`; design, sections 4, 7 and 11.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from cutlock.alphabet import Action
from cutlock.barrier import Slot
from cutlock.errors import (
    ConfigMismatchError,
    CutlockError,
    DropBudgetError,
    InvariantError,
    MisuseError,
    NoWorkerError,
    PlaneError,
    PlaneLostError,
    WorkerError,
    WorkerLostError,
)
from cutlock.loader import Batch
from cutlock.plane.base import Fields
from cutlock.records import IndexEntry, LedgerRecord, Occurrence
from cutlock.run.state import Facts, RunState
from cutlock.samplers import Admission, TransactionalAdmissionSampler
from cutlock.samplers.custom import admit_split, admit_whole
from cutlock.workers.base import Prompt

__all__ = ["Attempt", "PromptGroup", "Rollouts"]


@dataclass(frozen=True)
class PromptGroup:
    """One group to generate: a prompt, of which `group_size` siblings are wanted."""

    record: LedgerRecord
    """Its owner, until it is committed."""
    prompt: Prompt

    @property
    def group_id(self) -> str:
        """Stable over tries and restarts."""
        return self.record.group_id

    @property
    def occurrence(self) -> Occurrence:
        """Which prompt of the data set, in which epoch."""
        return self.record.occurrence


class Attempt:
    """One try at a group; made by `Run.attempt`."""

    def __init__(self, rollouts: Rollouts, group: PromptGroup, number: int) -> None:
        self.group = group
        self.number = number
        """Of the try, in this process, from 0."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine that runs has a task"
        self._rollouts = rollouts
        self.task = task
        """The task that it was begun in."""
        self._cancelling = task.cancelling()
        self._stopped = False
        self._unclean = False
        """Whether its rows could be neither put nor cleared."""
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def commit(self, fields: Fields) -> IndexEntry:
        """Put the rows of the finished group, and hand it from the ledger to the buffer.

        Takes its own slot, and waits while a cut is open that keeps it out.

        Args:
            fields: one tensor per sibling, and so `group_size`, under each name. One of them is
                `reward`, float32 of shape (1,): a restore reads it to see that rows have data.

        Raises:
            MisuseError: the block of the attempt has ended.
            InvariantError: the group is committed already, or a field has another number of
                rows; nothing was changed.
            PlaneError: the rows could not be put; they have been cleared, and the group is owed.

        Source: spec actions `BeginCommit` to `CommitGroup`, `RollbackGroup`.
        """
        if self._ended.done():
            raise MisuseError(
                f"attempt {self.number} at group {self.group.group_id!r} has ended; commit within "
                "its block"
            )
        try:
            return await self._rollouts._commit(self, fields)
        except BaseExceptionGroup:
            self._unclean = True
            raise

    def _stop(self) -> asyncio.Future[None]:
        """Cancel what the task waits for; the result is done when the block has ended."""
        self._stopped = True
        self.task.cancel()
        return self._ended

    def _end(self) -> None:
        """The block is over; the task goes on as if `_stop` had not cancelled it."""
        if self._stopped:
            self.task.uncancel()
        self._ended.set_result(None)

    @property
    def _cancelled_by_stop(self) -> bool:
        """Whether the cancellation that has come is that of `_stop`, and nobody else's too."""
        return self._stopped and self.task.cancelling() <= self._cancelling + 1

    @property
    def _cancelled_by_nobody(self) -> bool:
        """Whether a call within the block has cancelled itself."""
        return not self._stopped and self.task.cancelling() <= self._cancelling


@dataclass(kw_only=True)
class _Flight:
    """A group that has a place in the buffer and is not finished."""

    group: PromptGroup
    attempt: Attempt | None = None
    """The try that is under way."""
    launching: bool = False
    """It counts as one of those that are generated at the same time."""
    generating: bool = False
    """The try may be stopped."""
    failed: bool = False
    """The last try has failed."""
    rolled_out: bool = False
    """`Rollouts.roll_out` has it, also between two tries and when a spare takes the place."""

    @property
    def left_alone(self) -> bool:
        """Whether nothing of ours works on it."""
        return self.attempt is None and not self.rolled_out


class Rollouts:
    """Gives every prompt its owner in the ledger, tries it, replaces what is lost."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._flights: dict[str, _Flight] = {}
        """In the order in which they were given a place."""
        self._launches = asyncio.Semaphore(
            state.config.buffer.max_in_flight or state.permits.capacity
        )
        self._dispatch: object = None
        """The iteration of `dispatch` that began last."""
        self._dispatching = False
        """Whether somebody waits within it."""
        self.gate_passed = False
        """Whether a batch has passed the sampler's gate and is not admitted yet."""

    # What may be looked at.

    @property
    def in_flight(self) -> int:
        """Groups that were dispatched and are neither committed nor gone."""
        return len(self._flights)

    @property
    def oldest(self) -> tuple[str, ...]:
        """The groups in flight that were dispatched first, four at most."""
        return tuple(itertools.islice(self._flights, 4))

    @property
    def attempts(self) -> Mapping[str, Attempt]:
        """The tries that are under way, by group id."""
        return {
            group_id: flight.attempt
            for group_id, flight in self._flights.items()
            if flight.attempt is not None
        }

    def attempt_phases(self) -> Mapping[str, str]:
        """How far the groups in flight are, by group id; spec variable `task`."""
        return {group_id: self._phase(flight) for group_id, flight in self._flights.items()}

    def _phase(self, flight: _Flight) -> str:
        committing = self._state.buffer.committing.get(flight.group.group_id)
        if committing is not None:
            return committing
        if flight.generating:
            return "gen"
        return "failed" if flight.failed else "none"

    # Dispatch.

    async def dispatch(self) -> AsyncIterator[PromptGroup]:
        """The groups to generate, each as soon as it may begin; ends when no prompt is left.

        What a bundle has left unfinished comes first, in the order of its dispatch. Then batch
        after batch is taken from the data set (one slot), waits at the sampler's gate (no slot),
        and is admitted (one slot). Each group has a place in the buffer when it is given out, so
        start it at once, in a task of its own, and ask for the next: a gate may wait for it.

        Iterate again when an iteration has ended by an error: first come the groups that were
        given out and are not finished, unless an `attempt` or a `roll_out` is at work on them.

        Raises:
            MisuseError: another iteration is under way.
            ConfigMismatchError: the data set has another content under a prompt's id.
            InvariantError: cursor or stamps are not where they should be.

        Source: spec actions `ReserveBatch` to `CommitAdmission`.
        """
        if self._dispatching:
            raise MisuseError(
                "dispatch() is called while another iteration of it waits for a group; iterate in "
                "one task, and start the rollouts in others"
            )
        self._dispatch = this = object()
        self._dispatching = True
        try:
            async with contextlib.aclosing(self._owed()) as groups:
                async for group in groups:
                    self._dispatching = False
                    yield group
                    if self._dispatch is not this:
                        raise MisuseError(
                            f"dispatch() was called again after it had given out "
                            f"{group.group_id!r}; go on with the newer iteration"
                        )
                    self._dispatching = True
        finally:
            if self._dispatch is this:
                self._dispatching = False

    async def _owed(self) -> AsyncGenerator[PromptGroup]:
        state = self._state
        for flight in [*self._flights.values()]:
            if flight.left_alone and self._flights.get(flight.group.group_id) is flight:
                yield flight.group
        # Admitted groups may be the only work that can move the trainer and open the gate.
        for record in state.ledger.admitted():
            if record.group_id not in self._flights and record.group_id in state.ledger:
                await state.permits.acquire()
                yield self._place(record)
        for admission_id, _ in state.ledger.reserved():
            async for group in self._admit(admission_id):
                yield group
        while (next_id := await self._next_batch()) is not None:
            async for group in self._admit(next_id):
                yield group

    async def _admit(self, admission_id: int) -> AsyncIterator[PromptGroup]:
        """Admit a batch, and give out each of its groups that has a place.

        To ask for all places at once would deadlock when a step waits for part of this batch.
        """
        for place, record in enumerate(await self._admission(admission_id)):
            if place:
                await self._state.permits.acquire()
            yield self._place(record)

    def _place(self, record: LedgerRecord, flight: _Flight | None = None) -> PromptGroup:
        """Note that an admitted group has a place from now on: a new one, or that of `flight`."""
        try:
            group = PromptGroup(record, self._prompt(record.occurrence))
        except BaseException:
            self._state.permits.release()
            raise
        if flight is None:
            flight = _Flight(group=group)
        flight.group, flight.failed = group, False
        self._flights[record.group_id] = flight
        return group

    def _prompt(self, occurrence: Occurrence) -> Prompt:
        prompt = self._state.prompts.by_id(occurrence.prompt_id)
        if prompt.digest != occurrence.digest:
            raise ConfigMismatchError(
                f"prompt {occurrence.prompt_id!r} had the digest {occurrence.digest} when it "
                f"was handed out and has {prompt.digest} now; use the data set of the bundle"
            )
        return prompt

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
            if self.pool_is_low():
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

    def pool_is_low(self) -> bool:
        """Whether the next batch goes into the spare pool, as a whole."""
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
            self.gate_passed = True
            await state.stops.reach(Action.COMMIT_ADMISSION, admission=admission_id)

        def commit(slot: Slot, admission: Admission) -> list[LedgerRecord]:
            records = self._commit_admission(slot, admission_id, admission)
            self.gate_passed = False
            return records

        sampler = state.sampler
        try:
            await state.stops.reach(Action.OPEN_GATE, admission=admission_id)
            if isinstance(sampler, TransactionalAdmissionSampler):
                return await admit_split(sampler, state.barrier, state.version, opened, commit)
            return await admit_whole(sampler, state.barrier, state.version, opened, commit)
        except BaseException:
            state.permits.release()
            raise
        finally:
            self.gate_passed = False

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

    # One group.

    async def roll_out(
        self, group: PromptGroup, generate: Callable[[Attempt], Awaitable[Fields]]
    ) -> None:
        """Try a group until it is committed or gone; the tries, pauses and losses of one rollout.

        A try that fails is followed by another one after `failures.pause_s`, twice as long after
        each, until `failures.attempts` have failed; then the group is given up, and a spare takes
        its place if there is one. A worker that is lost is not the group's fault: such a try does
        not count.

        Args:
            generate: generates one try's rows, as `Attempt.commit` takes them. Whatever it raises
                is a failed try, but for errors of the family that no later try can mend.

        Raises:
            MisuseError: the group was not given out, or another `roll_out` has it.
            DropBudgetError: `failures.drop_budget` is used up; the group is still owed.
            CutlockError: no later try can succeed; the group is still owed.

        Source: spec actions `LaunchGroup` to `SubstituteGroup`.
        """
        if (flight := self._flights.get(group.group_id)) is None:
            raise _has_no_place(group)
        if flight.rolled_out:
            raise MisuseError(
                f"group {group.group_id!r} is rolled out already; call roll_out() once for each "
                "group that dispatch() hands out"
            )
        flight.rolled_out = True
        try:
            await self._try(group, generate)
        finally:
            flight.rolled_out = False

    async def _try(
        self, group: PromptGroup, generate: Callable[[Attempt], Awaitable[Fields]]
    ) -> None:
        current: PromptGroup | None = group
        failures = 0
        while current is not None:
            try:
                async with self.attempt(current) as attempt:
                    await attempt.commit(await generate(attempt))
                return
            except Exception as error:
                if not _may_succeed_later(error) or attempt._unclean:
                    raise
                failure = error
            failures += not isinstance(failure, WorkerLostError)
            limits = self._state.config.failures
            if failures < limits.attempts:
                await self._pause(failures)
                continue
            current = await self.give_up(current, failure)
            failures = 0

    async def _pause(self, failures: int) -> None:
        limits = self._state.config.failures
        if limits.pause_s:
            pause_s = limits.pause_s * 2.0 ** max(0, failures - 1)
            await self._state.sleep(min(pause_s, limits.longest_pause_s))

    @contextlib.asynccontextmanager
    async def attempt(self, group: PromptGroup) -> AsyncIterator[Attempt]:
        """One try at a group, which is to be generated and committed within the block.

        An error leaves the block as it is; the group is still owed, so try again in a new block,
        or `give_up`. A group that becomes too old for the sampler while it is generated is
        dropped, recorded, and its block ends at its next await as if it had committed.

        Raises:
            MisuseError: the group was not given out by `dispatch` or `give_up`; or the block has
                ended without a commit and without an error.
            InvariantError: another try is under way, or the group is finished.
            WorkerError: a call within the block cancelled itself.

        Source: spec actions `LaunchGroup`, `FailGroup`, `AbortStale`.
        """
        state, group_id = self._state, group.group_id
        this = Attempt(self, group, state.buffer.reserve(group.record))
        flight = self._flights.get(group_id)
        if flight is None:
            state.buffer.release(group_id)
            raise _has_no_place(group)
        flight.attempt = this
        launched = False
        try:
            await self._launches.acquire()
            flight.launching = True
            await state.stops.reach(Action.LAUNCH_GROUP, group=group_id)
            state.events.record(Action.LAUNCH_GROUP, group=group_id, attempt=this.number)
            launched = flight.generating = True
            flight.failed = False
            yield this
            if self._flights.get(group_id) is flight:
                raise MisuseError(
                    f"the attempt at group {group_id!r} has ended without a commit; call "
                    "commit() in its block, or let an error out of it"
                )
        except asyncio.CancelledError as error:
            if this._cancelled_by_nobody and launched:
                # A task that ends so looks like an aborted one: its group would be owed for ever.
                failure = WorkerError(
                    "the generator or the store cancelled its own call; look into its log"
                )
                self._fail(this, flight, failure)
                raise failure from error
            if not this._cancelled_by_stop:
                raise
        except Exception as error:
            # A store or a last worker that is lost is no failure of this group.
            lost = isinstance(error, NoWorkerError | PlaneLostError)
            if launched and not (lost or this._unclean):
                self._fail(this, flight, error)
            raise
        finally:
            self._leave_generation(flight)
            flight.attempt = None
            this._end()
            if this._stopped:
                self._forget(group_id)
            state.buffer.release(group_id)
            state.changed.notify()

    def _fail(self, attempt: Attempt, flight: _Flight, error: Exception) -> None:
        group_id = attempt.group.group_id
        if self._flights.get(group_id) is flight:
            flight.failed = True
            self._state.events.record(
                Action.FAIL_GROUP, group=group_id, attempt=attempt.number, error=str(error)
            )

    def _leave_generation(self, flight: _Flight) -> None:
        """Let another group be generated; a second call is no error."""
        flight.generating = False
        if flight.launching:
            flight.launching = False
            self._launches.release()

    def _forget(self, group_id: str) -> None:
        """Give back the place of a group that is gone."""
        del self._flights[group_id]
        self._state.permits.release()

    async def _commit(self, attempt: Attempt, fields: Fields) -> IndexEntry:
        state, group_id = self._state, attempt.group.group_id
        # From here on it is past being stopped: it is committed, and evicted if stale.
        if (flight := self._flights.get(group_id)) is not None:
            self._leave_generation(flight)
        async with state.barrier.atomic_mutation("group_commit") as slot:
            entry = await state.buffer.commit(
                slot, group_id, fields, end_weight=state.version.value
            )
            # It keeps its place until it is selected.
            del self._flights[group_id]
            state.commits += 1
            return entry

    # Losses.

    async def give_up(self, group: PromptGroup, error: Exception) -> PromptGroup | None:
        """Drop a group that keeps failing; return the spare that takes its place, if there is one.

        Without one, the step of the group goes short.

        Args:
            error: why; it is recorded.

        Raises:
            MisuseError: the last attempt at the group has not failed.
            DropBudgetError: `failures.drop_budget` is used up; the group is still owed.

        Source: spec actions `DropGroup`, `SubstituteGroup`.
        """
        state = self._state
        self._require_failed(group)
        await state.stops.reach(Action.DROP_GROUP, group=group.group_id)
        async with state.barrier.atomic_mutation("drop") as slot:
            # Somebody else may have given it up meanwhile, or tried it again.
            self._require_failed(group)
            substitute = self._replace(slot, group.record, error)
            if substitute is None:
                self._forget(group.group_id)
                state.changed.notify()
                return None
            return self._place(substitute, self._flights.pop(group.group_id))

    def _require_failed(self, group: PromptGroup) -> None:
        flight = self._flights.get(group.group_id)
        if flight is None or not flight.failed or flight.attempt is not None:
            raise MisuseError(
                f"group {group.group_id!r} cannot be given up before an attempt at it has failed; "
                "let the error out of the block of attempt()"
            )

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
        launched = (
            record for record in state.ledger.admitted() if self._is_generated(record.group_id)
        )
        return next((r.group_id for r in launched if r.start_weight in stale), None)

    def _is_generated(self, group_id: str) -> bool:
        flight = self._flights.get(group_id)
        return flight is not None and flight.generating

    async def _abort(self, group_id: str, version: int) -> None:
        state = self._state
        stopped: list[asyncio.Future[None]] = []

        def abort(slot: Slot) -> Facts | None:
            # It may have left generation meanwhile, or an earlier one have come to it.
            if self.first_stale(version) != group_id:
                return None
            state.ledger.discard(slot, group_id)
            state.buffer.release(group_id)
            state.buffer.forget_attempts(group_id)
            flight = self._flights[group_id]
            self._leave_generation(flight)
            assert flight.attempt is not None
            stopped.append(flight.attempt._stop())
            return {"group": group_id, "version": version}

        if await state.change(Action.ABORT_STALE, "stale_abort", abort, group=group_id):
            await asyncio.wait(stopped)


def _has_no_place(group: PromptGroup) -> MisuseError:
    return MisuseError(
        f"group {group.group_id!r} has no place in the buffer; try the groups that dispatch() and "
        "give_up() hand out"
    )


def _may_succeed_later(error: Exception) -> bool:
    """Whether another try at the same group can end otherwise."""
    if isinstance(error, CutlockError):
        retried = isinstance(error, WorkerError | PlaneError)
        return retried and not isinstance(error, NoWorkerError | PlaneLostError)
    return True


def _served(batch: Batch) -> dict[str, object]:
    return {
        "epoch": batch.epoch,
        "position": batch.position,
        "groups": _keys(batch.occurrences),
    }


def _keys(occurrences: Sequence[Occurrence]) -> list[str]:
    return [occurrence.key for occurrence in occurrences]
