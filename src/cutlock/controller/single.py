"""The driver's set-up of a run with workers of one's own; imports no Ray before it is called."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cutlock.plane.loopback import keep_ray_on_loopback
from cutlock.run.config import RunConfig
from cutlock.run.start import plan_start
from cutlock.run.status import Status
from cutlock.workers.base import Generator, PromptSet, RowReader, Trainer

if TYPE_CHECKING:
    from cutlock.controller.setup import SingleController

__all__ = ["setup_single_controller"]


@contextlib.asynccontextmanager
async def setup_single_controller(
    root: Path,
    config: RunConfig,
    prompts: PromptSet,
    *,
    trainer: Callable[[RowReader], Trainer],
    generator: Callable[[], Generator],
    bundle: str | None = None,
    with_rows: bool = True,
    watch: Callable[[str, Status | None], None] | None = None,
) -> AsyncIterator[SingleController]:
    """Build a run on Ray and TransferQueue: begin it, or go on with the one in `root`.

    One actor is the controller, with both pumps, the sampler, the buffer and the barrier; one
    hosts the trainer, and `workers.generators` host a generator each. Await `run()` of what the
    block is given; at its end all of it is stopped.

    A Ray that this process has initialised is used and left running; it needs
    `plane.units + workers.generators + 3` CPUs. Otherwise a local one is started that listens on
    127.0.0.1 only, and stopped; import `ray` after this call then, not before.

    Args:
        root: directory of the run, on a file system that all actors share; new or empty, or that
            of a run.
        config: its `[sampler]` may name a class of one's own, see `docs/guide.md`.
        prompts: the data set; has to be picklable, as the next two have to be.
        trainer: makes the trainer, in its actor, from what it reads rows with.
        generator: makes a generator, in its actor.
        bundle: name of the bundle to go on from, e.g. `step_8`; None for the latest.
        with_rows: False generates the finished groups of the bundle again.
        watch: told the stage, and while the run goes on its status about twice a second.

    Raises:
        MisuseError: ray is imported, not initialised, and would listen on every address.
        ConfigError: the directory holds something else, another process runs the run, or the
            configuration has changed in a way that no rule allows (`docs/resume.md`).
        BundleNotFoundError, BundleCorruptError, RestoreError: there is nothing to go on from.
        PlaneError: TransferQueue did not start, or was not untouched.

    Source: design, sections 10 and 11.
    """
    ray = sys.modules.get("ray")
    mine = ray is None or not ray.is_initialized()
    if mine:
        keep_ray_on_loopback()
    # What TransferQueue warns of is said by our own errors, in one line.
    os.environ.setdefault("TQ_LOGGING_LEVEL", "ERROR")
    from cutlock.controller import setup

    setup.require_transfer_queue(config)
    directory, plan = plan_start(root, config, prompts, bundle=bundle, with_rows=with_rows)
    watch = watch or setup.in_silence
    async with (
        setup.own_ray(config, watch) if mine else contextlib.nullcontext(),
        setup.single_controller(
            directory, config, prompts, trainer, generator, plan, watch=watch
        ) as controller,
    ):
        yield controller
