"""Rows of an open snapshot are left as they are: the client that every change goes through.

While a store writes its rows, the pumps go on. A row that the snapshot needs is *pinned*
from the cut until every unit has written it: until then it is not cleared, and nothing in it
is changed but fields that are computed anew after a restore. New rows do no harm.

Source: spec operators `Pinned` and `Defers`; design, section 8, rules 2 and 3.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Sequence
from typing import Any

from cutlock.errors import InvariantError, MisuseError
from cutlock.plane.base import DataPlane, DelegatingPlane, Fields
from cutlock.plane.checks import name

__all__ = ["PinningPlane"]


class PinningPlane(DelegatingPlane):
    """A `DataPlane` in front of another one; all changes of the controller go through it.

    Args:
        plane: the client of the store.
        derived: fields that are never taken over from a snapshot.
    """

    def __init__(self, plane: DataPlane, derived: Collection[str]) -> None:
        super().__init__(plane)
        self._derived = frozenset(derived)
        self._pinned: frozenset[str] = frozenset()
        self._deferred: dict[str, None] = {}

    @property
    def pinned(self) -> Collection[str]:
        """Keys of rows that are left as they are."""
        return self._pinned

    @property
    def deferred(self) -> Collection[str]:
        """Keys whose clear waits for `flush`, in the order in which it was asked for."""
        return self._deferred.keys()

    def pin(self, keys: Collection[str]) -> None:
        """Pin rows, in the step in which the cut reads the index.

        Raises:
            MisuseError: a snapshot is open already; one at a time (design, section 8, rule 5).
        """
        if self._pinned:
            raise MisuseError(
                f"{len(self._pinned)} rows of another snapshot are pinned; begin a save when "
                "the last one is over"
            )
        self._pinned = frozenset(keys)

    def unpin(self) -> None:
        """The snapshot is written, or given up; nothing pinned is no error."""
        self._pinned = frozenset()

    async def flush(self) -> list[str]:
        """Clear what was deferred; return its keys.

        Raises:
            PlaneError: it could not be cleared and stays deferred.
        """
        keys = [key for key in self._deferred if key not in self._pinned]
        if keys:
            await self._plane.clear(keys)
            for key in keys:
                del self._deferred[key]
        return keys

    async def put(self, keys: Sequence[str], fields: Fields) -> None:
        """See `DataPlane.put`.

        Raises:
            InvariantError: it would change a pinned row; nothing was changed.
        """
        if self._pinned and not self._derived.issuperset(fields):
            again = [key for key in keys if key in self._pinned]
            if again:
                raise InvariantError(
                    f"{sorted(fields)} of the rows {name(again)} would change while a snapshot "
                    "needs them as they are; row keys are never used twice"
                )
        await super().put(keys, fields)

    def clear(self, keys: Sequence[str]) -> Coroutine[Any, Any, None]:
        """See `DataPlane.clear`; pinned rows are noted at the call, and listed until `flush`."""
        later = [key for key in keys if key in self._pinned]
        self._deferred.update(dict.fromkeys(later))
        return super().clear([key for key in keys if key not in self._deferred])
