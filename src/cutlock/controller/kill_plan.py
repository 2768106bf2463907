"""Fault injection: a controller that kills its own process at a chosen action."""

from __future__ import annotations

import os
import signal

import msgspec

from cutlock.alphabet import Action
from cutlock.errors import ConfigError

__all__ = ["KillPlan"]


class KillPlan(msgspec.Struct, frozen=True):
    """Stop points that send SIGKILL to this process at the n-th announcement of an action."""

    action: Action
    count: int
    _seen: list[int] = msgspec.field(default_factory=lambda: [0])

    @classmethod
    def parse(cls, text: str) -> KillPlan:
        """Read `Action` or `Action:N`.

        Raises:
            ConfigError: no such action, or N is not a positive number.
        """
        name, _, count = text.partition(":")
        try:
            action = Action(name)
        except ValueError as error:
            raise ConfigError(
                f"{name!r} is no action; choose one of {', '.join(Action)}"
            ) from error
        if count and not (count.isdecimal() and int(count) > 0):
            raise ConfigError(f"{text!r}: the count must be 1 or more, not {count!r}")
        return cls(action, int(count or 1))

    async def reach(self, action: Action, /, **where: object) -> None:
        """Die if this is the moment."""
        if action is self.action:
            self._seen[0] += 1
            if self._seen[0] == self.count:
                os.kill(os.getpid(), signal.SIGKILL)
