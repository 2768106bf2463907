"""The save: six reads of one instant, then everything else at leisure.

Full window: the reads and the plane's snapshot run inside the exclusive window of the
barrier; policy, sidecars, manifest and publication follow outside it. The directory is
made before the window, so a slow file system does not lengthen it by that.

Source: spec actions `ReadCursor` to `PublishBundle`; design, sections 4, 8 and 9.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from cutlock.alphabet import Action
from cutlock.barrier import Cut
from cutlock.bundle.artifacts import DATA_PLANE, POLICY, TRAINING_INFO
from cutlock.bundle.consistency import require_consistent
from cutlock.bundle.contents import (
    TrainingInfo,
    encode_sidecars,
    encode_training_info,
    plane_stamp,
)
from cutlock.bundle.publication import prune
from cutlock.bundle.writing import BundleWriter
from cutlock.controller.capture import Capture, LedgerRead
from cutlock.controller.save_clock import SaveClock
from cutlock.controller.state import RunState
from cutlock.errors import (
    BundleExistsError,
    InvariantError,
    InventoryError,
    PlaneError,
    PlaneLostError,
    SaveError,
    WorkerError,
    WorkerLostError,
)
from cutlock.records import IndexEntry, Snapshot
from cutlock.workers.base import POLICY_FILES, Trainer

__all__ = ["FailedSave", "RunIdentity", "SaveTiming", "Saver", "package_versions"]

T = TypeVar("T")


@dataclass(frozen=True)
class RunIdentity:
    """Which run, and which start of its controller."""

    run_id: str
    incarnation: int


class SaveTiming(msgspec.Struct, frozen=True):
    """The three times of one save that was published, in seconds, and what it held."""

    step: int
    drain: float
    exclusive: float
    asynchronous: float
    groups: int


class FailedSave(msgspec.Struct, frozen=True):
    """One save, or the pruning after one, that failed while the run went on."""

    step: int
    error: str


def package_versions() -> dict[str, str]:
    """Versions of the packages that a bundle depends on, recorded in it."""
    return dict(_package_versions())


@functools.cache
def _package_versions() -> tuple[tuple[str, str], ...]:
    names = ("cutlock", "torch", "ray", "TransferQueue", "torchdata", "safetensors", "msgspec")
    return tuple((name, importlib.metadata.version(name)) for name in names)


class Saver:
    """Writes bundles into one run directory, one at a time.

    Args:
        root: directory of the bundles.
        saved_step: the step of the bundle that this run was restored from, if any.
    """

    def __init__(
        self,
        state: RunState,
        trainer: Trainer,
        identity: RunIdentity,
        root: Path,
        saved_step: int | None = None,
    ) -> None:
        self._state = state
        self._trainer = trainer
        self._identity = identity
        self._root = root
        self._saved_step = saved_step
        self._failures = 0
        self._clock: SaveClock
        """Of the open save, or of the pruning after it."""
        self._debris: tuple[BundleWriter, ...] = ()
        """Failed saves of which something is left on disk."""
        self.capture: Capture | None = None
        """What the open save has read; None when no save is open."""
        self.timings: list[SaveTiming] = []
        self.failed: list[FailedSave] = []

    async def save_final(self) -> None:
        """Save the last step, if it is not saved yet; tried until it succeeds.

        Raises:
            SaveError: the configured number of saves in a row has failed, and the last steps
                of the run are in no bundle.
        """
        while not await self.save():
            pass

    async def save(self) -> bool:
        """Write one bundle; False if that failed and the run may go on.

        Nothing is done if this step is saved already.

        Raises:
            InvariantError: the state is not one that may be saved; the run must end, and
                resumes from the last bundle.
            SaveError: the configured number of saves in a row has failed.
            PlaneLostError, WorkerLostError: no later save can succeed either.
        """
        step = self._state.step
        if step == self._saved_step:
            return True
        try:
            with self._new_clock() as self._clock:
                await self._write(step)
        except (PlaneLostError, WorkerLostError):
            raise
        except (SaveError, BundleExistsError, PlaneError, WorkerError, OSError) as error:
            self._failures += 1
            limit = self._state.config.checkpoint.failures_in_a_row
            if self._failures >= limit:
                last = "none" if self._saved_step is None else f"step {self._saved_step}"
                raise SaveError(
                    f"{self._failures} saves in a row have failed "
                    f"(checkpoint.failures_in_a_row = {limit}); last bundle: {last}; resume the "
                    f"run when {self._root} can be written; last error: {error}"
                ) from error
            return False
        self._failures = 0
        await self._prune(step)
        return True

    async def _prune(self, step: int) -> None:
        """Keep the newest bundles; failing to remove an old one fails nothing else."""
        state = self._state
        await state.stops.reach(Action.PRUNE_BUNDLES)
        keep, published = state.config.checkpoint.keep, self._root / f"step_{step}"
        try:
            with self._new_clock() as self._clock:
                removed = await self._clock.in_thread(
                    "pruning old bundles", lambda: prune(self._root, keep, published)
                )
        except (SaveError, OSError) as error:
            self._record_failure(step, error)
            return
        state.events.record(Action.PRUNE_BUNDLES, bundles=[path.name for path in removed])

    async def _write(self, step: int) -> None:
        """Write one bundle; a failure is recorded in the step in which it opens the door."""
        writer: BundleWriter | None = None
        try:
            writer = await self._clock.in_thread(
                "making the bundle's directory", lambda: self._begin(step)
            )
            self.capture = Capture()
            await self._write_into(writer, step, self.capture)
        except Exception as error:
            self.capture = None
            self._record_failure(step, error)
            if writer is not None and writer.revoke():
                self._debris += (writer,)
                # What cannot be removed now, the next save or the next start removes.
                with contextlib.suppress(SaveError):
                    await self._clock.in_thread("removing the failed bundle", self._remove_debris)
            raise
        finally:
            self.capture = None
            if writer is not None:
                # A thread that is still at it publishes nothing any more.
                writer.revoke()

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
        return BundleWriter.begin(
            self._root, self._identity.run_id, step, attempt=self.attempt(step)
        )

    def _remove_debris(self) -> None:
        for writer in self._debris:
            writer.abandon()
            self._debris = tuple(other for other in self._debris if other is not writer)

    async def _write_into(self, writer: BundleWriter, step: int, capture: Capture) -> None:
        state = self._state
        rows = state.config.checkpoint.rows
        plane_path = writer.directory(DATA_PLANE) if rows else None
        policy_path = writer.directory(POLICY)
        await state.stops.reach(Action.REQUEST_CUT, step=step)
        state.events.record(Action.REQUEST_CUT, step=step)
        async with state.barrier.checkpoint() as cut:
            await state.stops.reach(Action.OPEN_CUT, step=step)
            state.events.record(Action.OPEN_CUT, step=step)
            log_records = state.events.count
            await self._read(cut, capture)
            snapshot = capture.snapshot(rows=rows)
            require_consistent(snapshot)
            sidecars = encode_sidecars(snapshot)
            if plane_path is None:
                await self._check_inventory(cut, capture.index or ())
            else:
                await self._save_plane(cut, snapshot, sidecars, plane_path)
            await state.stops.reach(Action.CLOSE_CUT, step=step)
            state.events.record(Action.CLOSE_CUT, step=step)
        await state.stops.reach(Action.WRITE_POLICY, step=step)
        await self._clock.by_trainer("writing the policy", lambda: self._trainer.save(policy_path))
        trained_groups, trained_chain = await self._clock.by_trainer(
            "asking for the training chain", self._trainer.chain
        )
        state.events.record(Action.WRITE_POLICY, step=step)
        info = TrainingInfo(
            run_id=self._identity.run_id,
            cut_id=snapshot.cut_id,
            step=snapshot.step,
            version=snapshot.version,
            epoch=snapshot.loader.epoch,
            cursor=snapshot.cursor,
            sampler=state.sampler.name,
            incarnation=self._identity.incarnation,
            log_records=log_records,
            trained_groups=trained_groups,
            trained_chain=trained_chain,
            rows=rows,
            plane=state.plane.info if rows else None,
            parts={},
            config=state.config.plain(),
            config_digest=state.config.digest,
            data_set=f"{state.prompts.name}, {len(state.prompts)} prompts",
            data_set_digest=state.prompts.digest,
            packages=package_versions(),
        )
        await state.stops.reach(Action.WRITE_SIDECARS, step=step)
        await self._clock.in_thread(
            "writing the sidecars",
            lambda: _write_files(writer, sidecars, info),
        )
        state.events.record(Action.WRITE_SIDECARS, step=step)
        await state.stops.reach(Action.WRITE_MANIFEST, step=step)
        await self._clock.in_thread(
            "sealing the bundle",
            lambda: writer.seal(
                snapshot.cut_id, rows=rows, parts=[f"{POLICY}/{name}" for name in POLICY_FILES]
            ),
        )
        state.events.record(Action.WRITE_MANIFEST, step=step)
        # The cut's past must be as durable as the bundle that refers to it.
        await self._clock.in_thread("syncing the event log", state.events.sync)
        await state.stops.reach(Action.PUBLISH_BUNDLE, step=step)
        cancelled = None
        try:
            await self._clock.in_thread("publishing the bundle", writer.publish)
        except (SaveError, asyncio.CancelledError) as error:
            if writer.revoke():
                raise
            # It came a moment after its limit, or the cancellation while it came.
            cancelled = error if isinstance(error, asyncio.CancelledError) else None
        state.events.record(Action.PUBLISH_BUNDLE, step=step, bundle=writer.final.name)
        self._saved_step = step
        cut.settled()
        self.timings.append(
            SaveTiming(
                step,
                cut.timing.drain,
                cut.timing.exclusive,
                cut.timing.asynchronous,
                len(snapshot.index),
            )
        )
        if cancelled is not None:
            raise cancelled

    async def _read(self, cut: Cut, capture: Capture) -> None:
        """The reads of the cut, each an action of its own; all of one instant."""
        state = self._state
        events, stops = state.events, state.stops
        if state.buffer.claimed or state.next_selection != state.step:
            raise InvariantError(
                f"the open training step {state.step} still owns {sorted(state.buffer.claimed)}, "
                "or has trained and is not counted yet; save between two steps"
            )
        await stops.reach(Action.READ_CURSOR)
        cursor = capture.cursor = _read_cursor(state, cut)
        events.record(Action.READ_CURSOR, cursor=cursor)
        await stops.reach(Action.READ_LOADER)
        loader = capture.loader = state.loader.snapshot(cut)
        events.record(Action.READ_LOADER, epoch=loader.epoch, position=loader.position)
        await stops.reach(Action.READ_SPARE_POOL)
        spares = capture.spare_pool = state.pool.snapshot(cut)
        events.record(Action.READ_SPARE_POOL, groups=[spare.key for spare in spares])
        await stops.reach(Action.READ_INDEX)
        index = capture.index = state.buffer.snapshot(cut)
        events.record(Action.READ_INDEX, groups=[entry.group_id for entry in index])
        await stops.reach(Action.READ_LEDGER)
        owned = {entry.group_id for entry in index}
        records = state.ledger.snapshot(cut, owned)
        capture.ledger = LedgerRead(
            records=records,
            next_admission=state.ledger.next_admission,
            shortfall=state.shortfall.snapshot(cut),
            dropped=state.dropped,
            step=state.step,
            version=state.version.value,
        )
        events.record(Action.READ_LEDGER, groups=[record.group_id for record in records])

    async def _check_inventory(self, cut: Cut, index: Sequence[IndexEntry]) -> None:
        listed = set(await cut.run(self._state.plane.list_keys()))
        indexed = {key for entry in index for key in entry.row_keys}
        if listed != indexed:
            raise InventoryError(
                f"the plane holds {len(listed)} rows and the index {len(indexed)}: not in the "
                f"index {sorted(listed - indexed)[:4]}, not in the plane "
                f"{sorted(indexed - listed)[:4]}; nothing was saved, resume from the last bundle"
            )

    async def _save_plane(
        self, cut: Cut, snapshot: Snapshot, sidecars: dict[str, bytes], path: Path
    ) -> None:
        state = self._state
        await state.stops.reach(Action.SAVE_PLANE)
        await self._check_inventory(cut, snapshot.index)
        stamp = plane_stamp(snapshot, sidecars, state.plane.info)
        await cut.run(state.plane.snapshot_index(path))
        await cut.run(state.plane.snapshot_rows(path, stamp))
        rows = sum(len(entry.row_keys) for entry in snapshot.index)
        state.events.record(Action.SAVE_PLANE, rows=rows)


def _write_files(writer: BundleWriter, sidecars: dict[str, bytes], info: TrainingInfo) -> None:
    for name, data in sidecars.items():
        writer.write(name, data)
    info = msgspec.structs.replace(info, parts=writer.digest_parts())
    writer.write(TRAINING_INFO, encode_training_info(info))


def _read_cursor(state: RunState, cut: Cut) -> int:
    state.barrier.require_cut(cut)
    return state.sampler.cursor
