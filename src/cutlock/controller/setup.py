"""The driver's set-up: Ray, TransferQueue, workers, and the controller actor.

Everything is built here and handed to the actor in one argument. The order is that of the
restore: the bootstrap client loads the plane before any other client exists, the actor
connects afterwards.

Source: design, sections 10 and 11.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable

import ray
import ray.exceptions

from cutlock.controller.actor import ActorArguments, ControllerActor
from cutlock.controller.assembly import build_prompts
from cutlock.controller.config import RunConfig
from cutlock.controller.core import RunReport, Status
from cutlock.controller.endpoint import announced
from cutlock.controller.restore import PlaneReady, ResumePlan, load_plane
from cutlock.controller.run_directory import RunDirectory
from cutlock.errors import CutlockError, WorkerError, WorkerLostError, WorkerTimeoutError
from cutlock.plane.loopback import keep_ray_on_loopback
from cutlock.plane.transfer_queue import TransferQueueBootstrap, TransferQueuePlane
from cutlock.stops import NO_STOPS, StopPoints
from cutlock.workers.ray_workers import RayGenerators, RayTrainer
from cutlock.workers.torch_trainer import Learning

__all__ = ["run_on_ray"]

_STATUS_PERIOD_S = 0.5
_ANSWER_S = 30.0
_STOP_S = 10.0
"""For the parts to stop by themselves at the end; then they end with Ray."""


async def run_on_ray(
    directory: RunDirectory,
    config: RunConfig,
    plan: ResumePlan | None = None,
    *,
    stops: StopPoints = NO_STOPS,
    watch: Callable[[str, Status | None], None] = lambda stage, status: None,
) -> RunReport:
    """Start a Ray and a TransferQueue of this run's own, run it to its end, stop both.

    Args:
        directory: of a run that exists.
        plan: what to resume from; None starts afresh.
        stops: handed to the controller; has to be picklable.
        watch: told the stage, and the run's status about twice a second.

    Raises:
        MisuseError: ray was imported before `keep_ray_on_loopback`.
        WorkerLostError: the controller's process died.
        WorkerTimeoutError: it answered nothing for `watchdog.controller_s`.
        CutlockError: what the run raised.
    """
    keep_ray_on_loopback()
    watch("starting Ray", None)
    cpus = config.plane.units + config.workers.generators + 4
    ray.init(
        address="local",
        num_cpus=max(16, cpus),  # logical; the actors of a small machine share its cores
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    try:
        return await _run(directory, config, plan, stops, watch)
    finally:
        await asyncio.to_thread(ray.shutdown)


async def _run(
    directory: RunDirectory,
    config: RunConfig,
    plan: ResumePlan | None,
    stops: StopPoints,
    watch: Callable[[str, Status | None], None],
) -> RunReport:
    prompts = build_prompts(config)
    connect = functools.partial(
        TransferQueuePlane.connect,
        config.plane.partition,
        limit_s=config.plane.limit_s,
        unit_limit_s=config.plane.unit_limit_s,
        snapshot=config.plane.snapshot,
    )
    # Actors take seconds to come up and do not touch the plane by themselves.
    trainer = RayTrainer.start(
        prompts.shape,
        connect,
        seed=config.seed,
        learning=Learning(rate=config.workers.learning_rate),
        limit_s=config.workers.limit_s,
        step_limit_s=config.workers.step_limit_s,
    )
    generators = RayGenerators.start(
        prompts.shape,
        prompts,
        count=config.workers.generators,
        limit_s=config.workers.limit_s,
        group_limit_s=config.workers.group_limit_s,
        token_delay_s=config.workers.token_delay_s,
    )
    controller = ray.remote(num_cpus=1, max_concurrency=8)(ControllerActor).remote()
    watch("starting TransferQueue", None)
    watched = config.metrics.port is not None and config.metrics.transfer_queue
    bootstrap = await TransferQueueBootstrap.start(
        config.plane.units, limit_s=config.plane.limit_s, metrics=watched
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(_stop, generators, trainer, bootstrap, watch)
        if (url := await bootstrap.metrics_url()) is not None:
            stack.enter_context(announced(directory.root, "transfer_queue", url))
        ready = await _restore(plan, bootstrap, trainer, watch)
        watch("starting the controller", None)
        arguments = ActorArguments(
            ready=ready,
            config=config,
            prompts=prompts,
            connect=connect,
            trainer=trainer,
            generator=generators,
            run_id=directory.facts().run_id,
            root=directory.root,
            stops=stops,
        )
        return await _follow(controller, arguments, watch)


async def _stop(
    generators: RayGenerators,
    trainer: RayTrainer,
    bootstrap: TransferQueueBootstrap,
    watch: Callable[[str, Status | None], None],
) -> None:
    watch("stopping", None)
    # Whatever failed is reported already; what does not stop ends with Ray.
    stopping = asyncio.gather(
        generators.close(), trainer.close(), bootstrap.stop(), return_exceptions=True
    )
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stopping, _STOP_S)


async def _restore(
    plan: ResumePlan | None,
    bootstrap: TransferQueueBootstrap,
    trainer: RayTrainer,
    watch: Callable[[str, Status | None], None],
) -> PlaneReady:
    if plan is not None:
        watch(f"restoring {plan.bundle.name}", None)
        await trainer.load(plan.policy_directory)
    return await load_plane(plan, bootstrap)


async def _follow(
    controller: ray.actor.ActorHandle,
    arguments: ActorArguments,
    watch: Callable[[str, Status | None], None],
) -> RunReport:
    """Wait for the run and report its status meanwhile."""
    run = asyncio.wrap_future(controller.run.remote(arguments).future())
    limit_s = arguments.config.watchdog.controller_s
    loop = asyncio.get_running_loop()
    answered = loop.time()
    try:
        while not run.done():
            await asyncio.wait({run}, timeout=_STATUS_PERIOD_S)
            if not run.done():
                status = asyncio.wrap_future(controller.status.remote().future())
                await asyncio.wait(
                    {run, status},
                    timeout=min(_ANSWER_S, limit_s),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if status.done() and status.exception() is None:
                    answered = loop.time()
                    watch("running", status.result())
                elif not run.done():
                    silent_s = loop.time() - answered
                    watch(
                        f"running, but the controller has not answered for {silent_s:.0f} s", None
                    )
                    if silent_s >= limit_s:
                        raise _silent(arguments)
        report: RunReport = run.result()
        return report
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, CutlockError):
            raise error.cause from error
        raise WorkerError(f"the controller failed: {error.cause!r}") from error
    except ray.exceptions.RayError as error:
        raise WorkerLostError(
            f"the controller's process died; resume the run with `cutlock resume {arguments.root}`"
        ) from error


def _silent(arguments: ActorArguments) -> WorkerTimeoutError:
    return WorkerTimeoutError(
        f"the controller has answered nothing for {arguments.config.watchdog.controller_s:g} s "
        "(watchdog.controller_s) and is stopped; resume the run with "
        f"`cutlock resume {arguments.root}`"
    )
