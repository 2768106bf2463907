"""A run in a loop of one's own: the parts of the controller, and one cut over all of them.

The loop decides when rollouts are generated, when a step trains and when a save is due. Which
prompt is whose is decided by the code that the controller's pumps are made of.

Source: design, sections 4 and 11.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec

from cutlock.alphabet import Action
from cutlock.barrier import Barrier, Slot
from cutlock.buffer import ReplayBuffer
from cutlock.errors import MisuseError
from cutlock.events import EventLog
from cutlock.ledger import Ledger
from cutlock.plane.base import READABLE_VERSIONS, BootstrapPlane, DataPlane, Fields
from cutlock.plane.memory import MemoryBootstrap, MemoryPlane
from cutlock.records import IndexEntry, LedgerRecord
from cutlock.run.assembly import StateParts, begin, take_over
from cutlock.run.config import RunConfig
from cutlock.run.dispatch import Dispatcher
from cutlock.run.ending import logged_failure
from cutlock.run.metrics import Metrics, TrainedStep
from cutlock.run.opening import open_directory
from cutlock.run.restore import PlaneReady, load_plane, restore_state
from cutlock.run.save import FailedSave, RunIdentity, Saver, SaveTiming
from cutlock.run.state import RunState
from cutlock.run.steps import Steps
from cutlock.samplers import AnySampler, TrainerVersion
from cutlock.spare_pool import SparePool
from cutlock.workers.base import Checkpointable, PromptSet, StepReport

__all__ = ["Run", "open_run"]

_KINDS = frozenset({"transfer_queue", "memory"})


class _Try:
    """A block that somebody else may end, without ending the task that it is in."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "a coroutine that runs has a task"
        self._task = task
        self._cancelling = task.cancelling()
        self.stopped = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def stop(self) -> asyncio.Future[None]:
        """Cancel what the task waits for; the result is done when the block has ended."""
        self.stopped = True
        self._task.cancel()
        return self.ended

    def stopped_alone(self) -> bool:
        """Whether the cancellation that has come is that of `stop`, and nobody else's too."""
        return self.stopped and self._task.cancelling() <= self._cancelling + 1

    def end(self) -> None:
        """The block is over; the task goes on as if `stop` had not cancelled it."""
        if self.stopped:
            self._task.uncancel()
        self.ended.set_result(None)


class Run(Dispatcher, Steps):
    """One run in this process, restored and ready; made by `open_run`.

    All of it belongs to one event loop. One task dispatches, one trains and saves; rollouts may
    be as many tasks as the buffer has places.
    """

    def __init__(self, state: RunState, saver: Saver, metrics: Metrics) -> None:
        Dispatcher.__init__(self, state)
        Steps.__init__(self, state)
        self._saver = saver
        self._metrics = metrics
        self._tries: dict[str, _Try] = {}
        self._failed: set[str] = set()
        """Groups whose last try has failed."""

    # The parts.

    @property
    def config(self) -> RunConfig:
        """What the run is configured by."""
        return self._state.config

    @property
    def barrier(self) -> Barrier:
        """Lets changes and cuts exclude each other; every change of an owner is made in a slot."""
        return self._state.barrier

    @property
    def plane(self) -> DataPlane:
        """The client of the store that all changes of rows go through."""
        return self._state.plane

    @property
    def sampler(self) -> AnySampler:
        """Decides when a batch is dispatched and which groups train; the configuration names it."""
        return self._state.sampler

    @property
    def ledger(self) -> Ledger:
        """Owner of every prompt between the data set and the buffer."""
        return self._state.ledger

    @property
    def buffer(self) -> ReplayBuffer:
        """Index of the finished groups; their rows are in the plane."""
        return self._state.buffer

    @property
    def pool(self) -> SparePool:
        """Prompts held back to replace those that are given up."""
        return self._state.pool

    @property
    def version(self) -> TrainerVersion:
        """Version of the trainer's weights: training steps finished."""
        return self._state.version

    @property
    def step(self) -> int:
        """The training step that is open or comes next, from 0, counted over restarts."""
        return self._state.step

    @property
    def ending(self) -> str:
        """What the run has come to: `exhausted`, `max_steps`, or `stopped` before either."""
        if self._finished():
            return "exhausted"
        return "max_steps" if self.target_reached else "stopped"

    @property
    def saves(self) -> tuple[SaveTiming, ...]:
        """The saves of this process that were published."""
        return tuple(self._saver.timings)

    @property
    def failed_saves(self) -> tuple[FailedSave, ...]:
        """The saves of this process that have failed, while the run went on."""
        return tuple(self._saver.failed)

    # Rollouts.

    async def dispatch(self) -> AsyncIterator[LedgerRecord]:
        """The groups to generate, each as soon as it may begin; ends when no prompt is left.

        What a bundle has left unfinished comes first, in the order of its dispatch. Then batch
        after batch is taken from the data set (one slot), waits at the sampler's gate (no slot),
        and is admitted (one slot). Each group has a place in the buffer when it is given out, so
        start it at once, in a task of its own, and ask for the next: a gate may wait for it.

        Raises:
            InvariantError: cursor or stamps are not where they should be.

        Source: spec actions `ReserveBatch` to `CommitAdmission`.
        """
        state = self._state
        for record in state.ledger.admitted():
            await state.permits.acquire()
            yield record
        for admission_id, _ in state.ledger.reserved():
            async for record in self._admitted(admission_id):
                yield record
        while (next_id := await self._next_batch()) is not None:
            async for record in self._admitted(next_id):
                yield record

    @contextlib.asynccontextmanager
    async def attempt(self, record: LedgerRecord) -> AsyncIterator[int]:
        """One try at a group, which is to be generated and committed within the block.

        Gives the number of the try in this process, from 0. An error leaves the block as it is;
        the group is still owed, so try again in a new block, or `give_up`. A group that becomes
        too old for the sampler while it is generated is dropped, recorded, and its block ends at
        its next await as if it had committed.

        Raises:
            MisuseError: the block has ended without a commit and without an error.
            InvariantError: another try is under way, or the group is finished.

        Source: spec actions `LaunchGroup`, `FailGroup`, `AbortStale`.
        """
        state, group_id = self._state, record.group_id
        attempt = state.buffer.reserve(record)
        state.events.record(Action.LAUNCH_GROUP, group=group_id, attempt=attempt)
        self._failed.discard(group_id)
        self._tries[group_id] = this = _Try()
        self._generating.add(group_id)
        try:
            yield attempt
            if group_id in state.ledger:
                raise MisuseError(
                    f"the attempt at group {group_id!r} has ended without a commit; call "
                    "commit() in its block, in a slot, or let an error out of it"
                )
        except asyncio.CancelledError:
            if not this.stopped_alone():
                raise
        except Exception as error:
            if group_id in state.ledger:
                self._failed.add(group_id)
                state.events.record(
                    Action.FAIL_GROUP, group=group_id, attempt=attempt, error=str(error)
                )
            raise
        finally:
            self._generating.discard(group_id)
            del self._tries[group_id]
            this.end()
            if this.stopped:
                state.permits.release()
            state.buffer.release(group_id)
            state.changed.notify()

    async def commit(self, slot: Slot, record: LedgerRecord, fields: Fields) -> IndexEntry:
        """Put the rows of a finished group and hand it from the ledger to the buffer.

        Args:
            slot: of this run's barrier, made by `atomic_mutation`: all that a cut reads changes
                in one step, after the rows are put.
            fields: one tensor per sibling, and so `group_size`, under each name. One of them is
                `reward`, float32 of shape (1,): a restore reads it to see that rows have data.

        Raises:
            MisuseError: the slot has ended, or is none of this barrier.
            InvariantError: the group is not under way, or a field has another number of rows;
                nothing was changed.
            PlaneError: the rows could not be put; they have been cleared, and the group is owed.

        Source: spec actions `BeginCommit` to `CommitGroup`, `RollbackGroup`.
        """
        version = self._state.version.value
        self._generating.discard(record.group_id)
        return await self._state.buffer.commit(slot, record.group_id, fields, end_weight=version)

    async def give_up(self, record: LedgerRecord, error: Exception) -> LedgerRecord | None:
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
        if record.group_id not in self._failed:
            raise MisuseError(
                f"group {record.group_id!r} cannot be given up before an attempt at it has failed; "
                "let the error out of the block of attempt()"
            )
        async with state.barrier.atomic_mutation("drop") as slot:
            substitute = self._replace(slot, record, error)
        self._failed.discard(record.group_id)
        if substitute is None:
            state.permits.release()
        state.changed.notify()
        return substitute

    # Training.

    async def next_step(self) -> list[IndexEntry] | None:
        """Wait for the groups of the next training step, and claim them; None at the end.

        The end is that of the data, or of `max_steps`. Groups that have become too old for the
        sampler are dropped meanwhile, recorded, and a step of which all groups were given up is
        counted without training.

        Raises:
            MisuseError: the step before was not finished.
            StallError: nothing is left to wait for, and the sampler chooses none of what is there.

        Source: spec actions `EvictGroups`, `SelectGroups`.
        """
        if self.buffer.claimed:
            raise MisuseError(
                f"step {self.step} still owns {sorted(self.buffer.claimed)}; call finish_step() "
                "when it has trained"
            )
        while not self.target_reached:
            if self._stale():
                await self._evict()
            elif self._finished():
                return None
            elif self._selectable() is None:
                await self._wait_for_groups()
            elif (entries := await self._select()) is not None:
                if entries:
                    return entries
                await self._count_step()
        return None

    async def finish_step(
        self,
        report: StepReport | None = None,
        *,
        sync: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Count the open step as trained: its rows are deleted and the version is raised.

        Args:
            report: what the step has done; kept as metrics, for plots only.
            sync: hands the new weights to whatever generates; awaited when the version has been
                raised. Leave it out where both share their weights.

        Raises:
            MisuseError: no step is open.

        Source: spec actions `TrainStep` to `SyncWeights`.
        """
        state, entries = self._state, [*self.buffer.claimed.values()]
        if not entries:
            raise MisuseError(f"step {self.step} has claimed no groups; call next_step() first")
        # Whoever trains has computed what is derived from the rows; a restore takes none of it.
        state.events.record(Action.WRITE_ADVANTAGES, step=state.step)
        state.events.record(
            Action.TRAIN_STEP, step=state.step, groups=[entry.group_id for entry in entries]
        )
        state.trained += len(entries)
        if report is not None:
            oldest = min(entry.start_weight for entry in entries)
            self._metrics.write(TrainedStep(state.step, report, state.version.value - oldest))
        await self._clear()
        await self._count_step(sync)

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
        await self._saver.save()

    async def _admitted(self, admission_id: int) -> AsyncIterator[LedgerRecord]:
        for place, record in enumerate(await self._admission(admission_id)):
            if place:
                await self._state.permits.acquire()
            yield record

    def _stop(self, group_id: str) -> asyncio.Future[None]:
        return self._tries[group_id].stop()

    async def _count_step(self, sync: Callable[[], Awaitable[object]] | None = None) -> None:
        await self._raise_version()
        await self.abort_stale(self._state.version.value)
        if sync is not None:
            await sync()
        self._state.events.record(Action.SYNC_WEIGHTS, version=self._state.version.value)


@contextlib.asynccontextmanager
async def open_run(
    root: Path,
    config: RunConfig,
    prompts: PromptSet,
    trainer: Checkpointable,
    *,
    store: BootstrapPlane | None = None,
    connect: Callable[[], Awaitable[DataPlane]] | None = None,
    bundle: str | None = None,
    with_rows: bool = True,
) -> AsyncIterator[Run]:
    """Begin a run, or go on with the one in `root` from its last bundle: one call for both.

    Restoring is all or nothing: the bundle is verified and decoded, the store filled, the state
    restored and compared, and only then is the `Run` given out. Its start is saved, so that there
    is always a bundle. When the block ends by itself, its last step is saved; when it ends by an
    error, what counts is the last bundle.

    Args:
        root: directory of the run; new or empty, or that of a run.
        config: of which `workers`, `task`, `watchdog`, `metrics`, `failures.attempts` and
            `checkpoint.every` are the controller's and mean nothing here.
        prompts: the data set; a resume refuses another one.
        trainer: whoever holds the weights. Give a new one: it is loaded from the bundle.
        store: an untouched store, to be filled; None for one in this process's memory.
        connect: makes a client of `store`; given with it or not at all.
        bundle: name of the bundle to go on from, e.g. `step_8`; None for the latest.
        with_rows: False generates the finished groups of the bundle again.

    Raises:
        MisuseError: a store without `connect`, or the other way round.
        ConfigError: the directory holds something else, another process runs the run, or the
            configuration has changed in a way that no rule allows (`docs/resume.md`).
        BundleNotFoundError, BundleCorruptError, RestoreError: there is nothing to go on from.
        PlaneTouchedError: somebody has used the store already.
        CutlockError: what has ended the run; the event log's last record names it.

    Source: spec actions `BeginRun` to `StartPumps`; design, section 10.
    """
    store, connect = _store(config, store, connect)
    kind, version = store.info.kind, store.info.version
    config = msgspec.structs.replace(
        config,
        plane=msgspec.structs.replace(
            config.plane, kind=kind if kind in _KINDS else "own", units=store.info.units
        ),
    )
    readable = {kind: (version,), **READABLE_VERSIONS}
    directory, plan = open_directory(
        root, config, prompts, bundle=bundle, with_rows=with_rows, readable=readable
    )
    with directory.lock():
        ready = await load_plane(plan, store)
        if plan is not None:
            await trainer.load(plan.policy_directory)
        incarnation = directory.next_incarnation()
        parts = StateParts(
            config=config,
            prompts=prompts,
            connect=connect,
            identity=RunIdentity(directory.facts().run_id, incarnation),
            root=directory.root,
            events=EventLog(directory.log_path(incarnation)),
        )
        try:
            with logged_failure(parts.events):
                run, saver = await _restore(ready, trainer, parts)
                async with saver:
                    await _save_start(run, saver)
                    yield run
                    await saver.save_final()
        except BaseException:
            with contextlib.suppress(OSError):
                parts.events.close()
            raise
        parts.events.record(Action.END_RUN, reason=run.ending)
        parts.events.close()


def _store(
    config: RunConfig,
    store: BootstrapPlane | None,
    connect: Callable[[], Awaitable[DataPlane]] | None,
) -> tuple[BootstrapPlane, Callable[[], Awaitable[DataPlane]]]:
    if store is not None and connect is not None:
        return store, connect
    if store is not None or connect is not None:
        raise MisuseError("a store and `connect`, which makes its clients, go together; give both")
    made = MemoryBootstrap(units=config.plane.units)

    async def connect_here() -> DataPlane:
        return MemoryPlane(made.store)

    return made, connect_here


async def _restore(
    ready: PlaneReady, trainer: Checkpointable, parts: StateParts
) -> tuple[Run, Saver]:
    connected, state = await begin(ready, parts)
    restored = await restore_state(connected, state)
    take_over(ready, parts)
    saver = Saver(state, trainer, parts.identity, parts.root, restored.saved_step)
    return Run(state, saver, Metrics(parts.root, parts.identity.incarnation)), saver


async def _save_start(run: Run, saver: Saver) -> None:
    """Nothing is trained before there is a bundle, or an attempt at one has failed."""
    state = run._state
    state.events.record(Action.START_PUMPS, step=state.step, version=state.version.value)
    state.events.record(Action.SYNC_WEIGHTS, version=state.version.value)
    await saver.save()
    while saver.start_due:
        await state.changed.wait()
