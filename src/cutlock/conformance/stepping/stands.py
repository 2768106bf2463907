"""Where the tasks of a controller stand: every announced action is held until it is released."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from cutlock.alphabet import Action
from cutlock.conformance.stepping.parts import CURRENT_GROUP
from cutlock.errors import NotEnabledError
from cutlock.plane.memory import NO_STEPS, PlaneStep, PlaneSteps

__all__ = ["Place", "Stands"]

Place = tuple[Action, str | None]
"""An announced action, and its group or unit if it is of one."""

_PASSES = frozenset({Action.ROLLBACK_GROUP})
"""The spec makes these one step with what caused them."""
_HELD_IN_THE_STORE = frozenset({Action.PUT_ROWS, Action.SAVE_UNIT})
"""Under the narrow cut others come between the steps of these, so the store holds them."""


class Stands:
    """`StopPoints` that hold every task where it has announced an action.

    Args:
        narrow: whether saves are made by a narrow cut.
    """

    def __init__(self, *, narrow: bool) -> None:
        self._held: dict[Place, asyncio.Future[None]] = {}
        self._passes = _PASSES | _HELD_IN_THE_STORE if narrow else _PASSES
        self.steps: PlaneSteps = _StoreSteps(self) if narrow else NO_STEPS
        """Where the steps of a store are held."""
        self.units: dict[str, int] = {}
        """The unit that a group's put comes to next, of those that are held before one."""

    @property
    def places(self) -> Mapping[Place, object]:
        """Where somebody stands."""
        return self._held

    def at(self, action: Action, group: str | None = None) -> bool:
        """Whether somebody stands before that action."""
        return (action, group) in self._held

    def groups(self, action: Action) -> list[str]:
        """The groups whose tasks stand before that action."""
        return [group for held, group in self._held if held is action and group is not None]

    def require(self, action: Action, group: str | None = None) -> None:
        """Raise NotEnabledError unless somebody stands before that action."""
        if (action, group) not in self._held:
            places = ", ".join(f"{held}({of or ''})" for held, of in self._held) or "nowhere"
            raise NotEnabledError(
                f"nobody stands before {action}({group or ''}); tasks stand at: {places}"
            )

    def release(
        self, action: Action, group: str | None = None, error: Exception | None = None
    ) -> None:
        """Let go on who stands there, with an error if one is given.

        Raises:
            NotEnabledError: nobody stands there.
        """
        self.require(action, group)
        future = self._held[action, group]
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    async def reach(self, action: Action, /, **where: object) -> None:
        """Stand here until released."""
        group = where.get("group")
        place: Place = (action, group if isinstance(group, str) else None)
        if action in self._passes:
            return
        if action is Action.LAUNCH_GROUP and isinstance(group, str):
            CURRENT_GROUP.set(group)
        await self.hold(place)

    async def hold(self, place: Place) -> None:
        """Stand at a place until released."""
        assert place not in self._held, f"two tasks stand before {place}"
        self._held[place] = asyncio.get_running_loop().create_future()
        try:
            await self._held[place]
        finally:
            del self._held[place]


class _StoreSteps:
    """`PlaneSteps` that hold a put before each unit and its end, a snapshot before each unit.

    A put of advantages is one step in the spec, and passes.
    """

    def __init__(self, stands: Stands) -> None:
        self._stands = stands

    async def reach(self, step: PlaneStep, /) -> None:
        group = CURRENT_GROUP.get(None)
        match step.op, step.phase:
            case "snapshot", "unit":
                await self._stands.hold((Action.SAVE_UNIT, str(step.unit)))
            case "put", "store" if group is not None:
                assert step.unit is not None
                self._stands.units[group] = step.unit
                await self._stands.hold((Action.STORE_ROW, group))
            case "put", "notify" if group is not None:
                await self._stands.hold((Action.PUT_ROWS, group))
