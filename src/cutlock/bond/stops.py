"""Points at which tasks stand until they are let go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Generic, TypeVar

from cutlock.errors import NotEnabledError

__all__ = ["Hold", "Stops"]

N = TypeVar("N", bound=str)


class Hold:
    """A point at which everybody who comes by stands until it is released."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        """Whether somebody has come by."""
        self._released = False
        self._standing: list[asyncio.Future[None]] = []

    async def stand(self) -> None:
        """Stand here until released, or cancelled; pass if that has happened already."""
        self.reached.set()
        if self._released:
            return
        stands = asyncio.get_running_loop().create_future()
        self._standing.append(stands)
        try:
            await stands
        finally:
            self._standing.remove(stands)

    def release(self, error: Exception | None = None) -> None:
        """Let go on who stands here, with an error if one is given, and let others pass."""
        self._released = True
        for stands in self._standing:
            if stands.done():
                continue
            if error is None:
                stands.set_result(None)
            else:
                stands.set_exception(error)


class Stops(Generic[N]):
    """Where tasks stand: each before an action that it has announced, until it is released.

    A place is an action, and who or what it is of where several may stand before the same one.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[N, str | None], Hold] = {}

    @property
    def places(self) -> Mapping[tuple[N, str | None], object]:
        """Where somebody stands."""
        return self._held

    def at(self, action: N, of: str | None = None) -> bool:
        """Whether somebody stands before that action."""
        return (action, of) in self._held

    def require(self, action: N, of: str | None = None) -> None:
        """Raise NotEnabledError unless somebody stands before that action."""
        if (action, of) not in self._held:
            places = ", ".join(f"{held}({who or ''})" for held, who in self._held) or "nowhere"
            raise NotEnabledError(
                f"nobody stands before {action}({of or ''}); tasks stand at: {places}"
            )

    def release(self, action: N, of: str | None = None, error: Exception | None = None) -> None:
        """Let go on who stands there, with an error if one is given; turn its loop afterwards.

        Raises:
            NotEnabledError: nobody stands there.
        """
        self.require(action, of)
        self._held[action, of].release(error)

    async def hold(self, action: N, of: str | None = None) -> None:
        """Stand before an action until released, or cancelled."""
        place = action, of
        assert place not in self._held, f"two tasks stand before {place}"
        self._held[place] = Hold()
        try:
            await self._held[place].stand()
        finally:
            del self._held[place]
