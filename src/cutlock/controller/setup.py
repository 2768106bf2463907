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
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import ray
import ray.exceptions

from cutlock.controller.actor import ActorArguments, ControllerActor
from cutlock.controller.assembly import build_prompts
from cutlock.errors import (
    ConfigError,
    CutlockError,
    WorkerError,
    WorkerLostError,
    WorkerTimeoutError,
)
from cutlock.plane.base import BootstrapPlane
from cutlock.plane.loopback import keep_ray_on_loopback
from cutlock.plane.transfer_queue import TransferQueueBootstrap, TransferQueuePlane
from cutlock.run.config import RunConfig
from cutlock.run.directory import RunDirectory
from cutlock.run.endpoint import announced
from cutlock.run.restore import PlaneReady, ResumePlan, load_plane
from cutlock.run.status import RunReport, Status
from cutlock.stops import NO_STOPS, StopPoints
from cutlock.waiting import mark_retrieved
from cutlock.workers.base import Checkpointable, Generator, PromptSet, RowReader, Trainer
from cutlock.workers.ray_workers import (
    RayGenerators,
    RayTrainer,
    SlowGenerator,
    torch_trainer,
)
from cutlock.workers.torch_trainer import Learning

__all__ = [
    "SingleController",
    "Watch",
    "in_silence",
    "own_ray",
    "require_transfer_queue",
    "run_on_ray",
    "single_controller",
]

Watch = Callable[[str, Status | None], None]
"""Told the stage that a run has come to, and its status while it runs."""

_STATUS_PERIOD_S = 0.5
_ANSWER_S = 30.0
_STOP_S = 10.0
"""For the parts to stop by themselves at the end; then they end with Ray."""


def in_silence(stage: str, status: Status | None) -> None:
    """A `Watch` that says nothing."""


async def run_on_ray(
    directory: RunDirectory,
    config: RunConfig,
    plan: ResumePlan | None = None,
    *,
    stops: StopPoints = NO_STOPS,
    watch: Watch = in_silence,
) -> RunReport:
    """Run the shipped task with the shipped workers to its end.

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
    prompts = build_prompts(config)
    delay_s = config.workers.token_delay_s
    learning = Learning(rate=config.workers.learning_rate)
    async with (
        own_ray(config, watch),
        single_controller(
            directory,
            config,
            prompts,
            functools.partial(
                torch_trainer, shape=prompts.shape, seed=config.seed, learning=learning
            ),
            functools.partial(SlowGenerator, prompts.shape, prompts, delay_s),
            plan,
            stops=stops,
            watch=watch,
        ) as controller,
    ):
        return await controller.run()


@contextlib.asynccontextmanager
async def own_ray(config: RunConfig, watch: Watch) -> AsyncIterator[None]:
    """A local Ray for one run, on 127.0.0.1 only, which ends with the block.

    Raises:
        MisuseError: ray was imported before `keep_ray_on_loopback`.
        ConfigError: the run does not keep its rows in TransferQueue.
    """
    keep_ray_on_loopback()
    require_transfer_queue(config)
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
        yield
    finally:
        await asyncio.to_thread(ray.shutdown)


@contextlib.asynccontextmanager
async def single_controller(
    directory: RunDirectory,
    config: RunConfig,
    prompts: PromptSet,
    trainer: Callable[[RowReader], Trainer],
    generator: Callable[[], Generator],
    plan: ResumePlan | None = None,
    *,
    stops: StopPoints = NO_STOPS,
    watch: Watch = in_silence,
) -> AsyncIterator[SingleController]:
    """Start a TransferQueue and all actors of a run in the Ray of this process; stop them after.

    `directory`, `plan`, `stops` and `watch` are those of `run_on_ray`, `trainer` and `generator`
    those of `setup_single_controller`.
    """
    require_transfer_queue(config)
    workers = config.workers
    connect = functools.partial(
        TransferQueuePlane.connect,
        config.plane.partition,
        limit_s=config.plane.limit_s,
        unit_limit_s=config.plane.unit_limit_s,
        snapshot=config.plane.snapshot,
    )
    # Actors take seconds to come up and do not touch the plane by themselves.
    hosted = RayTrainer.host(
        trainer, connect, limit_s=workers.limit_s, step_limit_s=workers.step_limit_s
    )
    generators = RayGenerators.host(
        generator,
        count=workers.generators,
        limit_s=workers.limit_s,
        group_limit_s=workers.group_limit_s,
    )
    controller = ray.remote(num_cpus=1, max_concurrency=8)(ControllerActor).remote()
    parts: list[Callable[[], Awaitable[None]]] = [generators.close, hosted.close]
    announcements = contextlib.ExitStack()
    try:
        watch("starting TransferQueue", None)
        watched = config.metrics.port is not None and config.metrics.transfer_queue
        bootstrap = await TransferQueueBootstrap.start(
            config.plane.units, limit_s=config.plane.limit_s, metrics=watched
        )
        parts.append(bootstrap.stop)
        url = await bootstrap.metrics_url()
        ready = await _restore(directory, plan, bootstrap, hosted, watch)
        if url is not None:
            announcements.enter_context(announced(directory.root, "transfer_queue", url))
        watch("starting the controller", None)
        arguments = ActorArguments(
            ready=ready,
            config=config,
            prompts=prompts,
            connect=connect,
            trainer=hosted,
            generator=generators,
            run_id=directory.facts().run_id,
            root=directory.root,
            seen=directory.seen,
            stops=stops,
        )
        yield SingleController(controller, arguments, watch)
    finally:
        watch("stopping", None)
        announcements.close()
        # At once and first, so that it is not told of the end of the others.
        ray.kill(controller)
        # Whatever failed is reported already; what does not stop ends with Ray.
        stopping = asyncio.gather(*(stop() for stop in parts), return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping, _STOP_S)


def require_transfer_queue(config: RunConfig) -> None:
    """Refuse a run that would keep its rows elsewhere.

    Raises:
        ConfigError: it would.
    """
    if config.plane.kind != "transfer_queue":
        raise ConfigError(
            f"plane.kind is {config.plane.kind!r}, and a controller on Ray keeps its rows in "
            "'transfer_queue'; leave plane.kind out"
        )


async def _restore(
    directory: RunDirectory,
    plan: ResumePlan | None,
    bootstrap: BootstrapPlane,
    trainer: Checkpointable,
    watch: Watch,
) -> PlaneReady:
    """Load trainer and store; the lock is held, so that nobody prunes the bundle meanwhile.

    Raises:
        ConfigError: another process runs the run, or another start has been there since the plan.
    """
    # The controller takes the lock anew, in its process, and looks again.
    with directory.taken(directory.seen):
        if plan is not None:
            watch(f"restoring {plan.bundle.name}", None)
            await trainer.load(plan.policy_directory)
        return await load_plane(plan, bootstrap)


class SingleController:
    """The controller of one run in its actor, restored and ready; see `setup_single_controller`."""

    def __init__(
        self, actor: ray.actor.ActorHandle, arguments: ActorArguments, watch: Watch
    ) -> None:
        self._actor = actor
        self._arguments = arguments
        self._watch = watch

    async def run(self) -> RunReport:
        """Run to the end of the data or of `max_steps`; once.

        Raises:
            WorkerLostError: the controller's process died.
            WorkerTimeoutError: it answered nothing for `watchdog.controller_s`.
            CutlockError: what the run raised.
        """
        return await _follow(self._actor, self._arguments, self._watch)

    async def status(self) -> Status | None:
        """A look at the run; None while it is not running."""
        status: Status | None = await self._actor.status.remote()
        return status

    async def request_save(self) -> None:
        """Save as soon as no step is open, e.g. because the machine is about to go."""
        await self._actor.request_save.remote()


async def _follow(
    controller: ray.actor.ActorHandle, arguments: ActorArguments, watch: Watch
) -> RunReport:
    """Wait for the run and report its status meanwhile."""
    run = _answer(controller.run.remote(arguments))
    limit_s = arguments.config.watchdog.controller_s
    loop = asyncio.get_running_loop()
    answered = loop.time()
    try:
        while not run.done():
            await asyncio.wait({run}, timeout=_STATUS_PERIOD_S)
            if not run.done():
                status = _answer(controller.status.remote())
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
        raise WorkerError(
            f"the controller failed: {error.cause!r}; mend what that names, then resume the run "
            f"with `cutlock resume {arguments.root}`"
        ) from error
    except ray.exceptions.RayError as error:
        raise WorkerLostError(
            f"the controller's process died; resume the run with `cutlock resume {arguments.root}`"
        ) from error


def _answer(call: ray.ObjectRef) -> asyncio.Future[Any]:
    """What the controller answers.

    Whoever gives up waiting has it killed, and is not told of its end again.
    """
    answer: asyncio.Future[Any] = asyncio.wrap_future(call.future())
    answer.add_done_callback(mark_retrieved)
    return answer


def _silent(arguments: ActorArguments) -> WorkerTimeoutError:
    return WorkerTimeoutError(
        f"the controller has answered nothing for {arguments.config.watchdog.controller_s:g} s "
        "(watchdog.controller_s) and is stopped; resume the run with "
        f"`cutlock resume {arguments.root}`"
    )
