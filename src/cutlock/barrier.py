"""The checkpoint barrier: many writers at once, or one snapshot reader.

The shared side is taken by those who *change* state (`mutation`, a *slot*), the exclusive
side by the one who reads it (`checkpoint`, a *cut*): the inverse of the usual reader-writer
lock. Writers never exclude each other; exclusion is between all of them and the cut.

Entry is first come, first served across both sides. A cut that is requested closes the
door: slots that come later queue behind it, so steady writers cannot starve a cut, and
slots that waited through one cut enter before a cut that was requested after them. A place
is handed over by whoever frees it, never raced for after a wake-up.

One event loop, asyncio only. Source: spec module `Barrier`; design, section 5.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar

from cutlock.errors import DeadSectionError, ForeignSectionError, MisuseError, ReentryError

__all__ = ["Barrier", "BarrierStatistics", "Cut", "CutTiming", "KindStatistics", "Slot"]

T = TypeVar("T")

# The live sections of the current task and of the tasks it was spawned from. A child task
# inherits them by context, which is how its re-entry is noticed.
_held: ContextVar[tuple[_Section, ...]] = ContextVar("cutlock_held_sections", default=())


class KindStatistics:
    """How slots of one kind have waited; seconds."""

    __slots__ = ("entered", "waited", "waited_max", "waited_sum")

    def __init__(self) -> None:
        self.entered = 0
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


class BarrierStatistics:
    """What a barrier has measured since it was made."""

    def __init__(self) -> None:
        self.slots: dict[str, KindStatistics] = {}
        """By kind of mutation."""
        self.cuts: list[CutTiming] = []
        """One per cut that was entered, in order."""


class _Section:
    """One use of one side of one barrier; also its own context manager."""

    __slots__ = ("_barrier", "_effects", "_state")

    side = "section"

    def __init__(self, barrier: Barrier) -> None:
        self._barrier = barrier
        self._state = _NEW
        self._effects: list[asyncio.Future[Any]] | None = None

    @property
    def alive(self) -> bool:
        """Whether the section has been entered and has not ended."""
        return self._state == _LIVE

    @property
    def barrier(self) -> Barrier:
        """The barrier that this section is of."""
        return self._barrier

    async def run(self, effect: Awaitable[T]) -> T:
        """Await something that cannot be stopped; the section does not end before it has.

        For work in a thread or in another process: if the caller is cancelled, once or
        repeatedly, the cancellation is delivered after the effect has ended.
        """
        if self._state != _LIVE:
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
        return cancelled

    def _enter_context(self) -> None:
        self._state = _LIVE
        held = _held.get()
        if held:
            held = tuple(section for section in held if section._state == _LIVE)
        _held.set((*held, self))

    def _leave_context(self) -> None:
        self._state = _DEAD
        held = _held.get()
        if held == (self,):  # pragma: no mutate: a shortcut
            _held.set(())
        else:
            _held.set(tuple(section for section in held if section is not self))


_NEW, _WAITING, _LIVE, _DEAD = range(4)
_STATES = ("new", "waiting", "live", "dead")


async def _until_done(future: asyncio.Future[T]) -> asyncio.CancelledError | None:
    """Wait until `future` is done whatever happens; return the last cancellation, if any."""
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


class Slot(_Section):
    """Proof that its holder is counted as a writer: no cut is open while it lives."""

    __slots__ = ("kind",)

    side = "slot"

    def __init__(self, barrier: Barrier, kind: str) -> None:
        super().__init__(barrier)
        self.kind = kind

    def __repr__(self) -> str:
        return f"<{_STATES[self._state]} slot {self.kind!r}>"

    async def __aenter__(self) -> Slot:
        barrier = self._barrier
        if self._state != _NEW:
            raise MisuseError(f"{self!r} is entered once; call mutation() again")
        if _held.get():
            barrier._refuse_reentry(self)
        kind = barrier._kind(self.kind)
        if barrier._open is None and not barrier._queue:
            barrier._slots += 1
        else:
            waited = await barrier._wait(self)
            kind.waited += 1
            kind.waited_sum += waited
            kind.waited_max = max(kind.waited_max, waited)
        kind.entered += 1
        self._enter_context()
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
        self._leave_context()
        barrier = self._barrier
        barrier._slots -= 1
        if barrier._queue:
            barrier._hand_over()
        if cancelled is not None and (exc is None or isinstance(exc, Exception)):
            raise cancelled


class Cut(_Section):
    """Proof that its holder is alone: no slot and no other cut is live."""

    __slots__ = ("_entered_at", "_left_at", "timing")

    side = "cut"

    def __init__(self, barrier: Barrier) -> None:
        super().__init__(barrier)
        self.timing = CutTiming(0.0)
        self._entered_at = 0.0
        self._left_at = 0.0

    def __repr__(self) -> str:
        return f"<{_STATES[self._state]} cut>"

    def settled(self) -> None:
        """Say that the save which this cut belongs to is over; sets `timing.asynchronous`."""
        if self._state != _DEAD:
            raise MisuseError(f"{self!r} has not ended; settled() comes after its window")
        self.timing.asynchronous = self._barrier._clock() - self._left_at

    async def __aenter__(self) -> Cut:
        barrier = self._barrier
        if self._state != _NEW:
            raise MisuseError(f"{self!r} is entered once; call checkpoint() again")
        if _held.get():
            barrier._refuse_reentry(self)
        if barrier._open is None and not barrier._queue and not barrier._slots:
            barrier._open = self
        else:
            self.timing.drain = await barrier._wait(self)
        barrier.statistics.cuts.append(self.timing)
        self._enter_context()
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
        self._leave_context()
        barrier = self._barrier
        self._left_at = barrier._clock()
        self.timing.exclusive = self._left_at - self._entered_at
        barrier._open = None
        if barrier._queue:
            barrier._hand_over()
        if cancelled is not None and (exc is None or isinstance(exc, Exception)):
            raise cancelled


class Barrier:
    """The barrier of one controller; see the module's docstring.

    Args:
        clock: seconds, monotonic; only read, for the statistics.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._slots = 0
        self._open: Cut | None = None
        self._queue: deque[tuple[Slot | Cut, asyncio.Future[None]]] = deque()
        self._cut_watchers: list[asyncio.Future[None]] = []
        self.statistics = BarrierStatistics()

    def mutation(self, kind: str) -> Slot:
        """A slot, to be entered with `async with`; `kind` groups the statistics."""
        return Slot(self, kind)

    def checkpoint(self) -> Cut:
        """A cut, to be entered with `async with`."""
        return Cut(self)

    @property
    def slots(self) -> int:
        """Live slots, those included that were handed over and have not resumed yet."""
        return self._slots

    @property
    def cut_open(self) -> bool:
        """Whether a cut is live or handed over."""
        return self._open is not None

    @property
    def waiting(self) -> tuple[str, ...]:
        """What queues, in order: the kind of each slot, `cut` for a cut."""
        return tuple(
            section.kind if isinstance(section, Slot) else "cut" for section, _ in self._queue
        )

    async def cut_requested(self) -> None:
        """Return as soon as a cut queues; at once if one does.

        For the holder of a slot that waits for something which the cut may hold up.
        """
        if any(isinstance(section, Cut) for section, _ in self._queue):
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
        if section._barrier is not self:
            raise ForeignSectionError(
                f"{section!r} is of another barrier; use the barrier that guards this state"
            )
        if section._state != _LIVE:
            raise DeadSectionError(
                f"{section!r} protects nothing; make the change inside its `async with` block"
            )

    def _kind(self, name: str) -> KindStatistics:
        kind = self.statistics.slots.get(name)
        if kind is None:
            kind = self.statistics.slots[name] = KindStatistics()
        return kind

    def _refuse_reentry(self, wanted: Slot | Cut) -> None:
        for section in _held.get():
            if section._barrier is self and section._state == _LIVE:
                raise ReentryError(
                    f"this task, or the task that spawned it, holds {section!r} and asks for "
                    f"a {wanted.side}, which could wait for ever; pass the held section on "
                    "instead"
                )

    async def _wait(self, section: Slot | Cut) -> float:
        """Queue until the place is handed over; return the seconds waited."""
        asked_at = self._clock()
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ticket = (section, place)
        self._queue.append(ticket)
        if isinstance(section, Cut):
            for watcher in self._cut_watchers:
                if not watcher.done():
                    watcher.set_result(None)
        section._state = _WAITING
        try:
            await place
        except BaseException:
            section._state = _DEAD
            if place.done() and not place.cancelled():
                # Handed over and cancelled in the same turn of the loop: give it back.
                if isinstance(section, Slot):
                    self._slots -= 1
                else:
                    self._open = None
            elif ticket in self._queue:
                self._queue.remove(ticket)
            self._hand_over()
            raise
        return self._clock() - asked_at

    def _hand_over(self) -> None:
        """Give free places to the head of the queue, in order."""
        queue = self._queue
        while queue and self._open is None:
            section, place = queue[0]
            if place.cancelled():
                # Its task has been cancelled and will find its ticket gone.
                queue.popleft()
                continue
            if isinstance(section, Slot):
                self._slots += 1
            elif self._slots:
                return
            else:
                self._open = section
            queue.popleft()
            place.set_result(None)
