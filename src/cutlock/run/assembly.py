"""The state of a run from a restored store, and the directory when the run takes it over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from cutlock.alphabet import Action
from cutlock.bundle.publication import reclaim, scan, set_aside, settle
from cutlock.events import Events
from cutlock.plane.base import DataPlane
from cutlock.run.config import RunConfig
from cutlock.run.restore import PlaneConnected, PlaneReady, connect_plane
from cutlock.run.save import RunIdentity
from cutlock.run.state import RunState, build_state
from cutlock.stops import NO_STOPS, StopPoints
from cutlock.workers.base import PromptSet

__all__ = ["StateParts", "begin", "take_over"]


@dataclass(kw_only=True)
class StateParts:
    """What the state of a run is built from."""

    config: RunConfig
    prompts: PromptSet
    connect: Callable[[], Awaitable[DataPlane]]
    identity: RunIdentity
    root: Path
    events: Events
    stops: StopPoints = NO_STOPS
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


async def begin(ready: PlaneReady, parts: StateParts) -> tuple[PlaneConnected, RunState]:
    """Begin the log of this start, connect, and build the empty state of the run.

    Raises:
        InventoryError: the store does not hold exactly the rows of the index.
    """
    config = parts.config
    if ready.plan is not None:
        settle(parts.root)
    connected = await connect_plane(ready, parts.connect)
    state = build_state(
        config,
        parts.prompts,
        connected.plane,
        parts.events,
        lineage=f"r{parts.identity.incarnation}",
        now=parts.now,
        sleep=parts.sleep,
        stops=parts.stops,
    )
    sampler = config.plain()["sampler"]
    parts.events.record(
        Action.BEGIN_RUN,
        incarnation=parts.identity.incarnation,
        sampler=sampler["name"],
        window=sampler.get("window"),
        prompts_per_step=config.prompts_per_step,
        group_size=config.group_size,
        epochs=config.epochs,
        max_steps=config.max_steps,
        capacity=state.permits.capacity,
        spare_prompts=config.buffer.spare_prompts,
        units=connected.plane.info.units,
        cut=config.checkpoint.cut_of(connected.plane),
    )
    return connected, state


def take_over(ready: PlaneReady, parts: StateParts) -> None:
    """Remove what dead saves left, and set the bundles of a given-up timeline aside."""
    reclaim(scan(parts.root))
    if ready.plan is not None:
        # Before the bundles go, the log must say for good why: an audit would miss them.
        parts.events.sync()
        set_aside(parts.root, ready.plan.sequence, ready.plan.info.run_id)
