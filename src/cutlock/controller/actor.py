"""The controller as a Ray actor: one process, one event loop, both pumps."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from cutlock.controller.assembly import Parts, assemble
from cutlock.controller.core import Controller
from cutlock.events import EventLog
from cutlock.plane.base import DataPlane
from cutlock.run.config import RunConfig
from cutlock.run.directory import RunDirectory, Seen
from cutlock.run.restore import PlaneReady
from cutlock.run.save import RunIdentity
from cutlock.run.status import RunReport, Status
from cutlock.stops import StopPoints
from cutlock.workers.base import Generator, PromptSet, Trainer

__all__ = ["ActorArguments", "ControllerActor"]


@dataclass(frozen=True, kw_only=True)
class ActorArguments:
    """Everything that the driver has built, in one picklable argument."""

    ready: PlaneReady
    """Proof that the plane was restored before anything connects to it."""
    config: RunConfig
    prompts: PromptSet
    connect: Callable[[], Awaitable[DataPlane]]
    trainer: Trainer
    generator: Generator
    run_id: str
    root: Path
    seen: Seen
    """What the directory was like when the plan was made."""
    stops: StopPoints


class ControllerActor:
    """Built empty, so that a failure of the run is the answer of `run`, not of the actor."""

    def __init__(self) -> None:
        self._controller: Controller | None = None

    async def run(self, arguments: ActorArguments) -> RunReport:
        """Restore and run to the end; raises what the run raises."""
        directory = RunDirectory(arguments.root)
        with directory.taken(arguments.seen):
            incarnation = directory.next_incarnation()
            events = EventLog(directory.log_path(incarnation))
            try:
                self._controller = await assemble(
                    arguments.ready,
                    Parts(
                        config=arguments.config,
                        prompts=arguments.prompts,
                        connect=arguments.connect,
                        trainer=arguments.trainer,
                        generator=arguments.generator,
                        identity=RunIdentity(arguments.run_id, incarnation),
                        root=arguments.root,
                        events=events,
                        stops=arguments.stops,
                    ),
                )
                report = await self._controller.run()
            except BaseException:
                # A log that cannot be written any more must not hide why the run has ended.
                with contextlib.suppress(OSError):
                    events.close()
                raise
            events.close()
            return report

    async def status(self) -> Status | None:
        """A look at the run; None while it is being restored."""
        return self._controller.status() if self._controller else None

    async def request_save(self) -> None:
        """See `Controller.request_save`."""
        if self._controller is not None:
            self._controller.request_save()
