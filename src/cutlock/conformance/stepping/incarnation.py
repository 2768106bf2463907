"""One start of a real controller, taken through its stages one at a time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import msgspec

from cutlock.alphabet import Action
from cutlock.bond.turns import TurnLoop
from cutlock.bundle.publication import latest
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.parts import NotingLog, NotingPlane, NotingTrainer, ToldGenerator
from cutlock.conformance.stepping.planes import PlaneHost
from cutlock.conformance.stepping.stands import Stands
from cutlock.controller.assembly import Parts, assemble, build_prompts
from cutlock.controller.core import Controller, RunReport
from cutlock.controller.rollout_pump import RolloutPump
from cutlock.controller.train_pump import TrainPump
from cutlock.errors import BundleNotFoundError, CutlockError
from cutlock.plane.base import DataPlane
from cutlock.run.directory import RunDirectory
from cutlock.run.restore import PlaneReady, ResumePlan, load_plane, verify_for_resume
from cutlock.run.save import RunIdentity, Saver
from cutlock.run.state import RunState

__all__ = ["Incarnation"]

_STAGES = {
    Action.RESTORE_INDEX: "connected",
    Action.RESTORE_SPARE_POOL: "indexed",
    Action.RESTORE_LEDGER: "pooled",
    Action.RESTORE_CURSOR: "owned",
}


class Incarnation:
    """A controller and what it was given, from its first stage to its death.

    The controller shows no more of itself than users need; here its parts are looked at.
    """

    def __init__(
        self, bounds: Bounds, directory: RunDirectory, host: PlaneHost, loop: TurnLoop
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
        self.assembling: asyncio.Task[Controller] | None = None
        self.run: asyncio.Task[RunReport] | None = None
        self._plan: ResumePlan | None = None
        self._ready: PlaneReady | None = None
        self._refusal: CutlockError | None = None

    # Stages.

    @property
    def stage(self) -> str:
        """How far the start has come, in the words of the spec's variable `up`."""
        if self.run is not None:
            # Before the first weight sync there are no pumps.
            return "started" if self.rollouts._group is None else "running"
        if self.refusal is not None:
            return "refused"
        if self.assembling is not None:
            if self.assembling.done():
                return "begun" if self.bundle is None else "restored"
            return next(_STAGES[action] for action, _ in self.stands.places if action in _STAGES)
        if self._ready is not None:
            return "loaded"
        return "begun" if self._plan is None else "verified"

    @property
    def refusal(self) -> CutlockError | None:
        """Why a stage was refused."""
        task = self.assembling
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

    def assemble(self) -> None:
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
        self.assembling = self._loop.create_task(assemble(self._ready, parts), name="assembly")
        self._loop.quiesce()

    async def _connect(self) -> DataPlane:
        self.plane = NotingPlane(await self._host.connect())
        return self.plane

    def start(self) -> None:
        """The run begins; its pumps do after the first weight sync."""
        self.run = self._loop.create_task(self.controller.run(), name="run")

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
    def controller(self) -> Controller:
        """The controller, when its state is complete."""
        assert self.assembling is not None
        return self.assembling.result()

    @property
    def state(self) -> RunState | None:
        """The controller's state from when it is built; until it is restored, `assemble` has it."""
        task = self.assembling
        if task is None:
            return None
        if task.done():
            return None if self.refusal else task.result()._state
        found = inspect.getcoroutinelocals(cast(Coroutine[Any, Any, Any], task.get_coro()))["state"]
        assert isinstance(found, RunState)
        return found

    @property
    def rollouts(self) -> RolloutPump:
        """The rollout pump."""
        return self.controller._rollouts

    @property
    def train(self) -> TrainPump:
        """The train pump."""
        return self.controller._train

    @property
    def saver(self) -> Saver:
        """The saver of the train pump."""
        return self.controller._saver

    def failed_before(self, group: str) -> bool:
        """Whether the group, whose task stands before a launch, was launched and failed."""
        return self.controller._state.buffer._reserved[group] > 0

    def set_attempts(self, attempts: int) -> None:
        """After so many tries from now on a group is given up."""
        state = self.controller._state
        failures = msgspec.structs.replace(state.config.failures, attempts=attempts)
        state.config = msgspec.structs.replace(state.config, failures=failures)


def _latest(directory: RunDirectory) -> Path | None:
    try:
        return latest(directory.root, directory.facts().run_id)
    except BundleNotFoundError:
        return None
