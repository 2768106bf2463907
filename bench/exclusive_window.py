"""How long a save shuts the door, with the rows in the bundle and without.

Real Ray, real TransferQueue, the real saver. The same state is saved with
`checkpoint.rows = true` (recovery of finished rollouts on) and `false` (off), in turn.

    python bench/exclusive_window.py --json out/exclusive_window.json
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from cutlock.plane.loopback import keep_ray_on_loopback

keep_ray_on_loopback()

import msgspec
import ray
import torch

from cutlock.barrier import Slot
from cutlock.controller.assembly import build_prompts
from cutlock.controller.config import parse_config
from cutlock.controller.save import RunIdentity, Saver
from cutlock.controller.state import RunState, build_state
from cutlock.events import MemoryLog
from cutlock.plane.transfer_queue import TransferQueueBootstrap, TransferQueuePlane
from cutlock.workers.torch_trainer import LocalTrainer, TorchTrainer

ROWS_PER_GROUP = 8
ROW_BYTES = 1 << 20


async def measure(megabytes: int, repetitions: int) -> list[dict[str, object]]:
    """Window, drain and rest in ms: medians and extremes, with rows and without."""
    groups = max(1, megabytes // ROWS_PER_GROUP)
    row_bytes = min(ROW_BYTES, megabytes * ROW_BYTES // (groups * ROWS_PER_GROUP))
    config = parse_config(
        {
            "sampler": {"name": "in_order", "window": 1},
            "prompts_per_step": groups,
            "group_size": ROWS_PER_GROUP,
            "task": {"prompts": groups, "length": 5, "vocabulary": 8},
            "checkpoint": {"keep": 1},
        }
    )
    bootstrap = await TransferQueueBootstrap.start(config.plane.units)
    await bootstrap.require_untouched()
    plane = await TransferQueuePlane.connect("rollouts")
    prompts = build_prompts(config)
    state = build_state(
        config,
        prompts,
        plane,
        MemoryLog(),
        lineage="bench",
        now=time.monotonic,
        sleep=asyncio.sleep,
    )
    await fill(state, row_bytes)
    trainer = LocalTrainer(TorchTrainer(prompts.shape), plane)
    root = Path(tempfile.mkdtemp(prefix="cutlock-bench-"))
    arms = {}
    for name, rows in (("on", True), ("off", False)):
        checkpoint = msgspec.structs.replace(config.checkpoint, rows=rows)
        arm = dataclasses.replace(
            state, config=msgspec.structs.replace(config, checkpoint=checkpoint)
        )
        arms[name] = (arm, Saver(arm, trainer, RunIdentity(f"bench-{name}", 1), root / name))
    for number in range(repetitions + 1):  # the first one warms up
        for arm, saver in arms.values():
            arm.step = number
            await saver.save()
    results = []
    for name, (_, saver) in arms.items():
        timings = saver.timings[1:]
        row: dict[str, object] = {"megabytes": megabytes, "recovery": name, "saves": len(timings)}
        for field in ("drain", "exclusive", "asynchronous"):
            values = sorted(getattr(t, field) * 1e3 for t in timings)
            row[f"{field}_ms"] = round(statistics.median(values), 2)
            row[f"{field}_ms_range"] = [round(values[0], 2), round(values[-1], 2)]
        results.append(row)
    await plane.close()
    await bootstrap.stop()
    shutil.rmtree(root)
    return results


async def fill(state: RunState, row_bytes: int) -> None:
    """Commit every group of the first step, as the rollout pump would."""
    async with state.barrier.mutation("loader_advance") as slot:
        batch = state.loader.next_batch(slot)
        assert batch is not None
        admission = state.ledger.reserve(slot, batch.occurrences)
        records = admit(state, slot, admission)
        if batch.ends_epoch:
            state.loader.raise_epoch(slot)
    for record in records:
        state.buffer.reserve(record)
        rows = [torch.rand(row_bytes // 4) for _ in range(ROWS_PER_GROUP)]
        async with state.barrier.mutation("group_commit") as slot:
            await state.buffer.commit(slot, record.group_id, {"response": rows}, end_weight=0)


def admit(state: RunState, slot: Slot, admission: int) -> list:
    given = state.sampler.commit_admission(slot, 0)
    return state.ledger.admit(
        slot, admission, dispatch_index=given.dispatch_index, stamp=given.stamp, start_weight=0
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[1, 100, 500])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    ray.init(
        address="local",
        num_cpus=16,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    results = []
    print("rows MB  recovery  drain ms  exclusive ms (range)      rest ms")
    for megabytes in options.megabytes:
        for row in asyncio.run(measure(megabytes, options.repetitions)):
            results.append(row)
            low, high = row["exclusive_ms_range"]
            print(
                f"{megabytes:7}  {row['recovery']:8}  {row['drain_ms']:8}  "
                f"{row['exclusive_ms']:8} ({low} to {high})".ljust(56)
                + f"  {row['asynchronous_ms']:8}",
                flush=True,
            )
    ray.shutdown()
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        machine = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        options.json.write_text(json.dumps({"machine": machine, "results": results}, indent=2))


if __name__ == "__main__":
    main()
