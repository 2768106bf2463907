"""Named points at which tasks stand until they are let go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Generic, TypeVar

from cutlock.errors import NotEnabledError

__all__ = ["Stops"]

N = TypeVar("N", bound=str)


class Stops(Generic[N]):
    """Where tasks stand: each before an action that it has announced, until it is released.

    A place is an action, and who or what it is of where several may stand before the same one.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[N, str | None], asyncio.Future[None]] = {}

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
        future = self._held[action, of]
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    async def hold(self, action: N, of: str | None = None) -> None:
        """Stand before an action until released, or cancelled."""
        place = action, of
        assert place not in self._held, f"two tasks stand before {place}"
        self._held[place] = asyncio.get_running_loop().create_future()
        try:
            await self._held[place]
        finally:
            del self._held[place]
