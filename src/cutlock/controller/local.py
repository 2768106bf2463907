"""A whole run in one process, on a `MemoryPlane`: for tests, benchmarks and small trials."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from cutlock.controller.assembly import Parts, assemble, build_prompts
from cutlock.controller.core import Controller
from cutlock.events import EventLog, Events
from cutlock.plane.memory import MemoryBootstrap, MemoryStore
from cutlock.run.config import RunConfig
from cutlock.run.directory import RunDirectory
from cutlock.run.restore import ResumePlan, load_plane
from cutlock.run.save import RunIdentity
from cutlock.stops import NO_STOPS, StopPoints
from cutlock.workers.base import Generator
from cutlock.workers.torch_generator import LocalGenerator, TorchGenerator
from cutlock.workers.torch_trainer import Learning, LocalTrainer, TorchTrainer

__all__ = ["build_local"]


async def build_local(
    directory: RunDirectory,
    config: RunConfig,
    plan: ResumePlan | None = None,
    *,
    store: MemoryStore | None = None,
    generator: Generator | None = None,
    events: Events | None = None,
    stops: StopPoints = NO_STOPS,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Controller:
    """Build a controller in this process, restored from `plan` if there is one.

    Args:
        directory: of a run that exists.
        store: an untouched store; None for a new one.
        generator: None for the shipped one.
        events: None for the next log of the run directory.
    """
    facts = directory.facts()
    prompts = build_prompts(config)
    bootstrap = MemoryBootstrap(store, units=config.plane.units)
    ready = await load_plane(plan, bootstrap)

    core = TorchTrainer(
        prompts.shape, seed=config.seed, learning=Learning(rate=config.workers.learning_rate)
    )
    trainer = LocalTrainer(core, await bootstrap.connect())
    if plan is not None:
        await trainer.load(plan.policy_directory)
    incarnation = directory.next_incarnation()
    return await assemble(
        ready,
        Parts(
            config=config,
            prompts=prompts,
            connect=bootstrap.connect,
            trainer=trainer,
            generator=generator or LocalGenerator(TorchGenerator(prompts.shape, prompts)),
            identity=RunIdentity(facts.run_id, incarnation),
            root=directory.root,
            events=events or EventLog(directory.log_path(incarnation), now),
            stops=stops,
            now=now,
            sleep=sleep,
        ),
    )
