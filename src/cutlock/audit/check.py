"""What the checks of an audit have in common: handlers by action, and problems that say where."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any

from cutlock.alphabet import Action
from cutlock.audit.history import Event

__all__ = ["Check", "Handler"]

Handler = Callable[[Any], None]
"""Takes the arguments of the action."""


class Check(abc.ABC):
    """Follows a history event by event, and notes what cannot be."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._where = ""
        self._handlers = self._handle()

    @abc.abstractmethod
    def _handle(self) -> Mapping[Action, Handler]:
        """The handlers of the actions that matter to this check."""

    def follow(self, event: Event) -> None:
        """Follow one event."""
        handler = self._handlers.get(event.action)
        if handler is not None:
            self._where = event.where
            handler(event.args)

    def _problem(self, text: str) -> None:
        self.problems.append(f"{self._where}: {text}")

    def _same(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            self._problem(f"{what} is {found} and should be {expected}")

    def _require(self, holds: bool, text: str) -> None:
        if not holds:
            self._problem(text)
