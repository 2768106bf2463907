"""Fault injection: a controller that kills its own process at a chosen action."""

from __future__ import annotations

import difflib
import os
import signal

import msgspec

from cutlock.alphabet import Action
from cutlock.errors import ConfigError

__all__ = ["KILLABLE", "NEVER_ANNOUNCED", "KillPlan"]

NEVER_ANNOUNCED = frozenset(
    {
        Action.CRASH,
        Action.BEGIN_RUN,
        Action.START_PUMPS,
        Action.END_RUN,
        Action.FILL_SPARE_POOL,
        Action.BEGIN_COMMIT,
        Action.FAIL_GROUP,
        Action.SUBSTITUTE_GROUP,
        Action.FAIL_SAVE,
        Action.STORE_ROW,
        Action.VERIFY_BUNDLE,
        Action.LOAD_PLANE,
        Action.CONNECT_PLANE,
    }
)
"""Actions without a stop point: they follow another one at once, or come from outside."""

KILLABLE = tuple(action.value for action in Action if action not in NEVER_ANNOUNCED)
"""Names of the actions at which a run can be killed."""


class KillPlan(msgspec.Struct, frozen=True):
    """Stop points that send SIGKILL to this process at the n-th announcement of an action."""

    action: Action
    count: int
    _seen: list[int] = msgspec.field(default_factory=lambda: [0])

    @classmethod
    def parse(cls, text: str) -> KillPlan:
        """Read `Action` or `Action:N`.

        Raises:
            ConfigError: no such action, one without a stop point, or N is not a positive
                number.
        """
        name, colon, count = text.partition(":")
        if name not in KILLABLE:
            known = name in {action.value for action in Action}
            near = difflib.get_close_matches(name, KILLABLE, 1)
            raise ConfigError(
                f"{name!r} is {'an action without a stop point' if known else 'no action'}"
                f"{f' (did you mean {near[0]}?)' if near else ''}; choose one of "
                f"{', '.join(KILLABLE)}"
            )
        if colon and not (count.isdecimal() and int(count) > 0):
            raise ConfigError(
                f"{text!r}: the count must be 1 or more, not {count!r}; write e.g. {name}:2"
            )
        return cls(Action(name), int(count or 1))

    async def reach(self, action: Action, /, **where: object) -> None:
        """Die if this is the moment."""
        if action is self.action:
            self._seen[0] += 1
            if self._seen[0] == self.count:
                os.kill(os.getpid(), signal.SIGKILL)
