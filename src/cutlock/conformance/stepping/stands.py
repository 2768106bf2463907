"""Where the tasks of a controller stand: every announced action is held until it is released."""

from __future__ import annotations

from cutlock.alphabet import Action
from cutlock.bond.stops import Stops
from cutlock.conformance.stepping.parts import CURRENT_GROUP
from cutlock.plane.memory import NO_STEPS, PlaneStep, PlaneSteps

__all__ = ["Stands"]

_PASSES = frozenset({Action.ROLLBACK_GROUP})
"""The spec makes these one step with what caused them."""
_HELD_IN_THE_STORE = frozenset({Action.PUT_ROWS, Action.SAVE_UNIT})
"""Under the narrow cut others come between the steps of these, so the store holds them."""


class Stands(Stops[Action]):
    """`StopPoints` that hold every task where it has announced an action.

    Args:
        narrow: whether saves are made by a narrow cut.
    """

    def __init__(self, *, narrow: bool) -> None:
        super().__init__()
        self._passes = _PASSES | _HELD_IN_THE_STORE if narrow else _PASSES
        self.steps: PlaneSteps = _StoreSteps(self) if narrow else NO_STEPS
        """Where the steps of a store are held."""
        self.units: dict[str, int] = {}
        """The unit that a group's put comes to next, of those that are held before one."""

    def groups(self, action: Action) -> list[str]:
        """The groups whose tasks stand before that action."""
        return [group for held, group in self._held if held is action and group is not None]

    async def reach(self, action: Action, /, **where: object) -> None:
        """Stand here until released."""
        named = where.get("group")
        group = named if isinstance(named, str) else None
        if action in self._passes:
            return
        if action is Action.LAUNCH_GROUP and group is not None:
            CURRENT_GROUP.set(group)
        await self.hold(action, group)


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
                await self._stands.hold(Action.SAVE_UNIT, str(step.unit))
            case "put", "store" if group is not None:
                assert step.unit is not None
                self._stands.units[group] = step.unit
                await self._stands.hold(Action.STORE_ROW, group)
            case "put", "notify" if group is not None:
                await self._stands.hold(Action.PUT_ROWS, group)
