"""The saver of a run: one save at a time, what becomes of a failed one, and pruning.

A save is `OpenSave`. Under the narrow cut the training loop waits for its first half only; the
rest runs in a task of its own, and the next save waits for that.

Source: spec actions `RequestCut` to `FailSave`; design, sections 8 and 9.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from cutlock.alphabet import Action
from cutlock.bundle.files import Mark
from cutlock.bundle.layout import DATA_PLANE, POLICY
from cutlock.bundle.publication import prune
from cutlock.bundle.writing import BundleWriter
from cutlock.errors import (
    BundleExistsError,
    PlaneError,
    PlaneLostError,
    SaveError,
    WorkerError,
    WorkerLostError,
)
from cutlock.run.capture import Capture
from cutlock.run.open_save import OpenSave, RunIdentity, SaveTiming, package_versions
from cutlock.run.save_clock import SaveClock
from cutlock.run.state import Facts, RunState, SavePhase
from cutlock.waiting import cancelled_by_nobody
from cutlock.workers.base import Checkpointable

__all__ = ["FailedSave", "RunIdentity", "SaveTiming", "Saver", "package_versions"]


class FailedSave(msgspec.Struct, frozen=True):
    """One save, or the pruning after one, that failed while the run went on."""

    step: int
    error: str


class Saver:
    """Writes bundles into one run directory, one at a time; use it with `async with`.

    What is left of a save at the end of the block is waited for; an error of it ends the block.

    Args:
        root: directory of the bundles.
        saved_step: the step of the bundle that this run was restored from, if any.
    """

    def __init__(
        self,
        state: RunState,
        trainer: Checkpointable,
        identity: RunIdentity,
        root: Path,
        saved_step: int | None = None,
    ) -> None:
        self._state = state
        self._trainer = trainer
        self._identity = identity
        self._root = root
        self.saved_step = saved_step
        """The step of the last bundle that was published, or restored from."""
        self._failures = 0
        self.tasks = asyncio.TaskGroup()
        self._last: asyncio.Task[None] | None = None
        """The last save, if it runs in a task of its own."""
        self.open: OpenSave | None = None
        """The save that is neither published nor has failed."""
        self._unflushed: OpenSave | None = None
        """A failed save whose deferred clears have failed as well."""
        self._debris: tuple[BundleWriter, ...] = ()
        """Failed saves of which something is left on disk."""
        self.timings: list[SaveTiming] = []
        self.failed: list[FailedSave] = []

    async def __aenter__(self) -> Self:
        await self.tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.tasks.__aexit__(exc_type, exc, traceback)

    @property
    def capture(self) -> Capture | None:
        """What the open save has read; None when no save is open."""
        return None if self.open is None else self.open.capture

    @property
    def start_due(self) -> bool:
        """Whether the run starts from nothing, and its start was neither saved nor failed to be.

        Until then nothing is trained: there is a bundle to resume from.
        """
        return self.saved_step is None and not self._failures

    async def save_final(self) -> None:
        """Save the last step, if it is not saved yet; tried until it succeeds.

        Raises:
            SaveError: the configured number of saves in a row has failed, and the last steps
                of the run are in no bundle.
        """
        await self._last_save()
        while self._state.step != self.saved_step:
            await self.save()
            await self._last_save()

    async def save(self) -> None:
        """Save this step, unless it is saved already; the run goes on if that fails.

        Under the narrow cut this returns when the trainer has been copied, and what goes wrong
        later ends the block that the saver is used with.

        Raises:
            InvariantError: the state is not one that may be saved; the run must end, and
                resumes from the last bundle.
            SaveError: the configured number of saves in a row has failed.
            PlaneLostError, WorkerLostError: no later save can succeed either.
        """
        await self._last_save()
        step = self._state.step
        if step == self.saved_step:
            return
        if not self._state.barrier.instant:
            await self._save(step)
            return
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last = self.tasks.create_task(self._save(step, taken), name=f"save of step {step}")
        await asyncio.wait({self._last, taken}, return_when=asyncio.FIRST_COMPLETED)

    async def _last_save(self) -> None:
        """Return when it is over: one at a time (design, section 8, rule 5)."""
        if self._last is not None:
            await asyncio.wait({self._last})

    async def _save(self, step: int, taken: asyncio.Future[None] | None = None) -> None:
        """Write one bundle, and prune; `taken` is done when the training loop may go on."""
        try:
            with self._new_clock() as clock:
                marks = await self._write(step, clock, taken)
        except (PlaneLostError, WorkerLostError):
            raise
        except (SaveError, BundleExistsError, PlaneError, WorkerError, OSError) as error:
            self._failures += 1
            self._state.changed.notify()
            limit = self._state.config.checkpoint.failures_in_a_row
            if self._failures >= limit:
                last = "none" if self.saved_step is None else f"step {self.saved_step}"
                raise SaveError(
                    f"{self._failures} saves in a row have failed "
                    f"(checkpoint.failures_in_a_row = {limit}); last bundle: {last}; resume the "
                    f"run when {self._root} can be written; last error: {error}"
                ) from error
            return
        self._failures = 0
        await self._prune(step, marks)

    async def _write(
        self, step: int, clock: SaveClock, taken: asyncio.Future[None] | None
    ) -> Mapping[str, Mark]:
        """Write one bundle; a failure is recorded in the step in which it opens the door."""
        writer: BundleWriter | None = None
        opened: OpenSave | None = None
        try:
            if self._unflushed is not None:
                await self._unflushed.flush()
                self._unflushed = None
            writer = await clock.in_thread(
                "making the bundle's directories", lambda: self._begin(step)
            )
            self.open = opened = OpenSave(
                state=self._state,
                trainer=self._trainer,
                identity=self._identity,
                clock=clock,
                writer=writer,
                step=step,
            )
            await opened.cut()
            await opened.copy()
            if taken is not None:
                taken.set_result(None)
            await opened.write()
            return writer.marks
        except (Exception, asyncio.CancelledError) as caught:
            error = _failure(caught)
            self.open = None
            phases = self._state.phases
            phases.save = SavePhase.NONE
            phases.go_on()
            self._record_failure(step, error)
            if opened is not None:
                try:
                    await opened.flush()
                except PlaneError:
                    self._unflushed = opened
            if writer is not None and writer.revoke():
                self._debris += (writer,)
            if self._debris:
                # What cannot be removed now, the next save or the next start removes.
                with contextlib.suppress(SaveError):
                    await clock.in_thread("removing the failed bundle", self._remove_debris)
            if error is not caught:
                raise error from caught
            raise
        finally:
            self.open = None
            self._state.plane.unpin()
            if opened is not None and opened.published:
                self.saved_step = step
                self.timings.append(opened.timing)
                self._state.changed.notify()
            if writer is not None:
                # A thread that is still at it publishes nothing any more.
                writer.revoke()

    async def _prune(self, step: int, marks: Mapping[str, Mark]) -> None:
        """Keep the newest bundles; failing to remove an old one fails nothing else."""
        state = self._state
        keep, published = state.config.checkpoint.keep, self._root / f"step_{step}"

        async def pruned() -> Facts:
            with self._new_clock() as clock:
                removed = await clock.in_thread(
                    "pruning old bundles",
                    lambda: prune(self._root, keep, published, marks=marks),
                )
            return {"bundles": [path.name for path in removed]}

        try:
            await state.act(Action.PRUNE_BUNDLES, pruned)
        except (SaveError, OSError) as error:
            self._record_failure(step, error)
        finally:
            state.phases.save = SavePhase.NONE
            state.phases.go_on()

    def _new_clock(self) -> SaveClock:
        return SaveClock(self._state.config.checkpoint.limit_s, self._state.sleep)

    def _record_failure(self, step: int, error: Exception) -> None:
        self._state.events.record(Action.FAIL_SAVE, step=step, error=str(error))
        self.failed.append(FailedSave(step, str(error)))

    def attempt(self, step: int) -> int:
        """Number, from 1, of the open or next attempt at saving a step."""
        return 1 + sum(save.step == step for save in self.failed)

    def _begin(self, step: int) -> BundleWriter:
        with contextlib.suppress(SaveError):
            self._remove_debris()
        writer = BundleWriter.begin(
            self._root, self._identity.run_id, step, attempt=self.attempt(step)
        )
        try:
            if self._state.config.checkpoint.rows:
                writer.directory(DATA_PLANE)
            writer.directory(POLICY)
        except SaveError:
            writer.revoke()
            self._debris += (writer,)
            raise
        return writer

    def _remove_debris(self) -> None:
        for writer in self._debris:
            writer.abandon()
            self._debris = tuple(other for other in self._debris if other is not writer)


def _failure(error: Exception | asyncio.CancelledError) -> Exception:
    """What a save has failed with; a cancellation that nobody has asked for is a failure too.

    A task that ends by it would look like one that its run has ended.
    """
    if isinstance(error, Exception):
        return error
    if not cancelled_by_nobody():
        raise error
    return SaveError("the trainer or the store cancelled its own call; look into its log")
