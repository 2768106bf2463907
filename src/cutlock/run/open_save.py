"""One save, from the request of its cut to the publication of its bundle.

Two modes, with the same promises. *Narrow cut*: all that is in memory is read in one
synchronous step, the trainer is copied, and the loops go on; rows, policy and every file are
written meanwhile. *Full window*: the loops stand still until the rows are written as well, and
the trainer until the bundle is published.

Source: spec actions `RequestCut` to `PublishBundle`; design, sections 4, 8 and 9.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from cutlock.alphabet import Action
from cutlock.barrier import Cut
from cutlock.bundle.consistency import require_consistent
from cutlock.bundle.contents import (
    TrainingInfo,
    encode_sidecars,
    encode_training_info,
    plane_stamp,
)
from cutlock.bundle.layout import DATA_PLANE, POLICY, TRAINING_INFO
from cutlock.bundle.writing import BundleWriter
from cutlock.errors import SaveError
from cutlock.plane.base import PlaneStamp
from cutlock.records import Snapshot
from cutlock.run.capture import Capture
from cutlock.run.cut import read_in_window, require_inventory, take_cut
from cutlock.run.save_clock import SaveClock
from cutlock.run.state import Facts, RunState, SavePhase, TrainPhase
from cutlock.run.together import together
from cutlock.workers.base import Checkpointable

__all__ = ["OpenSave", "RunIdentity", "SaveTiming", "package_versions"]


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
    size: int
    """Of the bundle, in bytes."""


def package_versions() -> dict[str, str]:
    """Versions of the packages that a bundle depends on, recorded in it."""
    return dict(_package_versions())


@functools.cache
def _package_versions() -> tuple[tuple[str, str], ...]:
    names = ("cutlock", "torch", "ray", "TransferQueue", "torchdata", "safetensors", "msgspec")
    return tuple((name, importlib.metadata.version(name)) for name in names)


@dataclass(kw_only=True)
class OpenSave:
    """`cut` and `copy` while the training loop waits, then `write`; `flush` if one fails."""

    state: RunState
    trainer: Checkpointable
    identity: RunIdentity
    clock: SaveClock
    writer: BundleWriter
    """Has made the directories of the parts."""
    step: int
    capture: Capture = field(default_factory=Capture)
    """What has been read so far."""
    published: bool = field(init=False, default=False)
    _cut: Cut = field(init=False)
    _snapshot: Snapshot = field(init=False)
    _sidecars: dict[str, bytes] = field(init=False)
    _log_records: int = field(init=False)
    _history: tuple[int, str] = field(init=False)
    """Of the trainer, when it was copied."""
    _policy_files: Sequence[str] = field(init=False)
    """That the trainer has written."""

    async def cut(self) -> None:
        """Take the cut; when this returns, all but the training loop may go on.

        Raises:
            InvariantError: the state is not one that may be saved.
            SaveError, PlaneError: the rows could not be written, in the full window.
        """
        state, step = self.state, self.step
        phases = state.phases

        async def request() -> Facts:
            phases.save = SavePhase.REQUESTED
            if phases.train is TrainPhase.IDLE:
                phases.train = TrainPhase.SAVING
            return {"step": step}

        await state.act(Action.REQUEST_CUT, request, step=step)
        async with state.barrier.checkpoint() as self._cut:
            if state.barrier.instant:
                await state.stops.reach(Action.TAKE_CUT, step=step)
                take_cut(state, self._cut, self.capture)
                phases.save = SavePhase.COPY
                self._log_records = state.events.count
            else:
                await self._in_window()

    async def copy(self) -> None:
        """Have the trainer copied; when this returns, the training loop may go on.

        In the full window it waits for all of the save, and is copied when the policy is written.

        Raises:
            SaveError, WorkerError: the trainer could not be copied.
        """
        state = self.state
        if state.barrier.instant:
            await state.act(Action.COPY_POLICY, self._copy_policy, step=self.step)
            state.phases.save = SavePhase.PLANE
            state.phases.go_on()

    async def write(self) -> None:
        """Write what was cut, and publish it.

        Raises:
            SaveError, PlaneError, WorkerError, OSError: something could not be written.
            InventoryError: a row of the captured index is not in the plane.
        """
        if self.state.barrier.instant:
            await self.clock.in_thread("encoding the cut", self._encode)
            rows = self.state.config.checkpoint.rows
            if rows:
                await self._save_key_map()
            self.state.phases.save = SavePhase.FILES
            await together(self._write_policy(), *([self._save_rows()] if rows else []))
        else:
            await self._write_policy()
        await self._write_files()
        await self._publish()

    async def flush(self) -> None:
        """Pin no rows any more, and clear those whose clears have waited.

        Raises:
            PlaneError: they could not be cleared.
        """
        state = self.state
        state.plane.unpin()
        if state.plane.deferred:
            await state.stops.reach(Action.FLUSH_DEFERRED)
            cleared = set(await state.plane.flush())
            groups = [
                entry.group_id
                for entry in self.capture.index or ()
                if not cleared.isdisjoint(entry.row_keys)
            ]
            state.events.record(Action.FLUSH_DEFERRED, groups=groups)

    # Full window.

    async def _in_window(self) -> None:
        state, step, cut = self.state, self.step, self._cut

        async def opened() -> Facts:
            state.phases.save = SavePhase.CURSOR
            return {"step": step}

        async def closed() -> Facts:
            state.phases.save = SavePhase.FILES
            return {"step": step}

        await state.act(Action.OPEN_CUT, opened, step=step)
        self._log_records = state.events.count
        await read_in_window(state, cut, self.capture)
        self._encode()
        await self._save_plane()
        state.phases.save = SavePhase.CLOSE
        await state.act(Action.CLOSE_CUT, closed, step=step)

    # Narrow cut.

    async def _save_key_map(self) -> None:
        state = self.state

        async def saved() -> Facts:
            await require_inventory(state.plane, self._snapshot.index, alone=False)
            await state.plane.snapshot_index(self.writer.path / DATA_PLANE)
            return {"rows": self._rows}

        await state.act(Action.SAVE_PLANE, saved)

    async def _save_rows(self) -> None:
        """Have every unit write its rows, while others come and go."""
        state = self.state
        await state.stops.reach(Action.SAVE_UNIT)
        await state.plane.snapshot_rows(self.writer.path / DATA_PLANE, self._stamp())
        for unit in range(state.plane.info.units):
            state.events.record(Action.SAVE_UNIT, unit=unit)
        await self.flush()

    # Both.

    def _encode(self) -> None:
        self._snapshot = self.capture.snapshot(rows=self.state.config.checkpoint.rows)
        require_consistent(self._snapshot)
        self._sidecars = encode_sidecars(self._snapshot)

    async def _save_plane(self) -> None:
        """Have the store write key map and rows, if rows are saved, inside the window."""
        state, run = self.state, self._cut.run
        if not state.config.checkpoint.rows:
            await run(require_inventory(state.plane, self.capture.index or ()))
            return
        directory = self.writer.path / DATA_PLANE

        async def saved() -> Facts:
            await run(require_inventory(state.plane, self._snapshot.index))
            await run(state.plane.snapshot_index(directory))
            await run(state.plane.snapshot_rows(directory, self._stamp()))
            return {"rows": self._rows}

        await state.act(Action.SAVE_PLANE, saved)

    @property
    def _rows(self) -> int:
        return sum(len(entry.row_keys) for entry in self._snapshot.index)

    def _stamp(self) -> PlaneStamp:
        return plane_stamp(self._snapshot, self._sidecars, self.state.plane.info)

    async def _copy_policy(self) -> Facts:
        self._history = await self.clock.by_trainer("copying the policy", self.trainer.copy)
        return {"step": self.step}

    async def _write_policy(self) -> None:
        state, policy = self.state, self.writer.path / POLICY

        async def written() -> Facts:
            if not state.barrier.instant:
                await self._copy_policy()
            self._policy_files = await self.clock.by_trainer(
                "writing the policy", lambda: self.trainer.save(policy)
            )
            return {"step": self.step}

        await state.act(Action.WRITE_POLICY, written, step=self.step)

    async def _write_files(self) -> None:
        state, step, writer = self.state, self.step, self.writer

        async def written() -> Facts:
            info = self._training_info()
            await self.clock.in_thread(
                "writing the sidecars", lambda: _write_all(writer, self._sidecars, info)
            )
            return {"step": step}

        async def sealed() -> Facts:
            parts = [f"{POLICY}/{name}" for name in self._policy_files or ()]
            await self.clock.in_thread(
                "sealing the bundle",
                lambda: writer.seal(
                    self._snapshot.cut_id, rows=state.config.checkpoint.rows, parts=parts
                ),
            )
            return {"step": step}

        await state.act(Action.WRITE_SIDECARS, written, step=step)
        await state.act(Action.WRITE_MANIFEST, sealed, step=step)

    async def _publish(self) -> None:
        state, step, writer = self.state, self.step, self.writer
        # The cut's past must be as durable as the bundle that refers to it.
        await self.clock.in_thread("syncing the event log", state.events.sync)
        await state.stops.reach(Action.PUBLISH_BUNDLE, step=step)
        cancelled = None
        try:
            await self.clock.in_thread("publishing the bundle", writer.publish)
        except (SaveError, asyncio.CancelledError) as error:
            if writer.revoke():
                raise
            # It came a moment after its limit, or the cancellation while it came.
            cancelled = error if isinstance(error, asyncio.CancelledError) else None
        state.events.record(Action.PUBLISH_BUNDLE, step=step, bundle=writer.final.name)
        self.published = True
        state.phases.save = SavePhase.PUBLISHED
        self._cut.settled()
        if cancelled is not None:
            raise cancelled

    @property
    def timing(self) -> SaveTiming:
        """Of a save that was published."""
        times = self._cut.timing
        groups = len(self._snapshot.index)
        return SaveTiming(
            step=self.step,
            drain=times.drain,
            exclusive=times.exclusive,
            asynchronous=times.asynchronous,
            groups=groups,
            size=self.writer.size,
        )

    def _training_info(self) -> TrainingInfo:
        state, snapshot = self.state, self._snapshot
        rows = state.config.checkpoint.rows
        trained_groups, trained_chain = self._history
        return TrainingInfo(
            run_id=self.identity.run_id,
            cut_id=snapshot.cut_id,
            step=snapshot.step,
            version=snapshot.version,
            epoch=snapshot.loader.epoch,
            cursor=snapshot.cursor,
            sampler=state.sampler.name,
            incarnation=self.identity.incarnation,
            log_records=self._log_records,
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


def _write_all(writer: BundleWriter, sidecars: dict[str, bytes], info: TrainingInfo) -> None:
    for name, data in sidecars.items():
        writer.write(name, data)
    info = msgspec.structs.replace(info, parts=writer.digest_parts())
    writer.write(TRAINING_INFO, encode_training_info(info))
