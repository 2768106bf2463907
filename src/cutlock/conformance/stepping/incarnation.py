"""One start of a real controller, taken through its stages one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import msgspec

from cutlock.bond.turns import TurnLoop
from cutlock.bundle.publication import latest
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.parts import NotingLog, NotingPlane, NotingTrainer, ToldGenerator
from cutlock.conformance.stepping.planes import PlaneHost
from cutlock.conformance.stepping.stands import Stands
from cutlock.controller.assembly import Parts, build_prompts
from cutlock.controller.core import Controller
from cutlock.errors import BundleNotFoundError, CutlockError
from cutlock.plane.base import DataPlane
from cutlock.run.directory import RunDirectory
from cutlock.run.engine import Run
from cutlock.run.restore import PlaneReady, ResumePlan, load_plane, verify_for_resume
from cutlock.run.save import RunIdentity
from cutlock.run.start import Start, begin
from cutlock.run.state import RunState
from cutlock.workers.base import Generator, Trainer

__all__ = ["Drive", "Incarnation", "shipped_controller"]

Drive = Callable[[Run, Trainer, Generator], Coroutine[object, object, object]]
"""Drives an engine that is restored to the end of its run."""


async def shipped_controller(run: Run, trainer: Trainer, generator: Generator) -> object:
    """The loops of `cutlock.controller`."""
    return await Controller(run, trainer, generator).run()


class Incarnation:
    """An engine and what it was given, from its first stage to its death.

    Args:
        drive: drives the engine when it is restored.
    """

    def __init__(
        self,
        bounds: Bounds,
        directory: RunDirectory,
        host: PlaneHost,
        loop: TurnLoop,
        drive: Drive,
    ) -> None:
        self._directory = directory
        self._host = host
        self._loop = loop
        self._config = bounds.config
        self._prompts = bounds.prompts
        self.number = directory.next_incarnation()
        self.bundle = _latest(directory)
        """The bundle to resume from; None for a run that starts afresh."""
        self.narrow = bounds.narrow
        """Whether it saves by a narrow cut."""
        self.stands = Stands(narrow=bounds.narrow)
        self.generator = ToldGenerator()
        self.log = NotingLog(directory.log_path(self.number))
        self.plane: NotingPlane | None = None
        """The controller's own client."""
        self.trainer: NotingTrainer | None = None
        self.begun: Start | None = None
        """The start, from when it has connected."""
        self.run: asyncio.Task[object] | None = None
        """What drives the engine, from when its loops may begin."""
        self._drive = drive
        self._restoring: asyncio.Task[Run] | None = None
        self._plan: ResumePlan | None = None
        self._ready: PlaneReady | None = None
        self._refusal: CutlockError | None = None

    # Stages.

    @property
    def stage(self) -> str:
        """How far the start has come, in the words of the spec's variable `up`."""
        if self.refusal is not None:
            return "refused"
        if self.begun is not None:
            return str(self.begun.state.phases.start)
        if self._ready is not None:
            return "loaded"
        return "begun" if self._plan is None else "verified"

    @property
    def refusal(self) -> CutlockError | None:
        """Why a stage was refused."""
        task = self._restoring
        if task is not None and task.done() and isinstance(task.exception(), CutlockError):
            return task.exception()  # type: ignore[return-value]
        return self._refusal

    def refuse(self, error: CutlockError) -> None:
        """Note that a stage of the driver's has raised."""
        self._refusal = error

    @property
    def failure(self) -> BaseException | None:
        """What has ended the run, other than its end."""
        return self.run.exception() if self.run is not None and self.run.done() else None

    def verify(self) -> None:
        """The driver proves the bundle whole."""
        assert self.bundle is not None
        self._plan = verify_for_resume(self.bundle, build_prompts, self._config)

    def load(self) -> None:
        """The driver brings rows and policy back, into a new store."""
        self._ready = self._loop.complete(self._load())

    async def _load(self) -> PlaneReady:
        ready = await load_plane(self._plan, await self._host.renew(self.stands.steps))
        self.trainer = NotingTrainer(await self._host.connect())
        if self._plan is not None:
            await self.trainer.load(self._plan.policy_directory)
        return ready

    def connect(self) -> None:
        """The controller connects and restores its state, up to the first stop if there is one."""
        assert self._ready is not None
        assert self.trainer is not None
        parts = Parts(
            config=self._config,
            prompts=self._prompts,
            connect=self._connect,
            trainer=self.trainer,
            generator=self.generator,
            identity=RunIdentity(self._directory.facts().run_id, self.number),
            root=self._directory.root,
            events=self.log,
            stops=self.stands,
            now=self._loop.time,
        )
        self.begun = self._loop.complete(begin(self._ready, parts))
        self._restoring = self._loop.create_task(self.begun.restore(), name="restore")
        self._loop.quiesce()

    async def _connect(self) -> DataPlane:
        self.plane = NotingPlane(await self._host.connect())
        return self.plane

    def start(self) -> None:
        """The run begins; its loops do after the first weight sync."""
        assert self.trainer is not None
        self.run = self._loop.create_task(
            self._drive(self.engine, self.trainer, self.generator), name="run"
        )

    def die(self) -> None:
        """Everything in memory is gone, and nothing of the end reaches the disk."""
        self.log.die()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.quiesce()
        self._host.end()

    # Parts.

    @property
    def past(self) -> tuple[int, int] | None:
        """The start that saved the bundle, and how many records of its log the bundle knows."""
        if self._plan is None:
            return None
        return self._plan.info.incarnation, self._plan.info.log_records

    @property
    def engine(self) -> Run:
        """The run, when its state is complete."""
        assert self._restoring is not None
        return self._restoring.result()

    @property
    def state(self) -> RunState | None:
        """The state of the run from when it is built; None when it was refused."""
        return None if self.begun is None or self.refusal else self.begun.state

    def set_attempts(self, attempts: int) -> None:
        """After so many tries from now on a group is given up."""
        state = self.engine.state
        failures = msgspec.structs.replace(state.config.failures, attempts=attempts)
        state.config = msgspec.structs.replace(state.config, failures=failures)


def _latest(directory: RunDirectory) -> Path | None:
    try:
        return latest(directory.root, directory.facts().run_id)
    except BundleNotFoundError:
        return None
