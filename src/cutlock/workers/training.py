"""What every training step computes, whoever trains: advantages before it, the chain after it.

The training chain is a hash that binds weights to the exact history that made them. A trainer
extends it at every step and saves it beside the weights; an audit recomputes it from the event
log alone. Equal chains mean equal groups in equal steps.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Sequence

from cutlock.errors import WorkerError
from cutlock.records import canonical_json

__all__ = ["FIRST_CHAIN", "TrainedHistory", "extend_chain", "group_relative_advantages"]

FIRST_CHAIN = hashlib.sha256(b"cutlock").hexdigest()
"""Chain of a trainer that has trained nothing, hex."""

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


def extend_chain(chain: str, step: int, groups: Iterable[str]) -> str:
    """Chain after one more training step, hex: sha256(chain bytes + JSON of [step, groups]).

    The group ids are sorted first: within a step their order has no meaning.
    """
    link = canonical_json([step, sorted(groups)])
    return hashlib.sha256(bytes.fromhex(chain) + link).hexdigest()


class TrainedHistory:
    """What a trainer has trained so far, for trainers of one's own.

    `Checkpointable.copy` returns its `state`, which belongs into the trainer's files too.

    Args:
        groups: number of groups trained so far.
        chain: the training chain so far.
    """

    def __init__(self, groups: int = 0, chain: str = FIRST_CHAIN) -> None:
        self._groups = groups
        self._chain = chain

    @property
    def state(self) -> tuple[int, str]:
        """Number of groups, and chain: what the constructor takes."""
        return self._groups, self._chain

    def extend(self, step: int, groups: Collection[str]) -> None:
        """Note that the groups of these ids were trained in a step."""
        self._groups += len(groups)
        self._chain = extend_chain(self._chain, step, groups)
