"""Line charts over training steps.

The drawing is stretched to the width that there is, so it holds no text; numbers stand beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cutlock.report.pages.data import Restart, Trained

__all__ = ["Chart", "Tick", "percent", "reward_chart", "staleness_chart"]


@dataclass(frozen=True)
class Tick:
    """A number beside an axis, at percent of its length."""

    at: float
    text: str


@dataclass(frozen=True)
class Chart:
    """One line; both axes go from 0 to 100."""

    title: str
    unit: str
    caption: str
    points: str
    """For the attribute of an SVG polyline."""
    dots: tuple[tuple[float, float, str], ...]
    down: tuple[Tick, ...]
    """Of the vertical axis."""
    along: tuple[Tick, ...]
    restarts: tuple[Tick, ...]


def percent(value: float, of: float) -> float:
    """Part of a whole; 0 of nothing."""
    return round(100 * value / of, 3) if of else 0.0


def reward_chart(trained: Sequence[Trained], restarts: Sequence[Restart]) -> Chart:
    """Mean reward of each step."""
    values = [(step.step, step.reward_mean) for step in trained]
    edge = max(1, min(5, len(values) // 2))
    first, last = (
        sum(value for _, value in part) / edge for part in (values[:edge], values[-edge:])
    )
    return _line(
        "Mean reward",
        "reward",
        f"From {first:.2f} in the first {edge} to {last:.2f} in the last {edge} steps."
        if len(values) > 1
        else f"One step, {first:.2f}.",
        values,
        restarts,
    )


def staleness_chart(trained: Sequence[Trained], restarts: Sequence[Restart]) -> Chart:
    """Greatest staleness in each step."""
    values = [(step.step, float(step.staleness_max)) for step in trained]
    most = max(value for _, value in values)
    return _line(
        "Staleness",
        "versions",
        f"Trainer versions between the start of a rollout and its training, at most {most:.0f}.",
        values,
        restarts,
        low=0.0,
    )


def _line(
    title: str,
    unit: str,
    caption: str,
    values: Sequence[tuple[int, float]],
    restarts: Sequence[Restart],
    low: float | None = None,
) -> Chart:
    steps = [step for step, _ in values]
    left, right = min(steps), max(steps)
    ticks = _ticks(min(v for _, v in values) if low is None else low, max(v for _, v in values))
    bottom, top = ticks[0], ticks[-1]

    def across(step: float) -> float:
        return percent(step - left, right - left) if right > left else 50.0

    def up(value: float) -> float:
        return round(100 - percent(value - bottom, top - bottom), 3)

    dots = tuple((across(step), up(v), f"step {step}: {_number(v)}") for step, v in values)
    return Chart(
        title=title,
        unit=unit,
        caption=caption,
        points=" ".join(f"{x},{y}" for x, y, _ in dots),
        dots=dots,
        down=tuple(Tick(up(value), _number(value)) for value in ticks),
        along=tuple(Tick(across(s), str(s)) for s in sorted({left, (left + right) // 2, right})),
        restarts=tuple(
            Tick(across(restart.step), f"start {restart.start}, from step {restart.step}")
            for restart in restarts
            if left <= restart.step <= right
        ),
    )


def _ticks(low: float, high: float) -> list[float]:
    """Few round numbers that span the values."""
    if high <= low:
        high = low + 1.0
    raw = (high - low) / 4
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * nice for nice in (1, 2, 2.5, 5, 10) if size * nice >= raw)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 10) for number in range(first, last + 1)]


def _number(value: float) -> str:
    return f"{value:.3g}"
