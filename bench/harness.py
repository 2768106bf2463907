"""What a measurement is, and how two or more candidates are measured side by side.

Candidates take turns (A B A B ...), so that whatever else the machine does meets all of them.
A ratio is taken within each turn; its median and its quartiles over the turns are kept.
"""

from __future__ import annotations

import enum
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

__all__ = [
    "Goal",
    "Measurement",
    "Samples",
    "Session",
    "Size",
    "compare",
    "figure",
    "interleave",
    "timed",
]

T = TypeVar("T")

Samples = Mapping[str, Sequence[float]]
"""One value per candidate and turn."""


class Size(enum.StrEnum):
    """How much is measured."""

    FULL = "full"
    QUICK = "quick"
    """Fewer repetitions and no large sizes."""
    TINY = "tiny"
    """Once, as small as it can be: says nothing but that it runs."""


class Session:
    """What a group is told: how much to measure, and where to say what it is doing."""

    def __init__(self, size: Size, say: Callable[[str], None] = lambda text: None) -> None:
        self.size = size
        self.say = say

    def pick(self, *, full: T, quick: T, tiny: T) -> T:
        """The value for this size."""
        return {Size.FULL: full, Size.QUICK: quick, Size.TINY: tiny}[self.size]

    def repetitions(self, full: int) -> int:
        """Turns to take, given those of a full run."""
        return self.pick(full=full, quick=max(3, full // 3), tiny=1)


class Goal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bound of a ratio."""

    limit: float
    at_least: bool = False

    def holds(self, ratio: float) -> bool:
        """Whether a ratio is on the right side of the limit."""
        return ratio >= self.limit if self.at_least else ratio <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


class Measurement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure of cutlock beside the same figure of an alternative."""

    name: str
    at: dict[str, int | str] = {}
    """Under which conditions, e.g. `{"groups": 1000}`."""
    what: str
    """What was measured, in words."""
    beside: str
    """What the alternative is, in words."""
    ours: float
    """Median over the repetitions, in `unit`."""
    alternative: float
    """Median over the repetitions, in `unit`."""
    ratio: float
    """Median of ours / alternative, taken within each repetition."""
    spread: tuple[float, float]
    """Quartiles of that ratio."""
    unit: str
    repetitions: int
    goal: Goal | None = None
    note: str = ""
    """What a reader has to know to understand the figure."""

    @property
    def title(self) -> str:
        """Name and conditions, e.g. `commit, groups 1000`."""
        conditions = (
            f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}"
            for key, value in self.at.items()
        )
        return ", ".join([self.name, *conditions])

    @property
    def holds(self) -> bool | None:
        """Whether the goal is reached; None without one."""
        return None if self.goal is None else self.goal.holds(self.ratio)


def figure(value: float) -> str:
    """A value as people read it: 0.0123, 4.56, 12,345."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """A candidate: the seconds that `work` takes."""

    def measure() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return measure


def interleave(
    candidates: Mapping[str, Callable[[], float]], repetitions: int, *, warm_up: int = 1
) -> Samples:
    """Measure the candidates in turn.

    Args:
        candidates: each returns its own measure of one repetition.
        warm_up: turns that are taken first and not counted.
    """
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(warm_up + repetitions):
        for name, measure in candidates.items():
            value = measure()
            if turn >= warm_up:
                samples[name].append(value)
    return samples


def compare(
    name: str,
    samples: Samples,
    ours: str,
    alternative: str,
    *,
    what: str,
    beside: str,
    unit: str,
    scale: float = 1.0,
    at: Mapping[str, int | str] | None = None,
    goal: Goal | None = None,
    note: str = "",
) -> Measurement:
    """Two candidates of one interleaved run as a measurement.

    Args:
        scale: factor from the samples to `unit`.
    """
    mine, other = samples[ours], samples[alternative]
    ratios = [a / b for a, b in zip(mine, other, strict=True)]
    low, _, high = statistics.quantiles(ratios * 2, n=4, method="inclusive")
    return Measurement(
        name=name,
        at=dict(at or {}),
        what=what,
        beside=beside,
        ours=_short(statistics.median(mine) * scale),
        alternative=_short(statistics.median(other) * scale),
        ratio=_short(statistics.median(ratios)),
        spread=(_short(low), _short(high)),
        unit=unit,
        repetitions=len(ratios),
        goal=goal,
        note=note,
    )


def _short(value: float) -> float:
    """Four digits: a measured time has no more."""
    return float(f"{value:.4g}")
