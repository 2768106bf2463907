"""Counts that the end of a test session prints: how many cases an exhaustive test has tried."""

from __future__ import annotations

from collections import Counter

__all__ = ["TALLIES", "tally"]

TALLIES: Counter[str] = Counter()


def tally(name: str, count: int) -> None:
    """Add to the count of that name."""
    TALLIES[name] += count
