"""A real Ray with a real TransferQueue, and a controller's state whose rows are in it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("TQ_LOGGING_LEVEL", "ERROR")

import msgspec
import ray
import torch
import transfer_queue as tq  # after the adapter, which sets how it is imported

from bench.scratch import scratch
from cutlock.barrier import Barrier
from cutlock.controller.assembly import build_prompts
from cutlock.events import MemoryLog
from cutlock.plane.base import DataPlane, Fields, SnapshotMode
from cutlock.plane.pinning import PinningPlane
from cutlock.plane.transfer_queue import TransferQueueBootstrap, TransferQueuePlane
from cutlock.records import LedgerRecord
from cutlock.run.config import CheckpointConfig, RunConfig, parse_config
from cutlock.run.save import RunIdentity, Saver, SaveTiming
from cutlock.run.state import build_state
from cutlock.samplers import TransactionalAdmissionSampler
from cutlock.workers.base import DERIVED_FIELDS, Trainer
from cutlock.workers.torch_trainer import LocalTrainer, TorchTrainer

__all__ = ["GROUP_SIZE", "MEGABYTE", "Cluster", "Filled", "cluster"]

MEGABYTE = 1 << 20
GROUP_SIZE = 8
_PARTITION = "rollouts"


class Cluster:
    """One TransferQueue that serves a whole group: it is emptied rather than started again."""

    def __init__(self, runner: asyncio.Runner, root: Path) -> None:
        self.runner = runner
        self.root = root
        self.bootstrap = runner.run(TransferQueueBootstrap.start(RunConfig().plane.units))
        self._untouched = root / "untouched"
        tq.save_checkpoint(self._untouched)

    def empty(self) -> TransferQueueBootstrap:
        """Bring back the store as it was when it started; its clients must be closed.

        Loading the snapshot of an untouched store takes milliseconds, a new store seconds.
        """
        tq.load_checkpoint(self._untouched)
        own = tq.get_client().storage_manager.storage_manager_id
        controller = ray.get_actor("TransferQueueController", namespace="transfer_queue")
        ray.get(
            controller.__ray_call__.remote(
                lambda store: store._connected_storage_managers.intersection_update({own})
            )
        )
        self.bootstrap = TransferQueueBootstrap(controller, RunConfig().plane.units, 600.0)
        return self.bootstrap

    def bare_save(self, path: Path) -> None:
        """What a user of TransferQueue alone would call."""
        tq.save_checkpoint(path)

    def bare_load(self, path: Path) -> None:
        """What a user of TransferQueue alone would call."""
        tq.load_checkpoint(path)

    def connect(self, snapshot: SnapshotMode = "aside") -> TransferQueuePlane:
        return self.runner.run(
            TransferQueuePlane.connect(_PARTITION, limit_s=600.0, snapshot=snapshot)
        )


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Ray on loopback with an untouched TransferQueue; both end with the block."""
    ray.init(
        address="local",
        num_cpus=16,  # logical: controller, units and trainer share the cores there are
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    try:
        with scratch() as root, asyncio.Runner() as runner:
            made = Cluster(runner, root)
            try:
                yield made
            finally:
                runner.run(made.bootstrap.stop())
    finally:
        ray.shutdown()


class Filled:
    """A controller's state with `megabytes` of rows that are finished and not yet trained.

    Args:
        checkpoint: how its saves are made.
        trainer: writes the policy; None for the shipped one.
        row_bytes: of each row; where that is more than there shall be, rows are smaller.
    """

    def __init__(
        self,
        plane: DataPlane,
        runner: asyncio.Runner,
        megabytes: int,
        checkpoint: CheckpointConfig,
        trainer: Trainer | None = None,
        *,
        row_bytes: int = MEGABYTE,
    ) -> None:
        config = config_for(checkpoint)
        prompts = build_prompts(config)
        self.plane = PinningPlane(plane, DERIVED_FIELDS)
        self.state = build_state(
            config,
            prompts,
            self.plane,
            MemoryLog(),
            lineage="bench",
            now=time.monotonic,
            sleep=asyncio.sleep,
        )
        self._trainer = trainer or LocalTrainer(TorchTrainer(prompts.shape), plane)
        groups = max(1, megabytes * MEGABYTE // (GROUP_SIZE * row_bytes))
        runner.run(self._fill(groups, megabytes * MEGABYTE // (groups * GROUP_SIZE)))

    async def _fill(self, groups: int, row_bytes: int) -> None:
        filled = 0
        while filled < groups:
            await self.advance_loader()
            for record in await self.admit():
                rows = [torch.rand(row_bytes // 4) for _ in range(GROUP_SIZE)]
                await self.commit(record, {"response": rows})
                filled += 1

    # What the pumps do, one slot each.

    async def advance_loader(self) -> None:
        """Reserve the next batch."""
        state = self.state
        async with state.barrier.mutation("loader_advance") as slot:
            batch = state.loader.next_batch(slot)
            assert batch is not None
            state.ledger.reserve(slot, batch.occurrences)
            if batch.ends_epoch:
                state.loader.raise_epoch(slot)

    async def admit(self) -> list[LedgerRecord]:
        """Admit the batch that was reserved last."""
        state, sampler = self.state, self.state.sampler
        assert isinstance(sampler, TransactionalAdmissionSampler)
        async with state.barrier.atomic_mutation("admission") as slot:
            given = sampler.commit_admission(slot, state.version.value)
            return state.ledger.admit(
                slot,
                state.ledger.next_admission - 1,
                dispatch_index=given.dispatch_index,
                stamp=given.stamp,
                start_weight=state.version.value,
            )

    async def commit(self, record: LedgerRecord, fields: Fields) -> None:
        """Put the rows of a group and index it."""
        state = self.state
        state.buffer.reserve(record)
        async with state.barrier.atomic_mutation("group_commit") as slot:
            await state.buffer.commit(slot, record.group_id, fields, end_weight=state.version.value)

    async def evict(self, group_id: str) -> None:
        """Drop a finished group and its rows."""
        state = self.state
        async with state.barrier.atomic_mutation("evict") as slot:
            await state.buffer.evict(slot, state.version.value, [group_id])

    def save_by(self, checkpoint: CheckpointConfig) -> None:
        """Make later saves in another way; nothing may be under way."""
        state = self.state
        state.config = msgspec.structs.replace(state.config, checkpoint=checkpoint)
        state.barrier = Barrier(instant=checkpoint.cut_of(self.plane) == "narrow")
        parts: tuple[Any, ...] = (state.ledger, state.buffer, state.pool, state.shortfall)
        for part in (*parts, state.loader, state.sampler):
            part._barrier = state.barrier

    async def save(self, root: Path) -> SaveTiming:
        """Save the next step into `root`; return when it is published."""
        state = self.state
        state.step = state.next_selection = state.step + 1
        saver = Saver(state, self._trainer, RunIdentity("bench", 1), root)
        async with saver:
            await saver.save_final()
        assert not saver.failed
        return saver.timings[-1]


def config_for(checkpoint: CheckpointConfig) -> RunConfig:
    """A run that never waits at its gate nor runs out of prompts."""
    config = parse_config(
        {
            "epochs": 1_000_000,
            "sampler": {"name": "in_order", "window": 1_000_000},
            "prompts_per_step": 4,
            "group_size": GROUP_SIZE,
            "task": {"prompts": 64, "length": 4, "vocabulary": 6},
            "plane": {"limit_s": 600.0},
        }
    )
    return msgspec.structs.replace(config, checkpoint=checkpoint)
