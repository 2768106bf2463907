"""What a run says of itself: while it goes on, and at its end."""

from __future__ import annotations

import msgspec

from cutlock.barrier import BarrierStatistics
from cutlock.run.metrics import TrainedStep
from cutlock.run.save import FailedSave, SaveTiming
from cutlock.watchdog import StallReport

__all__ = ["RunReport", "SlotReport", "Status", "slot_reports"]


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


def slot_reports(statistics: BarrierStatistics) -> dict[str, SlotReport]:
    """The waits of a barrier, by kind of slot."""
    return {
        kind: SlotReport(found.entered, found.waited, found.waited_sum, found.waited_max)
        for kind, found in statistics.slots.items()
    }
