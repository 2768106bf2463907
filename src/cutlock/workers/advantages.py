"""Group-relative advantages: each sibling is compared with the others of its prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cutlock.errors import WorkerError

__all__ = ["group_relative_advantages"]

_EPSILON = 1e-6


def group_relative_advantages(rewards: Sequence[float]) -> list[float]:
    """Rewards of one group as (reward - mean) / (population standard deviation + 1e-6).

    A group of equal rewards teaches nothing: all its advantages are exactly zero.

    Raises:
        WorkerError: a reward is not a finite number.
    """
    if not all(map(math.isfinite, rewards)):
        raise WorkerError(
            f"rewards {list(rewards)} are not all finite, which would spoil the whole step; "
            "let the verifier return a finite number for every response"
        )
    if len(set(rewards)) < 2:
        return [0.0] * len(rewards)
    mean = math.fsum(rewards) / len(rewards)
    deviation = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    return [(reward - mean) / (deviation + _EPSILON) for reward in rewards]
