"""The training chain: a hash that binds weights to the exact history that made them.

A trainer extends it at every step and saves it beside the weights; an audit recomputes it
from the event log alone. Equal chains mean equal groups in equal steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from cutlock.records import canonical_json

__all__ = ["FIRST_CHAIN", "extend_chain"]

FIRST_CHAIN = hashlib.sha256(b"cutlock").hexdigest()
"""Chain of a trainer that has trained nothing, hex."""


def extend_chain(chain: str, step: int, groups: Iterable[str]) -> str:
    """Chain after one more training step, hex: sha256(chain bytes + JSON of [step, groups]).

    The group ids are sorted first: within a step their order has no meaning.
    """
    link = canonical_json([step, sorted(groups)])
    return hashlib.sha256(bytes.fromhex(chain) + link).hexdigest()
