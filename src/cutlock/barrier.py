"""The checkpoint barrier: many writers at once, or one snapshot reader.

**What.** Whoever *changes* state holds a *slot* meanwhile (`Barrier.mutation`); whoever *reads*
it for a checkpoint holds the *cut* (`Barrier.checkpoint`). Slots never exclude each other.
Exclusion is between all of them and the cut: the usual reader-writer lock, turned round.

**Why.** A change that spans an `await` is half done at each of them: rows are in a store and not
yet in the index. A snapshot taken then restores a state that never was. A cut waits for the
slots that are open and keeps new ones out, so that it sees every change whole or not at all.

**Order.** Entry is first come, first served across both sides. A cut that is requested closes
the door: slots that come later queue behind it, so steady writers cannot starve a cut, and
slots that waited through one cut enter before a cut that was requested after them. A place
is handed over by whoever frees it, never raced for after a wake-up.

**Two kinds of cut**, one per barrier. A *window* reads over several awaits, and nothing may
change meanwhile. An *instant* cut reads in one synchronous step: a change whose effects on what
is read are one synchronous step too is before it or after it as a whole, so neither waits for
the other. Only slots that *span* an await are waited for.

`Barrier` has an example, and says when to use something else. One event loop, asyncio only.
Source: spec module `Barrier`; design, section 5.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, Literal, TypeVar

from cutlock.errors import DeadSectionError, ForeignSectionError, MisuseError, ReentryError
from cutlock.waiting import Signal, until_done

__all__ = [
    "LAST_CUTS",
    "Barrier",
    "BarrierStatistics",
    "Cut",
    "CutTiming",
    "KindStatistics",
    "Slot",
]

T = TypeVar("T")


LAST_CUTS = 128
"""Of how many cuts `BarrierStatistics.cuts` has the times; the earlier ones are in the totals."""


@dataclass(frozen=True, slots=True)
class KindStatistics:
    """How slots of one kind have waited; seconds."""

    entered: int = 0
    queued: int = 0
    """Those too that were cancelled before they entered; all else is of those that entered."""
    waited: int = 0
    waited_sum: float = 0.0
    waited_max: float = 0.0


@dataclass(frozen=True, slots=True)
class CutTiming:
    """The three times of one cut, or of several together, in seconds."""

    drain: float = 0.0
    """From the request until the last earlier section had ended."""
    exclusive: float = 0.0
    """The window itself; 0 until its end."""
    asynchronous: float = 0.0
    """From the end of the window to `Cut.settled`: the rest of the save, which holds nobody up;
    0 until then."""


@dataclass(frozen=True, slots=True)
class BarrierStatistics:
    """What a barrier has measured from its making to `Barrier.statistics`, which made this."""

    slots: Mapping[str, KindStatistics]
    """By kind of mutation; the kinds of which a slot has entered or queued."""
    cuts: tuple[CutTiming, ...]
    """Of the last `LAST_CUTS` cuts that were entered, in order."""
    cuts_entered: int
    """Of all cuts, as is the total."""
    cuts_total: CutTiming
    """The sum of their times."""


class _Waits:
    """The counters of one kind of slot; see `KindStatistics`."""

    __slots__ = ("entered", "queued", "waited", "waited_max", "waited_sum")

    def __init__(self) -> None:
        self.entered = 0
        self.queued = 0
        self.waited = 0
        self.waited_sum = 0.0
        self.waited_max = 0.0

    def taken(self) -> KindStatistics:
        return KindStatistics(
            self.entered, self.queued, self.waited, self.waited_sum, self.waited_max
        )


def _unheard(kind: str, seconds: float) -> None:
    """Nobody is told of waits."""


class _Section:
    """One use of one side of one barrier; also its own context manager."""

    __slots__ = ("_effects", "_state")

    side = "section"

    _state: Literal["new", "waiting", "live", "dead"]
    _effects: list[asyncio.Future[Any]] | None

    @property
    def alive(self) -> bool:
        """Whether the section has been entered and has not ended."""
        return self._state == "live"

    async def run(self, effect: Awaitable[T]) -> T:
        """Await something that cannot be stopped; the section does not end before it has.

        For work in a thread or in another process: if the caller is cancelled, once or
        repeatedly, the cancellation is delivered after the effect has ended.
        """
        future = self._begun(effect)
        cancelled = await until_done(future)
        if cancelled is not None:
            raise cancelled from None if future.cancelled() else future.exception()
        return future.result()

    async def until_done(self, effect: asyncio.Future[Any]) -> asyncio.CancelledError | None:
        """As `run`, for who has to look at `effect` itself; see `waiting.until_done`."""
        return await until_done(self._begun(effect))

    def _begun(self, effect: Awaitable[T]) -> asyncio.Future[T]:
        if self._state != "live":
            raise DeadSectionError(f"{self!r} runs no more effects; enter a new one")
        future = asyncio.ensure_future(effect)
        if self._effects is None:
            self._effects = []
        self._effects.append(future)
        return future

    async def _end_effects(self) -> asyncio.CancelledError | None:
        cancelled = None
        while running := [effect for effect in self._effects or () if not effect.done()]:
            cancelled = await until_done(running[0]) or cancelled
        self._effects = None  # results may be large, and contexts hold on to dead sections
        return cancelled


class _Kind:
    """What all slots of one kind have in common; see `Barrier.mutation`."""

    __slots__ = ("barrier", "counted", "name", "waits")

    def __init__(self, barrier: Barrier, name: str, *, counted: bool) -> None:
        self.barrier = barrier
        self.name = name
        self.counted = counted
        self.waits = barrier._kinds.setdefault(name, _Waits())


class Slot(_Section):
    """Proof that its holder is counted as a writer: no cut is open while it lives.

    Under instant cuts only a slot that spans an await is counted; see the module's docstring.
    Made by `Barrier.mutation`.
    """

    __slots__ = ("_kind",)

    side = "slot"

    _kind: _Kind

    def __repr__(self) -> str:
        return f"<{self._state} slot {self.kind!r}>"

    @property
    def barrier(self) -> Barrier:
        """The barrier that this slot is of."""
        return self._kind.barrier

    @property
    def kind(self) -> str:
        """What groups it in the statistics."""
        return self._kind.name

    # An uncontended slot costs `Barrier.mutation` and the two methods below. They are written
    # for that case: no call, look-up or branch that it does not need; see `bench/slots.py`.

    async def __aenter__(self) -> Slot:
        if self._state != "new":
            raise MisuseError(f"{self!r} is entered once; call mutation() again")
        kind = self._kind
        barrier = kind.barrier
        if barrier._guarded or barrier._slots:
            held = barrier._held.get()
            if held is not None and held._state == "live":
                raise _reentry(held, self)
            if not kind.counted:
                pass
            elif barrier._open is not None or barrier._queue:
                await self._wait()
            else:
                barrier._slots += 1
        else:
            barrier._slots = 1
        kind.waits.entered += 1
        self._state = "live"
        barrier._held.set(self)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._effects is not None:
            await self._leave_after_effects(exc)
            return
        self._state = "dead"
        kind = self._kind
        if kind.counted:
            barrier = kind.barrier
            barrier._slots -= 1
            if barrier._queue:
                barrier._hand_over()

    async def _wait(self) -> None:
        barrier, waits = self._kind.barrier, self._kind.waits
        waits.queued += 1
        waited = await barrier._wait(self)
        waits.waited += 1
        waits.waited_sum += waited
        waits.waited_max = max(waits.waited_max, waited)
        barrier.on_wait(self.kind, waited)

    async def _leave_after_effects(self, exc: BaseException | None) -> None:
        cancelled = await self._end_effects()
        await self.__aexit__(None, None, None)
        if cancelled is not None and (exc is None or isinstance(exc, Exception)):
            raise cancelled


class Cut(_Section):
    """Proof that its holder is alone: no slot that is counted and no other cut is live."""

    __slots__ = ("_asynchronous", "_drain", "_entered_at", "_exclusive", "_left_at", "barrier")

    side = "cut"

    def __init__(self, barrier: Barrier) -> None:
        self._state = "new"
        self._effects = None
        self.barrier = barrier
        self._drain = 0.0
        self._exclusive = 0.0
        self._asynchronous = 0.0
        self._entered_at = 0.0
        self._left_at = 0.0

    def __repr__(self) -> str:
        return f"<{self._state} cut>"

    @property
    def timing(self) -> CutTiming:
        """Its times so far."""
        return CutTiming(self._drain, self._exclusive, self._asynchronous)

    def settled(self) -> None:
        """Say that the save which this cut belongs to is over; sets `timing.asynchronous`."""
        if self._state != "dead":
            raise MisuseError(f"{self!r} has not ended; settled() comes after its window")
        before, self._asynchronous = self._asynchronous, self.barrier._clock() - self._left_at
        self.barrier._asynchronous_sum += self._asynchronous - before

    async def __aenter__(self) -> Cut:
        barrier = self.barrier
        if self._state != "new":
            raise MisuseError(f"{self!r} is entered once; call checkpoint() again")
        held = barrier._held.get()
        if held is not None and held._state == "live":
            raise _reentry(held, self)
        if barrier._open is None and not barrier._queue and not barrier._slots:
            barrier._set_open(self)
        else:
            self._drain = await barrier._wait(self)
            barrier._drain_sum += self._drain
        barrier._cuts.append(self)
        barrier._cuts_entered += 1
        self._state = "live"
        barrier._held.set(self)
        self._entered_at = barrier._clock()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        cancelled = None
        if self._effects is not None:  # pragma: no mutate: a shortcut
            cancelled = await self._end_effects()
        self._state = "dead"
        barrier = self.barrier
        self._left_at = barrier._clock()
        self._exclusive = self._left_at - self._entered_at
        barrier._exclusive_sum += self._exclusive
        barrier._set_open(None)
        if barrier._queue:
            barrier._hand_over()
        if cancelled is not None and (exc is None or isinstance(exc, Exception)):
            raise cancelled


def _reentry(held: _Section, wanted: Slot | Cut) -> ReentryError:
    return ReentryError(
        f"this task, or the task that spawned it, holds {held!r} and asks for a {wanted.side}, "
        "which could wait for ever; pass the held section on instead"
    )


class Barrier:
    """Lets many writers in at once, or one cut; see the module for what and why.

    A cut is asked for while a hundred writers are half way, and sees none of them so:

        >>> import asyncio
        >>> async def write(barrier, state):
        ...     async with barrier.mutation("commit"):
        ...         state["rows"] += 1
        ...         await asyncio.sleep(0)  # half done: the row is not in the index yet
        ...         state["index"] += 1
        >>> async def save(barrier, state):
        ...     writers = [asyncio.create_task(write(barrier, state)) for _ in range(100)]
        ...     await asyncio.sleep(0)  # all of them hold a slot
        ...     async with barrier.checkpoint():
        ...         print(state)
        >>> asyncio.run(save(Barrier(), {"rows": 0, "index": 0}))
        {'rows': 100, 'index': 100}

    Use something else

    * where no change spans an `await`: read everything without one, and no lock is needed;
    * where there is one writer, or writers exclude each other anyway: `asyncio.Lock`;
    * where many read what few change: a reader-writer lock, such as aiorwlock;
    * where the state may stand still until all tasks have ended: `asyncio.TaskGroup`;
    * between threads or processes: nothing here is safe there.

    Args:
        clock: seconds, monotonic; only read, for the statistics.
        instant: whoever holds a cut reads all in one synchronous step, and keeps out no slot
            whose effects are one.
    """

    # What every slot touches is not in the dictionary: it is cheaper to get at.
    __slots__ = ("__dict__", "_atomic", "_guarded", "_held", "_slots", "_spanning")

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, instant: bool = False
    ) -> None:
        self.instant = instant
        self._clock = clock
        self._slots = 0
        # False only where no cut is open and every live slot is counted. If no slot is counted
        # either, then nobody queues and nobody holds a section: a slot enters without a look.
        self._guarded = instant
        self._open: Cut | None = None
        self._queue: OrderedDict[Slot | Cut, asyncio.Future[None]] = OrderedDict()
        self._cut_queued = Signal()
        self._spanning: dict[str, _Kind] = {}
        self._atomic: dict[str, _Kind] = {}
        self._kinds: dict[str, _Waits] = {}
        self._cuts: deque[Cut] = deque(maxlen=LAST_CUTS)
        self._cuts_entered = 0
        self._drain_sum = 0.0
        self._exclusive_sum = 0.0
        self._asynchronous_sum = 0.0
        self.on_wait: Callable[[str, float], object] = _unheard
        """Told of each slot that has waited and entered: its kind, and how long. Must not raise."""
        # The last section of the current task, or else of the task that it was spawned from: a
        # child inherits it by context, which is how its re-entry is noticed. To set a variable
        # costs a fifth of the whole slot, so it is not set back: a section knows that it is
        # dead. Each barrier has its own, so that there is none but the last to be remembered.
        self._held: ContextVar[_Section | None] = ContextVar(__name__, default=None)

    # `Slot` has no `__init__`: the call of one costs an eighth of the whole slot.

    def mutation(self, kind: str) -> Slot:
        """A slot, to be entered with `async with`.

        Args:
            kind: groups the statistics.
        """
        slot = Slot()
        try:
            slot._kind = self._spanning[kind]
        except KeyError:
            slot._kind = self._spanning[kind] = _Kind(self, kind, counted=True)
        slot._state = "new"
        slot._effects = None
        return slot

    def atomic_mutation(self, kind: str) -> Slot:
        """A slot for a mutation whose effects on what a cut reads are one synchronous step.

        It is as `mutation`, but that an instant cut does not wait for it, nor it for the cut.
        """
        slot = Slot()
        try:
            slot._kind = self._atomic[kind]
        except KeyError:
            slot._kind = self._atomic[kind] = _Kind(self, kind, counted=not self.instant)
        slot._state = "new"
        slot._effects = None
        return slot

    def checkpoint(self) -> Cut:
        """A cut, to be entered with `async with`."""
        return Cut(self)

    @property
    def slots(self) -> int:
        """Live slots that a cut waits for, those included that have not resumed yet."""
        return self._slots

    @property
    def cut_open(self) -> bool:
        """Whether a cut is live or handed over."""
        return self._open is not None

    @property
    def waiting(self) -> tuple[str, ...]:
        """What queues, in order: the kind of each slot, `cut` for a cut."""
        return tuple(
            section.kind if isinstance(section, Slot) else "cut" for section in self._queue
        )

    def statistics(self) -> BarrierStatistics:
        """What was measured so far; a value that does not change any more."""
        return BarrierStatistics(
            slots=MappingProxyType(
                {kind: w.taken() for kind, w in self._kinds.items() if w.entered or w.queued}
            ),
            cuts=tuple(cut.timing for cut in self._cuts),
            cuts_entered=self._cuts_entered,
            cuts_total=CutTiming(self._drain_sum, self._exclusive_sum, self._asynchronous_sum),
        )

    async def cut_requested(self) -> None:
        """Return as soon as a cut queues; at once if one does.

        For the holder of a slot that waits for something which the cut may hold up.
        """
        if any(isinstance(section, Cut) for section in self._queue):
            return
        await self._cut_queued.wait()

    def require_slot(self, slot: Slot) -> None:
        """Raise unless `slot` is a live slot of this barrier."""
        if slot.__class__ is not Slot:
            raise ForeignSectionError(
                f"a change needs a slot, not {slot!r}; enter one with mutation()"
            )
        self._require(slot)

    def require_cut(self, cut: Cut) -> None:
        """Raise unless `cut` is a live cut of this barrier."""
        if cut.__class__ is not Cut:
            raise ForeignSectionError(
                f"a snapshot needs a cut, not {cut!r}; enter one with checkpoint()"
            )
        self._require(cut)

    def _require(self, section: Slot | Cut) -> None:
        if section.barrier is not self:
            raise ForeignSectionError(
                f"{section!r} is of another barrier; use the barrier that guards this state"
            )
        if section._state != "live":
            raise DeadSectionError(
                f"{section!r} protects nothing; make the change inside its `async with` block"
            )

    async def _wait(self, section: Slot | Cut) -> float:
        """Queue until the place is handed over; return the seconds waited."""
        asked_at = self._clock()
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue[section] = place
        if isinstance(section, Cut):
            self._cut_queued.notify()
        section._state = "waiting"
        try:
            await place
        except BaseException:
            section._state = "dead"
            if place.done() and not place.cancelled():
                # Handed over and cancelled in the same turn of the loop: give it back.
                if isinstance(section, Slot):
                    self._slots -= 1
                else:
                    self._set_open(None)
            else:
                self._queue.pop(section, None)
            self._hand_over()
            raise
        return self._clock() - asked_at

    def _hand_over(self) -> None:
        """Give free places to the head of the queue, in order."""
        queue = self._queue
        while queue and self._open is None:
            section, place = next(iter(queue.items()))
            if place.cancelled():
                # Its task has been cancelled and will find its place in the queue gone.
                del queue[section]
                continue
            if isinstance(section, Slot):
                self._slots += 1
            elif self._slots:
                return
            else:
                self._set_open(section)
            del queue[section]
            place.set_result(None)

    def _set_open(self, cut: Cut | None) -> None:
        self._open = cut
        self._guarded = self.instant or cut is not None
