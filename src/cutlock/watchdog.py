"""The stall watchdog: speaks whenever work remains and nothing moves.

Commits and selections are timed apart, because finishing rollouts can hide a trainer that
selects nothing for ever. It does not ask whether rollouts are in flight: a pump that is
wedged on back-pressure has none. The other watchdog, the abort of stale rollouts, is part
of weight sync (`run.rollouts`).

Source: design, section 7.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

__all__ = ["Progress", "StallReport", "StallWatchdog"]


class Progress(msgspec.Struct, frozen=True):
    """What the watchdog looks at; all of it grows while a run is healthy, or is a level."""

    commits: int
    selections: int
    finished: bool
    """No work remains."""
    busy: bool
    """The trainer is training or saving, which has limits of its own."""
    in_flight: int
    places: int
    """The most that can be in flight or ready."""
    given_up: int
    """Prompts dropped or replaced so far."""
    ready: int
    waiting_for: str
    """In words, what the trainer waits for, e.g. `3 of 4 groups of step 7`."""
    oldest: tuple[str, ...] = ()
    """Of the groups in flight, some that were launched first."""


class StallReport(msgspec.Struct, frozen=True):
    """One finding."""

    kind: str
    """`no selection` or `no commit`."""
    seconds: float
    message: str


class StallWatchdog:
    """Compares the progress now with the last that differed.

    Args:
        limit_s: seconds without movement that count as a stall.
        clock: seconds, monotonic.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float]) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._since: dict[str, float] = {}
        self._last: dict[str, int] = {}
        self._reported: set[str] = set()

    def observe(self, progress: Progress) -> list[StallReport]:
        """Look once; returns what has newly stalled, each once until it moves again."""
        now = self._clock()
        reports = []
        for kind, value in (
            ("no selection", progress.selections),
            ("no commit", progress.commits),
        ):
            moved = self._last.get(kind) != value or progress.finished or progress.busy
            if moved:
                self._last[kind] = value
                self._since[kind] = now
                self._reported.discard(kind)
                continue
            seconds = now - self._since[kind]
            if seconds >= self.limit_s and kind not in self._reported:
                self._reported.add(kind)
                reports.append(StallReport(kind, seconds, self._describe(kind, seconds, progress)))
        return reports

    def _describe(self, kind: str, seconds: float, progress: Progress) -> str:
        if progress.in_flight:
            cause = "a worker is slow or dead"
        elif progress.given_up:
            cause = "the rollout pump is held up, or the trainer waits for what was given up"
        else:
            cause = "the rollout pump is held up"
        first = f" ({', '.join(progress.oldest)} first)" if progress.oldest else ""
        return (
            f"{kind} for {seconds:.0f} s (limit {self.limit_s:.0f} s) while the trainer waits "
            f"for {progress.waiting_for} and {progress.ready} groups are ready; "
            f"{progress.in_flight} of {progress.places} rollouts are in flight{first}, "
            f"{_prompts(progress.given_up)} given up: {cause}"
        )


def _prompts(count: int) -> str:
    return f"{count or 'no'} prompt{'s were' if count > 1 else ' was'}"
