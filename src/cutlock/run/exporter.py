"""What a run is like, as Prometheus metrics; docs/metrics.md lists them.

Nothing is measured for them alone: each scrape takes one look at the controller, on its own
loop, and what has happened since the last one is counted then. A run that nobody scrapes pays
for the histogram of slot waits, which a slot that waits touches once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import Histogram
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from cutlock.barrier import Barrier
from cutlock.run.metrics import TrainedStep
from cutlock.run.open_save import SaveTiming
from cutlock.run.state import RunState, TrainPhase
from cutlock.version import __version__

__all__ = ["Exporter", "Look", "owners"]

_SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_BYTES = tuple(10.0**power for power in range(4, 13))
_VERSIONS = (0, 1, 2, 3, 4, 6, 8, 12, 16)
_ANSWER_S = 1.0
"""For so long a scrape waits for a loop that is at work; then it gets what was last seen."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """The parts of a controller that metrics are taken from, as they stand."""

    state: RunState
    history: Sequence[TrainedStep]
    """Of this start, growing."""
    saves: Sequence[SaveTiming]
    """Published by this start, growing."""
    failed_saves: int
    stalls: int
    in_flight: int
    """Rollouts."""
    run_id: str
    incarnation: int
    restored: bool
    """Whether this start began with a bundle."""


def owners(look: Look) -> dict[str, int]:
    """How many prompt occurrences each owner has; together they are all there are."""
    state = look.state
    admitted = sum(state.ledger.in_flight_weights.values())
    # Between the end of a step and the clear of its rows they are trained, and still claimed.
    trained = state.phases.train is TrainPhase.CLEAR
    found = {
        "unread": state.loader.unread,
        "spare": len(state.pool),
        "reserved": len(state.ledger) - admitted,
        "admitted": admitted,
        "buffered": len(state.buffer.ready()),
        "in_training": 0 if trained else len(state.buffer.claimed),
        "trained": state.trained,
    }
    # Whatever has no other owner was dropped, for a reason that the event log has.
    everything = state.config.epochs * len(state.prompts)
    return {**found, "dropped": everything - sum(found.values())}


class Exporter(Collector):
    """Collects from another thread; make it on the loop of the run.

    Args:
        look: takes a look at the controller; called on the loop.
        barrier: whose waits are counted from now on.
    """

    def __init__(self, look: Callable[[], Look], barrier: Barrier) -> None:
        self._look = look
        self._barrier = barrier
        self._loop = asyncio.get_running_loop()
        self._seen: tuple[Metric, ...] = ()
        self._counted_saves = 0
        self._counted_steps = 0
        self._waits = _histogram(
            "cutlock_slot_wait_seconds", "How long slots that waited have waited.", _SECONDS, "kind"
        )
        self._drain = _histogram(
            "cutlock_save_drain_seconds", "From the request of a cut until it was open.", _SECONDS
        )
        self._exclusive = _histogram(
            "cutlock_save_exclusive_seconds", "How long cuts were open.", _SECONDS
        )
        self._asynchronous = _histogram(
            "cutlock_save_asynchronous_seconds",
            "From the end of a cut until its bundle was published.",
            _SECONDS,
        )
        self._sizes = _histogram("cutlock_bundle_size_bytes", "Sizes of bundles.", _BYTES)
        self._staleness = _histogram(
            "cutlock_staleness_versions",
            "Trainer versions between a step and the oldest weights of its groups.",
            _VERSIONS,
        )
        barrier.on_wait = self._waited

    def _waited(self, kind: str, seconds: float) -> None:
        self._waits.labels(kind).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """All metrics; as they were last seen, if the loop does not answer or has ended."""
        taken = threading.Event()

        def take() -> None:
            try:
                self._seen = tuple(self._read(self._look()))
            finally:
                taken.set()

        try:
            self._loop.call_soon_threadsafe(take)
        except RuntimeError:  # the loop is closed
            taken.set()
        taken.wait(_ANSWER_S)
        yield from self._seen

    def _read(self, look: Look) -> Iterator[Metric]:
        self._observe(look)
        state, history = look.state, look.history
        yield InfoMetricFamily(
            "cutlock_run",
            "Which run this is.",
            {
                "run_id": look.run_id,
                "sampler": state.sampler.name,
                "cut": state.config.checkpoint.cut_of(state.plane),
                "version": __version__,
            },
        )
        yield _gauge("cutlock_incarnation", "Start of the controller, from 1.", look.incarnation)
        yield _gauge("cutlock_trainer_version", "Version of the trainer.", state.version.value)
        yield _gauge("cutlock_cursor", "Dispatch cursor of the sampler.", state.sampler.cursor)
        yield _labelled(
            GaugeMetricFamily(
                "cutlock_prompts", "Prompt occurrences by their owner.", labels=["owner"]
            ),
            owners(look),
        )
        yield _gauge("cutlock_rollouts_in_flight", "Groups that are generated.", look.in_flight)
        permits = state.permits
        yield _gauge("cutlock_buffer_capacity", "Places for groups.", permits.capacity)
        yield _gauge("cutlock_buffer_places_taken", "Places that are taken.", permits.held)
        if history:
            reward = history[-1].report.reward_mean
            yield _gauge("cutlock_reward_mean", "Mean reward of the last step.", reward)
        groups = sum(step.report.groups for step in history)
        tokens = sum(step.report.tokens for step in history)
        yield _counter("cutlock_steps", "Training steps of this start.", len(history))
        yield _counter("cutlock_trained_groups", "Groups trained by this start.", groups)
        yield _counter("cutlock_trained_tokens", "Tokens trained on by this start.", tokens)
        yield _counter("cutlock_commits", "Groups committed by this start.", state.commits)
        yield _labelled(
            CounterMetricFamily("cutlock_saves", "Saves by their outcome.", labels=["outcome"]),
            {"published": len(look.saves), "failed": look.failed_saves},
        )
        if look.saves:
            last = look.saves[-1].step
            yield _gauge("cutlock_last_bundle_step", "Step of the newest bundle.", last)
        yield _counter("cutlock_restores", "Bundles that this start began with.", look.restored)
        yield _counter("cutlock_stalls", "Reports of the stall watchdog.", look.stalls)
        yield _labelled(
            CounterMetricFamily("cutlock_slots", "Slots entered, by kind.", labels=["kind"]),
            {kind: found.entered for kind, found in self._barrier.statistics().slots.items()},
        )
        for histogram in (
            self._waits,
            self._drain,
            self._exclusive,
            self._asynchronous,
            self._sizes,
            self._staleness,
        ):
            for family in histogram.collect():
                family.samples = [s for s in family.samples if not s.name.endswith("_created")]
                yield family

    def _observe(self, look: Look) -> None:
        """Count what is new."""
        for save in look.saves[self._counted_saves :]:
            self._drain.observe(save.drain)
            self._exclusive.observe(save.exclusive)
            self._asynchronous.observe(save.asynchronous)
            self._sizes.observe(save.size)
        self._counted_saves = len(look.saves)
        for step in look.history[self._counted_steps :]:
            self._staleness.observe(step.staleness_max)
        self._counted_steps = len(look.history)


def _histogram(name: str, what: str, buckets: Sequence[float], *labels: str) -> Histogram:
    return Histogram(name, what, labels, buckets=buckets, registry=None)


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=value)


def _counter(name: str, what: str, value: float) -> Metric:
    return CounterMetricFamily(name, what, value=value)


def _labelled(family: GaugeMetricFamily | CounterMetricFamily, values: dict[str, int]) -> Metric:
    for label, value in values.items():
        family.add_metric([label], value)
    return family
