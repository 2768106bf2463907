"""The liveness probe of a store: once a part does not answer, all calls of the client end.

A dead part is not waited for: while a call is under way, each part is asked once a second
whether anybody listens at its address. One that listens and does not answer has a limit of its
own, and so has every call. The first to be found missing ends the client: calls under way end
at once, and so does every later one, all with the name of the same part, however many there are.

A client is not mended: what a store that lost a part holds is known from the last bundle only.

Source: design, promise P10.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cutlock.errors import PlaneError, PlaneLostError, PlaneTimeoutError
from cutlock.plane.checks import timed_out, what_of

__all__ = ["CHECK_S", "LivenessProbe", "Part"]

T = TypeVar("T")

CHECK_S = 1.0
"""Seconds between two looks at the parts, while a call is under way for at least as long."""

_WAY_OUT = "a store that lost a part cannot go on; resume from the last bundle, into a new store"


@dataclass(frozen=True, slots=True)
class Part:
    """A process of the store."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        """Name and address, for messages."""
        return f"{self.name} at {self.host}:{self.port}"


@dataclass(slots=True)
class _Debt:
    """What a part owes: so many answers, and none of them since then."""

    answers: int = 0
    since: float = 0.0


class LivenessProbe:
    """Probes the parts of a store while calls are under way, and bounds those calls.

    One per client; belongs to one event loop.

    Args:
        parts: the parts that are looked at; the first is the one that every call needs.
        answer_limit_s: for how long a part may owe answers and give none.
    """

    def __init__(self, parts: Sequence[Part] = (), answer_limit_s: float = float("inf")) -> None:
        self._parts = tuple(parts)
        self._answer_limit_s = answer_limit_s
        self._calls: dict[asyncio.Timeout, float] = {}
        self._debts: dict[Part, _Debt] = {}
        self._watch: asyncio.Task[None] | None = None
        self._lost: str | None = None

    @property
    def lost(self) -> bool:
        """Whether the store is lost for this client."""
        return self._lost is not None

    def require(self, call: str) -> None:
        """Raise `PlaneLostError` if the store is lost; before a call is begun."""
        if self._lost is not None:
            raise PlaneLostError(f"{call} was not begun: {self._lost}")

    def lose(self, why: str) -> None:
        """End all calls, the later ones too; the first reason stays."""
        if self._lost is not None:
            return
        self._lost = f"{why}; {_WAY_OUT}"
        now = asyncio.get_running_loop().time()
        for limit in self._calls:
            if not limit.expired():
                limit.reschedule(now)

    @contextlib.contextmanager
    def asking(self, part: Part) -> Iterator[None]:
        """Note that `part` owes an answer until the end of the block."""
        debt = self._debts.setdefault(part, _Debt())
        if not debt.answers:
            debt.since = time.monotonic()
        debt.answers += 1
        try:
            yield
            debt.since = time.monotonic()
        finally:
            debt.answers -= 1

    async def bounded(
        self,
        call: str,
        keys: int | None,
        limit_s: float | None,
        work: Awaitable[T],
        *,
        foreign: Callable[[Exception], PlaneError] | None = None,
        slow: bool = False,
    ) -> T:
        """Await `work` for at most `limit_s`, or until a part is lost.

        Args:
            keys: how many rows the call is about, for messages.
            foreign: makes a `PlaneError` of an error that is none; None lets it through.
            slow: a call whose time grows with what is stored and with the disk: passing its
                limit says nothing about the store.

        Raises:
            PlaneTimeoutError: the limit passed; unless `slow`, the store counts as lost.
            PlaneLostError: a part was found to be lost.
        """
        late: PlaneTimeoutError | None = None
        try:
            async with asyncio.timeout(None) as limit:

                def expire(limit_s: float) -> None:
                    # Now, because a call that is stopped does not owe any more.
                    nonlocal late
                    late = timed_out(call, limit_s, keys, self._debtor(limit_s))
                    if not limit.expired():
                        limit.reschedule(asyncio.get_running_loop().time())

                with self._under_way(limit, limit_s, expire):
                    return await work
        except PlaneError:
            raise
        except Exception as error:
            if late is not None and isinstance(error, TimeoutError) and self._lost is None:
                if not slow:
                    self.lose(str(late))
                raise late from error
            if self._lost is not None:
                raise PlaneLostError(f"{what_of(call, keys)} failed: {self._lost}") from error
            if foreign is None:
                raise
            raise foreign(error) from error

    def close(self) -> None:
        """Look at the parts no more."""
        if self._watch is not None:
            self._watch.cancel()

    @contextlib.contextmanager
    def _under_way(
        self, limit: asyncio.Timeout, limit_s: float | None, expire: Callable[[float], None]
    ) -> Iterator[None]:
        self._calls[limit] = time.monotonic()
        timer = None
        if limit_s is not None:
            timer = asyncio.get_running_loop().call_later(limit_s, expire, limit_s)
        if self._parts and (self._watch is None or self._watch.done()):
            self._watch = asyncio.create_task(self._look(), name="liveness probe of a plane")
        try:
            yield
        finally:
            del self._calls[limit]
            if timer is not None:
                timer.cancel()

    async def _look(self) -> None:
        """Look at the parts while calls are under way."""
        while self._calls and self._lost is None:
            await asyncio.sleep(CHECK_S)
            now = time.monotonic()
            if not any(now - begun >= CHECK_S for begun in self._calls.values()):
                continue
            for part, debt in self._debts.items():
                if debt.answers and now - debt.since >= self._answer_limit_s:
                    self.lose(
                        f"{part} has answered nothing for {self._answer_limit_s:g} s "
                        "(plane.unit_limit_s)"
                    )
            refused = await asyncio.gather(*map(_refuses, self._parts))
            for part, dead in zip(self._parts, refused, strict=True):
                if dead:
                    self.lose(f"{part} is dead: nobody listens there")

    def _debtor(self, limit_s: float) -> Part | None:
        """The part that a call has most likely waited for until its limit."""
        now = time.monotonic()
        owing = [
            part
            for part, debt in self._debts.items()
            if debt.answers and now - debt.since >= limit_s / 2
        ]
        return next(iter([*owing, *self._parts]), None)


async def _refuses(part: Part) -> bool:
    """Whether nobody listens at the part's address; no answer at all is no proof of that."""
    try:
        async with asyncio.timeout(CHECK_S):
            _, writer = await asyncio.open_connection(part.host, part.port)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return False
