"""Named stop points: the places where a scheduler, a test or a kill plan may stand.

The runtime announces each action of the alphabet just before it happens. In production
nobody listens and the announcement does not suspend.
"""

from __future__ import annotations

from typing import Protocol

from cutlock.alphabet import Action

__all__ = ["NO_STOPS", "NoStops", "StopPoints"]


class StopPoints(Protocol):
    """Listener that may hold a task at a named point."""

    async def reach(self, action: Action, /, **where: object) -> None:
        """Return when the announced action may go on."""
        ...


class NoStops:
    """Listener that lets everything pass without suspending."""

    async def reach(self, action: Action, /, **where: object) -> None:
        """Return at once."""


NO_STOPS = NoStops()
