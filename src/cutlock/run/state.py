"""The state of one run: its owners, its counters, and how far start, training and save are."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
from collections.abc import Awaitable, Callable, Mapping

from cutlock.alphabet import Action
from cutlock.barrier import Barrier, Slot
from cutlock.buffer import ReplayBuffer
from cutlock.errors import InvariantError
from cutlock.events import Events
from cutlock.ledger import Ledger
from cutlock.loader import PromptLoader
from cutlock.plane.pinning import PinningPlane
from cutlock.run.config import RunConfig
from cutlock.samplers import AnySampler, TrainerVersion, build_sampler
from cutlock.spare_pool import Shortfall, SparePool
from cutlock.stops import NO_STOPS, StopPoints
from cutlock.waiting import Signal
from cutlock.workers.base import PromptSet

__all__ = [
    "Facts",
    "Permits",
    "Phases",
    "RunState",
    "SavePhase",
    "StartPhase",
    "TrainPhase",
    "build_state",
]

Facts = Mapping[str, object]
"""The arguments of an action, as the event log records them."""


class StartPhase(enum.StrEnum):
    """How far the start of a run is, from its empty state on; spec variable `up`."""

    BEGUN = "begun"
    """A run that starts from nothing: there is nothing to restore."""
    CONNECTED = "connected"
    INDEXED = "indexed"
    POOLED = "pooled"
    OWNED = "owned"
    RESTORED = "restored"
    STARTED = "started"
    """The generators have no weights yet."""
    RUNNING = "running"


class TrainPhase(enum.StrEnum):
    """What the training loop does next; spec variable `tp`."""

    IDLE = "idle"
    SAVING = "saving"
    """It waits for a save."""
    ADVANTAGES = "advantages"
    """Groups are claimed, and nothing is derived from their rows yet."""
    TRAIN = "train"
    CLEAR = "clear"
    RAISE = "raise"
    SYNC = "sync"


class SavePhase(enum.StrEnum):
    """What the open save does next; spec variable `sv`."""

    NONE = "none"
    REQUESTED = "requested"
    COPY = "copy"
    CURSOR = "cursor"
    LOADER = "loader"
    POOL = "pool"
    INDEX = "index"
    LEDGER = "ledger"
    PLANE = "plane"
    CLOSE = "close"
    FILES = "files"
    PUBLISHED = "published"


@dataclasses.dataclass
class Phases:
    """Where start, training and save are; kept by the engine, read by observers."""

    start: StartPhase = StartPhase.BEGUN
    train: TrainPhase = TrainPhase.IDLE
    save: SavePhase = SavePhase.NONE

    def go_on(self) -> None:
        """The training loop waits for the save no longer, if it did."""
        if self.train is TrainPhase.SAVING:
            self.train = TrainPhase.IDLE


class Permits:
    """Places in the buffer: one per group from its launch until it is selected or gone."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held = 0
        self._freed = asyncio.Semaphore(capacity)

    @property
    def held(self) -> int:
        """Places that are taken."""
        return self._held

    async def acquire(self) -> None:
        """Take a place, first come, first served."""
        await self._freed.acquire()
        self._held += 1

    def take(self, count: int) -> None:
        """Take places at once, for groups that a bundle brings; they must be free."""
        if self._held + count > self.capacity:
            raise InvariantError(
                f"{count} places wanted and {self.capacity - self._held} of {self.capacity} free; "
                f"raise buffer.capacity to {self._held + count}"
            )
        self._held += count
        self._freed = asyncio.Semaphore(self.capacity - self._held)

    def release(self, count: int = 1) -> None:
        """Give places back."""
        if count > self._held:
            raise InvariantError(
                f"{count} places given back and only {self._held} are taken; give each back once"
            )
        self._held -= count
        for _ in range(count):
            self._freed.release()


@dataclasses.dataclass(kw_only=True)
class RunState:
    """The state of one controller; built by `build_state`, changed under the barrier."""

    config: RunConfig
    prompts: PromptSet
    events: Events
    stops: StopPoints
    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    barrier: Barrier
    plane: PinningPlane
    sampler: AnySampler
    ledger: Ledger
    buffer: ReplayBuffer
    pool: SparePool
    shortfall: Shortfall
    loader: PromptLoader
    permits: Permits
    version: TrainerVersion
    changed: Signal
    """Something that the training loop may wait for has happened."""
    phases: Phases = dataclasses.field(default_factory=Phases)
    step: int = 0
    """Training steps finished."""
    next_selection: int = 0
    """The step whose groups have not been selected yet."""
    dropped: int = 0
    """Prompts given up so far; moves only inside a slot."""
    commits: int = 0
    trained: int = 0
    """Groups trained so far, counted over restarts."""

    async def act(
        self, action: Action, do: Callable[[], Awaitable[Facts]], /, **where: object
    ) -> None:
        """Announce an action at its stop point, do it, and record it with what `do` returns."""
        await self.stops.reach(action, **where)
        self.events.record(action, **await do())

    async def change(
        self, action: Action, kind: str, do: Callable[[Slot], Facts | None], /, **where: object
    ) -> bool:
        """Announce an action, do it in a slot as one synchronous step, and record it in that step.

        Args:
            kind: of the slot.
            do: returns what to record; None if there is nothing to do any more, since others may
                have come between the announcement and the slot.

        Returns:
            Whether it was done.
        """
        await self.stops.reach(action, **where)
        async with self.barrier.atomic_mutation(kind) as slot:
            facts = do(slot)
            if facts is not None:
                self.events.record(action, **facts)
            return facts is not None

    @property
    def settled(self) -> bool:
        """Whether nothing more will be committed: no prompt is unread, spare or in flight."""
        return self.loader.exhausted and not self.live_groups

    @property
    def live_groups(self) -> int:
        """Groups that are owed to the trainer and not finished yet, spares included."""
        return len(self.ledger) + len(self.pool)


def build_state(
    config: RunConfig,
    prompts: PromptSet,
    plane: PinningPlane,
    events: Events,
    *,
    lineage: str,
    now: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
    stops: StopPoints = NO_STOPS,
) -> RunState:
    """Build the empty state of a run that starts from nothing.

    Args:
        lineage: prefix of row keys; different for every process of a run.

    Raises:
        ConfigError: the plane does not bear the cut that is asked for.
    """
    capacity = config.capacity()
    barrier = Barrier(now, instant=config.checkpoint.cut_of(plane) == "narrow")
    ledger = Ledger(barrier)
    return RunState(
        config=config,
        prompts=prompts,
        events=events,
        stops=stops,
        now=now,
        sleep=sleep,
        barrier=barrier,
        plane=plane,
        sampler=build_sampler(config.sampler, barrier),
        ledger=ledger,
        buffer=ReplayBuffer(
            barrier,
            plane,
            ledger,
            events,
            group_size=config.group_size,
            lineage=lineage,
            stops=stops,
        ),
        pool=SparePool(barrier),
        shortfall=Shortfall(barrier, config.prompts_per_step),
        loader=PromptLoader(
            barrier,
            prompts,
            batch_size=config.prompts_per_step,
            epochs=config.epochs,
            seed=config.seed,
        ),
        permits=Permits(capacity),
        version=TrainerVersion(),
        changed=Signal(),
    )
