"""The event log and the metrics of a run, on against off, end to end.

A whole run in one process on the in-process plane, from the first batch to the last bundle. It
uses the shipped demo's configuration and its torch workers, which sample 8 responses of about 4
tokens per group from a policy of 64 hidden units. That is far less work than any real rollout, so
the log weighs far more here than in practice. The worst case is measured too: workers that do
nothing, so that only controller, plane and log remain.

Off means that the controller gets a log that discards its records and metrics that write nothing.
The counters of the barrier stay on in both; their cost is part of the figures of `slots`.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
import torch

from bench.doubles import IdleGenerator, IdleTrainer, NoEvents, NoMetrics
from bench.harness import Goal, Measurement, Samples, Session, compare, interleave
from bench.scratch import scratch
from cutlock.cli.demo import DEMO_CONFIG
from cutlock.controller.assembly import Parts, assemble, build_prompts
from cutlock.controller.core import Controller
from cutlock.events import EventLog
from cutlock.plane.base import DataPlane
from cutlock.plane.memory import MemoryBootstrap, MemoryPlane
from cutlock.run.config import RunConfig, load_config
from cutlock.run.directory import RunDirectory
from cutlock.run.restore import load_plane
from cutlock.run.save import RunIdentity
from cutlock.workers.base import Generator, Trainer
from cutlock.workers.prompts import ReverseTask
from cutlock.workers.torch_generator import LocalGenerator, TorchGenerator
from cutlock.workers.torch_trainer import LocalTrainer, TorchTrainer

Workers = Callable[[ReverseTask, DataPlane, RunConfig], tuple[Trainer, Generator]]

UNNOTICED = Goal(0.98, at_least=True)


def measure(session: Session) -> Iterator[Measurement]:
    torch.set_num_threads(1)
    yield from _case(session, "torch", _torch_workers, "the demo's torch workers", UNNOTICED)
    yield from _case(session, "idle", _idle_workers, "workers that do nothing", None)


def _case(
    session: Session, case: str, workers: Workers, words: str, goal: Goal | None
) -> Iterator[Measurement]:
    session.say(f"runs with {words}")
    config = demo(session.pick(full=3, quick=1, tiny=1), session.pick(full=96, quick=48, tiny=8))
    rollouts = config.task.prompts * config.epochs * config.group_size
    cpu: dict[str, list[float]] = {"on": [], "off": []}
    with scratch() as root:
        runs = (root / str(number) for number in itertools.count())

        def run(name: str) -> float:
            wall, processor = asyncio.run(one_run(next(runs), config, workers, log=name == "on"))
            cpu[name].append(processor)
            return rollouts / wall

        samples = interleave(
            {"on": partial(run, "on"), "off": partial(run, "off")}, session.repetitions(15)
        )
    yield compare(
        f"rollouts_{case}",
        samples,
        "on",
        "off",
        what=f"rollouts per second of a whole run with log and metrics, {words}",
        beside="the same run without",
        unit="1/s",
        goal=goal,
    )
    yield compare(
        f"processor_{case}",
        _counted(cpu, samples),
        "on",
        "off",
        what=f"CPU time of the same runs, {words}",
        beside="the same runs without",
        unit="s",
        note="less noisy than wall time on a shared machine",
    )


def _counted(cpu: Mapping[str, Sequence[float]], samples: Samples) -> Samples:
    """Without the turns that warmed up."""
    return {name: values[-len(samples[name]) :] for name, values in cpu.items()}


def demo(epochs: int, prompts: int) -> RunConfig:
    """The shipped demo; saved at its start and its end only, for disks are noisy."""
    config = load_config(DEMO_CONFIG)
    replace = msgspec.structs.replace
    return replace(
        config,
        epochs=epochs,
        task=replace(config.task, prompts=prompts),
        checkpoint=replace(config.checkpoint, every=1_000_000),
        plane=replace(config.plane, kind="memory"),
    )


async def one_run(
    root: Path, config: RunConfig, workers: Workers, *, log: bool
) -> tuple[float, float]:
    """Seconds on the clock and of the processor that a run took."""
    controller, events = await _build(root, config, workers, log=log)
    clock, processor = time.perf_counter(), time.process_time()
    await controller.run()
    took = time.perf_counter() - clock, time.process_time() - processor
    events.close()
    return took


async def _build(
    root: Path, config: RunConfig, workers: Workers, *, log: bool
) -> tuple[Controller, EventLog | NoEvents]:
    prompts = build_prompts(config)
    directory = RunDirectory(root)
    directory.create(config, prompts)
    bootstrap = MemoryBootstrap(units=config.plane.units)
    events = EventLog(directory.log_path(1)) if log else NoEvents()

    async def connect() -> DataPlane:
        return MemoryPlane(bootstrap.store)

    ready = await load_plane(None, bootstrap)
    trainer, generator = workers(prompts, await connect(), config)
    controller = await assemble(
        ready,
        Parts(
            config=config,
            prompts=prompts,
            connect=connect,
            trainer=trainer,
            generator=generator,
            identity=RunIdentity("bench", 1),
            root=root,
            events=events,
        ),
    )
    if not log:
        controller.engine._metrics = NoMetrics()
    return controller, events


def _torch_workers(
    prompts: ReverseTask, plane: DataPlane, config: RunConfig
) -> tuple[Trainer, Generator]:
    trainer = LocalTrainer(TorchTrainer(prompts.shape, seed=config.seed), plane)
    return trainer, LocalGenerator(TorchGenerator(prompts.shape, prompts))


def _idle_workers(
    prompts: ReverseTask, plane: DataPlane, config: RunConfig
) -> tuple[Trainer, Generator]:
    return IdleTrainer(), IdleGenerator(config.group_size)
