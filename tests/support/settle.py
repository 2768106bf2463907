"""Waiting without a clock: a loop is turned until nothing moves any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

QUIET_TURNS = 60
"""Turns without a change after which nothing will change by itself.

A change travels from task to task one turn at a time; the longest way (a result, its task, a
task group, the barrier's queue) has some ten turns.
"""


async def settle(seen: Callable[[], object], turns: int = QUIET_TURNS) -> None:
    """Turn the loop until `seen()` has stayed the same for `turns` turns.

    For what moves inside the loop only: neither threads nor other processes are waited for.
    """
    last, quiet = seen(), 0
    while quiet < turns:
        await asyncio.sleep(0)
        now = seen()
        quiet = quiet + 1 if now == last else 0
        last = now
