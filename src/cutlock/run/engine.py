"""`Run`, the engine: the only code in which a prompt changes its owner.

Its public methods are the actions of the protocol in the words of a training loop. Everything
else is a client of it: the shipped controller, a loop of your own, and the conformance tests.

Source: design, sections 4 and 11.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from cutlock.alphabet import Action
from cutlock.barrier import Barrier
from cutlock.buffer import ReplayBuffer
from cutlock.errors import StallError
from cutlock.ledger import Ledger
from cutlock.plane.base import DataPlane
from cutlock.run.config import RunConfig
from cutlock.run.ending import logged_failure
from cutlock.run.endpoint import announced, serving
from cutlock.run.exporter import Exporter, Look
from cutlock.run.metrics import Metrics
from cutlock.run.restore import Restored, require_stage
from cutlock.run.save import FailedSave, RunIdentity, Saver, SaveTiming
from cutlock.run.state import Phases, RunState, StartPhase
from cutlock.run.status import RunReport, Status, slot_reports
from cutlock.run.steps import Steps, Sync
from cutlock.samplers import AnySampler, TrainerVersion
from cutlock.spare_pool import SparePool
from cutlock.watchdog import Progress, StallReport, StallWatchdog
from cutlock.workers.base import Checkpointable

__all__ = ["Run"]


class Run(Steps):
    """One run in this process, restored; made by `open_run`, or by the controller.

    All of it belongs to one event loop. One task dispatches, one trains and saves; rollouts may
    be as many tasks as the buffer has places.

    Args:
        root: directory of the run; bundles go into it.
        every, sync: see `Steps`.
    """

    def __init__(
        self,
        restored: Restored,
        trainer: Checkpointable,
        identity: RunIdentity,
        root: Path,
        *,
        every: int | None = None,
        sync: Sync | None = None,
    ) -> None:
        require_stage(restored, Restored, type(self).__name__)
        state = restored.state
        super().__init__(
            state,
            Saver(state, trainer, identity, root, restored.saved_step),
            Metrics(root, identity.incarnation),
            every=every,
            sync=sync,
        )
        self._identity = identity
        self._root = root
        self._restored = restored.saved_step is not None
        self._watchdog = StallWatchdog(state.config.watchdog.stall_s, state.now)
        self._stalls: list[StallReport] = []
        self._metrics_url = ""

    # The parts.

    @property
    def state(self) -> RunState:
        """All owners and counters, to be looked at; they change in the methods of this class."""
        return self._state

    @property
    def saver(self) -> Saver:
        """What saves, to be looked at."""
        return self._saver

    @property
    def phases(self) -> Phases:
        """Where start, training and save are."""
        return self._state.phases

    @property
    def config(self) -> RunConfig:
        """What the run is configured by."""
        return self._state.config

    @property
    def barrier(self) -> Barrier:
        """Lets changes and cuts exclude each other; every change of an owner is made in a slot."""
        return self._state.barrier

    @property
    def plane(self) -> DataPlane:
        """The client of the store that all changes of rows go through."""
        return self._state.plane

    @property
    def sampler(self) -> AnySampler:
        """Decides when a batch is dispatched and which groups train; the configuration names it."""
        return self._state.sampler

    @property
    def ledger(self) -> Ledger:
        """Owner of every prompt between the data set and the buffer."""
        return self._state.ledger

    @property
    def buffer(self) -> ReplayBuffer:
        """Index of the finished groups; their rows are in the plane."""
        return self._state.buffer

    @property
    def pool(self) -> SparePool:
        """Prompts held back to replace those that are given up."""
        return self._state.pool

    @property
    def version(self) -> TrainerVersion:
        """Version of the trainer's weights: training steps finished."""
        return self._state.version

    @property
    def step(self) -> int:
        """The training step that is open or comes next, from 0, counted over restarts."""
        return self._state.step

    @property
    def saves(self) -> tuple[SaveTiming, ...]:
        """The saves of this process that were published."""
        return tuple(self._saver.timings)

    @property
    def failed_saves(self) -> tuple[FailedSave, ...]:
        """The saves of this process that have failed, while the run went on."""
        return tuple(self._saver.failed)

    @property
    def ending(self) -> str:
        """What the run has come to: `exhausted`, `max_steps`, or `stopped` before either."""
        if self.target_reached:
            return "max_steps"
        return "exhausted" if self.finished else "stopped"

    # Its life.

    @contextlib.asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        """The run goes on within this block, with its stall watchdog and its metrics.

        At the start the generators get their weights. When the block ends by itself, the last
        step is saved; when it ends by an error, what counts is the last bundle. Either way the
        event log says how it has ended.

        Raises:
            ConfigError: the port of the metrics is taken; nothing was begun.
            StallError: nothing moved for `watchdog.stall_s`, and `watchdog.action` is `fail`.
            CutlockError: the first error of several; the event log's last record names it.

        Source: spec actions `StartPumps`, `SyncWeights` and `EndRun`.
        """
        state = self._state
        async with self._serving_metrics():
            with logged_failure(state.events):
                state.events.record(
                    Action.START_PUMPS, step=state.step, version=state.version.value
                )
                state.phases.start = StartPhase.STARTED
                async with self._saver as saver:
                    await self._sync_weights()
                    watchdog = saver.tasks.create_task(self._watch(), name="stall watchdog")
                    yield
                    await saver.save_final()
                    watchdog.cancel()
            state.events.record(Action.END_RUN, reason=self.ending)
            state.events.sync()

    @contextlib.asynccontextmanager
    async def _serving_metrics(self) -> AsyncIterator[None]:
        settings = self._state.config.metrics
        if settings.port is None:
            yield
            return
        exporter = Exporter(self.look, self._state.barrier)
        async with serving(settings.host, settings.port, exporter) as self._metrics_url:
            with announced(self._root, "cutlock", self._metrics_url):
                yield

    async def _watch(self) -> None:
        state = self._state
        while True:
            await state.sleep(self._watchdog.limit_s / 10)
            reports = self._watchdog.observe(self._progress())
            self._stalls += reports
            if reports and state.config.watchdog.action == "fail":
                found = "; ".join(report.message for report in reports)
                raise StallError(
                    f"{found}; see the logs of the workers, or raise watchdog.stall_s if this is "
                    "their pace"
                )

    def _progress(self) -> Progress:
        state = self._state
        return Progress(
            commits=state.commits,
            selections=state.next_selection,
            finished=state.settled and not len(state.buffer),
            busy=self.busy,
            in_flight=self.in_flight,
            places=state.permits.capacity,
            given_up=state.dropped,
            ready=len(state.buffer.ready()),
            waiting_for=self.waiting_for,
            oldest=self.oldest,
        )

    # A look at it.

    def status(self) -> Status:
        """A look at the run while it goes on."""
        state, history = self._state, self.history
        return Status(
            step=state.step,
            version=state.version.value,
            cursor=state.sampler.cursor,
            ready=len(state.buffer.ready()),
            in_flight=self.in_flight,
            spares=len(state.pool),
            commits=state.commits,
            reward_mean=history[-1].report.reward_mean if history else None,
            saves=len(self._saver.timings),
            waiting_for="" if self.busy else self.waiting_for,
            stalls=tuple(self._stalls),
            failed_saves=self.failed_saves,
            metrics_url=self._metrics_url,
        )

    def look(self) -> Look:
        """A look at the run, for its metrics; to be taken on its loop."""
        return Look(
            state=self._state,
            history=self.history,
            saves=self._saver.timings,
            failed_saves=len(self._saver.failed),
            stalls=len(self._stalls),
            in_flight=self.in_flight,
            incarnation=self._identity.incarnation,
            run_id=self._identity.run_id,
            restored=self._restored,
        )

    def report(self) -> RunReport:
        """What this start of the run has done."""
        return RunReport(
            ended=self.ending,
            steps=tuple(self.history),
            saves=self.saves,
            slots=slot_reports(self._state.barrier.statistics()),
            dropped=self._state.dropped,
            failed_saves=self.failed_saves,
        )
