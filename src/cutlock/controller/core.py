"""The controller: both pumps and the stall watchdog on one event loop, from a `Restored`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from cutlock.alphabet import Action
from cutlock.barrier import KindStatistics
from cutlock.controller.rollout_pump import RolloutPump
from cutlock.controller.train_pump import TrainPump
from cutlock.errors import StallError
from cutlock.run.ending import logged_failure
from cutlock.run.endpoint import announced, serving
from cutlock.run.exporter import Exporter, Look
from cutlock.run.metrics import Metrics, TrainedStep
from cutlock.run.restore import Restored, require_stage
from cutlock.run.save import FailedSave, RunIdentity, Saver, SaveTiming
from cutlock.watchdog import Progress, StallReport, StallWatchdog
from cutlock.workers.base import Generator, Trainer

__all__ = ["Controller", "RunReport", "SlotReport", "Status"]


class Status(msgspec.Struct, frozen=True):
    """A look at a run while it goes on."""

    step: int
    version: int
    cursor: int
    ready: int
    in_flight: int
    spares: int
    commits: int
    reward_mean: float | None
    saves: int
    waiting_for: str
    stalls: tuple[StallReport, ...]
    failed_saves: tuple[FailedSave, ...]
    metrics_url: str = ""
    """Where the metrics are served; empty if they are not."""


class SlotReport(msgspec.Struct, frozen=True):
    """How the slots of one kind have waited, in seconds."""

    entered: int
    waited: int
    waited_sum: float
    waited_max: float


class RunReport(msgspec.Struct, frozen=True):
    """What one incarnation of a run did."""

    ended: str
    """`exhausted` or `max_steps`."""
    steps: tuple[TrainedStep, ...]
    saves: tuple[SaveTiming, ...]
    slots: dict[str, SlotReport]
    dropped: int
    failed_saves: tuple[FailedSave, ...] = ()


class Controller:
    """Runs a restored state to its end.

    Args:
        root: run directory; bundles go into it.
    """

    def __init__(
        self,
        restored: Restored,
        trainer: Trainer,
        generator: Generator,
        identity: RunIdentity,
        root: Path,
    ) -> None:
        require_stage(restored, Restored, type(self).__name__)
        self._state = state = restored.state
        self._identity = identity
        self._root = root
        self._restored = restored.saved_step is not None
        self._saver = Saver(state, trainer, identity, root, restored.saved_step)
        self._rollouts = RolloutPump(state, generator)
        metrics = Metrics(root, identity.incarnation)
        self._train = TrainPump(state, self._rollouts, trainer, generator, self._saver, metrics)
        self._stalls: list[StallReport] = []
        self._watchdog = StallWatchdog(state.config.watchdog.stall_s, state.now)
        self._metrics_url = ""

    def request_save(self) -> None:
        """Save as soon as no step is open, e.g. because the machine is about to go."""
        self._train.request_save()

    def status(self) -> Status:
        """A look at the run."""
        state, history = self._state, self._train.history
        return Status(
            step=state.step,
            version=state.version.value,
            cursor=state.sampler.cursor,
            ready=len(state.buffer.ready()),
            in_flight=self._rollouts.in_flight,
            spares=len(state.pool),
            commits=state.commits,
            reward_mean=history[-1].report.reward_mean if history else None,
            saves=len(self._saver.timings),
            waiting_for="" if self._train.busy else self._train.waiting_for,
            stalls=tuple(self._stalls),
            failed_saves=tuple(self._saver.failed),
            metrics_url=self._metrics_url,
        )

    def look(self) -> Look:
        """A look at the run, for its metrics; to be taken on its loop."""
        history = self._train.history
        return Look(
            state=self._state,
            history=history,
            saves=self._saver.timings,
            failed_saves=len(self._saver.failed),
            stalls=len(self._stalls),
            in_flight=self._rollouts.in_flight,
            incarnation=self._identity.incarnation,
            run_id=self._identity.run_id,
            restored=self._restored,
        )

    async def run(self) -> RunReport:
        """Run until the data or the step budget ends; serve metrics, if the configuration says so.

        Raises:
            ConfigError: the port of the metrics is taken; nothing was begun.
            CutlockError: the first failure of a pump; the event log's last record names it.
        """
        settings = self._state.config.metrics
        if settings.port is None:
            return await self._run()
        exporter = Exporter(self.look, self._state.barrier.statistics)
        async with serving(settings.host, settings.port, exporter) as self._metrics_url:
            with announced(self._root, "cutlock", self._metrics_url):
                return await self._run()

    async def _run(self) -> RunReport:
        state = self._state
        state.events.record(Action.START_PUMPS, step=state.step, version=state.version.value)
        with logged_failure(state.events):
            ended = await self._run_pumps()
        state.events.record(Action.END_RUN, reason=ended)
        state.events.sync()
        return self._report(ended)

    async def _run_pumps(self) -> str:
        """The first weight sync, then both pumps; the train pump's end ends the others."""
        await self._train.sync_weights()
        if self._train.target_reached:
            # Nothing would be trained any more, so no rollout is begun.
            return await self._train.run()
        async with asyncio.TaskGroup() as tasks:
            others = [
                tasks.create_task(self._rollouts.run(), name="rollout pump"),
                tasks.create_task(self._watch(), name="stall watchdog"),
            ]
            train = tasks.create_task(self._train.run(), name="train pump")
            await train
            for task in others:
                task.cancel()
        return train.result()

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
            busy=self._train.busy,
            in_flight=self._rollouts.in_flight,
            places=state.permits.capacity,
            given_up=state.dropped,
            ready=len(state.buffer.ready()),
            waiting_for=self._train.waiting_for,
            oldest=self._rollouts.oldest,
        )

    def _report(self, ended: str) -> RunReport:
        return RunReport(
            ended=ended,
            steps=tuple(self._train.history),
            saves=tuple(self._saver.timings),
            slots={
                kind: _slots(statistics)
                for kind, statistics in self._state.barrier.statistics.slots.items()
            },
            dropped=self._state.dropped,
            failed_saves=tuple(self._saver.failed),
        )


def _slots(kind: KindStatistics) -> SlotReport:
    return SlotReport(kind.entered, kind.waited, kind.waited_sum, kind.waited_max)
