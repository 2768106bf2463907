"""One walk through a history: fates and counters together."""

from __future__ import annotations

from collections.abc import Iterable

from cutlock.audit.counters import Counters
from cutlock.audit.fates import Fates
from cutlock.audit.history import Event

__all__ = ["Account"]


class Account:
    """Fates and counters after a number of events.

    Args:
        prompts: stable ids of the data set.
        epochs: how often each is to be served.
        events: what happened, oldest first.
    """

    def __init__(self, prompts: Iterable[str], epochs: int, events: Iterable[Event]) -> None:
        self.fates = Fates(prompts, epochs)
        self.counters = Counters()
        for event in events:
            self.fates.follow(event)
            self.counters.follow(event)

    @property
    def problems(self) -> list[str]:
        """What both have found, owners first."""
        return [*self.fates.problems, *self.counters.problems]
