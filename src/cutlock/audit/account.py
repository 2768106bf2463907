"""One walk through a history, with all checks."""

from __future__ import annotations

from collections.abc import Iterable

from cutlock.audit.admissions import Admissions
from cutlock.audit.attempts import Attempts
from cutlock.audit.check import Check
from cutlock.audit.fates import Fates
from cutlock.audit.history import Event
from cutlock.audit.restores import Restores
from cutlock.audit.saves import Saves
from cutlock.audit.steps import Steps

__all__ = ["Account"]


class Account:
    """What the checks know after a number of events.

    Args:
        prompts: stable ids of the data set.
        epochs: how often each is to be served.
        events: what happened, oldest first.
    """

    def __init__(self, prompts: Iterable[str], epochs: int, events: Iterable[Event]) -> None:
        self.fates = Fates(prompts, epochs)
        self.admissions = Admissions()
        self.steps = Steps()
        self.checks: tuple[Check, ...] = (
            self.fates,
            self.admissions,
            Attempts(),
            self.steps,
            Saves(),
            Restores(),
        )
        for event in events:
            self.follow(event)

    def follow(self, event: Event) -> None:
        """What the checks know after one more event."""
        for check in self.checks:
            check.follow(event)

    @property
    def problems(self) -> list[str]:
        """What all checks have found, owners first."""
        return [problem for check in self.checks for problem in check.problems]
