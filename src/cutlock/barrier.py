"""The checkpoint barrier: many writers at once, or one snapshot reader.

The shared side is taken by those who *change* state (`mutation`, a *slot*), the exclusive
side by the one who reads it (`checkpoint`, a *cut*): the inverse of the usual reader-writer
lock. Writers never exclude each other; exclusion is between all of them and the cut.

Entry is first come, first served across both sides. A cut that is requested closes the
door: slots that come later queue behind it, so steady writers cannot starve a cut, and
slots that waited through one cut enter before a cut that was requested after them. A place
is handed over by whoever frees it, never raced for after a wake-up.

There are two kinds of cut, one per barrier. A *window* reads over several awaits, and nothing
may change meanwhile. An *instant* cut reads in one synchronous step: a change whose effects
on what is read are one synchronous step too is before it or after it as a whole, so it
neither waits for the cut nor is waited for. Only slots that *span* an await are.

One event loop, asyncio only. Source: spec module `Barrier`; design, section 5.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Literal, TypeVar

from cutlock.errors import DeadSectionError, ForeignSectionError, MisuseError, ReentryError

__all__ = ["Barrier", "BarrierStatistics", "Cut", "CutTiming", "KindStatistics", "Slot"]

T = TypeVar("T")


class KindStatistics:
    """How slots of one kind have waited; seconds.

    `queued` counts those too that were cancelled before they entered; all else is of those
    that have entered.
    """

    __slots__ = ("entered", "queued", "waited", "waited_max", "waited_sum")

    def __init__(self) -> None:
        self.entered = 0
        self.queued = 0
        self.waited = 0
        self.waited_sum = 0.0
        self.waited_max = 0.0

    def __repr__(self) -> str:
        return (
            f"entered={self.entered} waited={self.waited} "
            f"sum={self.waited_sum:.6f}s max={self.waited_max:.6f}s"
        )


class CutTiming:
    """The three times of one cut, in seconds.

    `drain`: from the request until the last earlier section had ended. `exclusive`: the
    window itself. `asynchronous`: from the end of the window to `Cut.settled`, the rest of
    the save, which holds nobody up; 0 until then.
    """

    __slots__ = ("asynchronous", "drain", "exclusive")

    def __init__(self, drain: float) -> None:
        self.drain = drain
        self.exclusive = 0.0
        self.asynchronous = 0.0

    def __repr__(self) -> str:
        return (
            f"drain={self.drain:.6f}s exclusive={self.exclusive:.6f}s "
            f"asynchronous={self.asynchronous:.6f}s"
        )


def _unheard(kind: str, seconds: float) -> None:
    """Nobody is told of waits."""


class BarrierStatistics:
    """What a barrier has measured since it was made."""

    def __init__(self) -> None:
        self._kinds: dict[str, KindStatistics] = {}
        self.cuts: list[CutTiming] = []
        """One per cut that was entered, in order."""
        self.on_wait: Callable[[str, float], object] = _unheard
        """Told of each slot that has waited and entered: its kind, and how long. Must not raise."""

    @property
    def slots(self) -> dict[str, KindStatistics]:
        """By kind of mutation; the kinds of which a slot has entered or queued."""
        return {name: kind for name, kind in self._kinds.items() if kind.entered or kind.queued}


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
        if self._state != "live":
            raise DeadSectionError(f"{self!r} runs no more effects; enter a new one")
        future = asyncio.ensure_future(effect)
        if self._effects is None:
            self._effects = []
        self._effects.append(future)
        cancelled = await _until_done(future)
        if cancelled is not None:
            raise cancelled from None if future.cancelled() else future.exception()
        return future.result()

    async def _end_effects(self) -> asyncio.CancelledError | None:
        cancelled = None
        while running := [effect for effect in self._effects or () if not effect.done()]:
            cancelled = await _until_done(running[0]) or cancelled
        self._effects = None  # results may be large, and contexts hold on to dead sections
        return cancelled


async def _until_done(future: asyncio.Future[T]) -> asyncio.CancelledError | None:
    """Wait until `future` is done whatever happens; return the last cancellation, if any."""
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


class _Kind:
    """What all slots of one kind have in common; see `Barrier.mutation`."""

    __slots__ = ("barrier", "counted", "name", "statistics")

    def __init__(self, barrier: Barrier, name: str, *, counted: bool) -> None:
        self.barrier = barrier
        self.name = name
        self.counted = counted
        self.statistics = barrier.statistics._kinds.setdefault(name, KindStatistics())


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
        kind.statistics.entered += 1
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
        barrier, statistics = self._kind.barrier, self._kind.statistics
        statistics.queued += 1
        waited = await barrier._wait(self)
        statistics.waited += 1
        statistics.waited_sum += waited
        statistics.waited_max = max(statistics.waited_max, waited)
        barrier.statistics.on_wait(self.kind, waited)

    async def _leave_after_effects(self, exc: BaseException | None) -> None:
        cancelled = await self._end_effects()
        await self.__aexit__(None, None, None)
        if cancelled is not None and (exc is None or isinstance(exc, Exception)):
            raise cancelled


class Cut(_Section):
    """Proof that its holder is alone: no slot that is counted and no other cut is live."""

    __slots__ = ("_entered_at", "_left_at", "barrier", "timing")

    side = "cut"

    def __init__(self, barrier: Barrier) -> None:
        self._state = "new"
        self._effects = None
        self.barrier = barrier
        self.timing = CutTiming(0.0)
        self._entered_at = 0.0
        self._left_at = 0.0

    def __repr__(self) -> str:
        return f"<{self._state} cut>"

    def settled(self) -> None:
        """Say that the save which this cut belongs to is over; sets `timing.asynchronous`."""
        if self._state != "dead":
            raise MisuseError(f"{self!r} has not ended; settled() comes after its window")
        self.timing.asynchronous = self.barrier._clock() - self._left_at

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
            self.timing.drain = await barrier._wait(self)
        barrier.statistics.cuts.append(self.timing)
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
        self.timing.exclusive = self._left_at - self._entered_at
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
    """The barrier of one controller; see the module's docstring.

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
        self._cut_watchers: list[asyncio.Future[None]] = []
        self._spanning: dict[str, _Kind] = {}
        self._atomic: dict[str, _Kind] = {}
        self.statistics = BarrierStatistics()
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

    async def cut_requested(self) -> None:
        """Return as soon as a cut queues; at once if one does.

        For the holder of a slot that waits for something which the cut may hold up.
        """
        if any(isinstance(section, Cut) for section in self._queue):
            return
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cut_watchers.append(watcher)
        try:
            await watcher
        finally:
            self._cut_watchers.remove(watcher)

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
            for watcher in self._cut_watchers:
                if not watcher.done():
                    watcher.set_result(None)
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
