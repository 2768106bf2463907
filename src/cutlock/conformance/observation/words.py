"""Things of the code in the words of the spec: values that TLC could have printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from cutlock.alphabet import Action
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.planes import Row
from cutlock.events import Record
from cutlock.records import IndexEntry, LedgerRecord
from cutlock.tlc.values import Function, Value, record

__all__ = ["Owned", "Words", "dropped_in", "record"]

Owned = LedgerRecord | IndexEntry
"""What has a dispatch index and a start weight."""

_GIVEN_UP = {
    Action.DROP_GROUP.value: "group",
    Action.SUBSTITUTE_GROUP.value: "group",
    Action.ABORT_STALE.value: "group",
    Action.EVICT_GROUPS.value: "groups",
}


def dropped_in(records: Iterable[Record]) -> frozenset[str]:
    """Groups that these records give up on purpose."""
    found: set[str] = set()
    for found_in in records:
        if found_in.action in _GIVEN_UP:
            what = found_in.args[_GIVEN_UP[found_in.action]]
            found.update([what] if isinstance(what, str) else map(str, cast(list[str], what)))
    return frozenset(found)


class Words:
    """Things of the code as values of the spec."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._prompts = tuple(bounds.groups)

    def of(self, values: Mapping[str, Value], default: Value) -> Function:
        """A function on the prompts, from values by group id."""
        groups = self._bounds.groups
        return Function({p: values.get(groups[p], default) for p in self._prompts})

    def set_of(self, groups: Iterable[str]) -> frozenset[Value]:
        """A set of prompts."""
        return self._bounds.prompts_of(groups)

    def order_of(self, groups: Iterable[str]) -> tuple[Value, ...]:
        """The order of the finished groups, which the spec keeps only if it is `Ordered`."""
        return tuple(map(self._bounds.prompt, groups)) if self._bounds.ordered else ()

    def position(self, epoch: int, prompts: int) -> int:
        """Batches handed out over all epochs, from the prompts handed out in this one."""
        return epoch * self._bounds.per_epoch + -(-prompts // self._bounds.size)

    def led(self, records: Iterable[LedgerRecord]) -> Function:
        """`led`."""
        return self.of({r.group_id: str(r.phase) for r in records}, "none")

    def idx(self, owned: Iterable[Owned]) -> Function:
        """`idx`."""
        found = {o.group_id: o.dispatch_index for o in owned if o.dispatch_index is not None}
        return self.of(found, -1)

    def wt(self, owned: Iterable[Owned]) -> Function:
        """`wt`, -1 under samplers whose choice does not look at it."""
        if not self._bounds.keeps_weights:
            return self.of({}, -1)
        found = {o.group_id: o.start_weight for o in owned if o.start_weight is not None}
        return self.of(found, -1)

    def short(self, missing: Mapping[int, int]) -> Function:
        """`short`; a step outside of the spec's is shown as one more."""
        steps = {*self._bounds.steps, *missing}
        return Function({step: missing.get(step, 0) for step in sorted(steps)})

    def trained(self, groups: Sequence[str]) -> Function:
        """`trained`; the spec does not count past two."""
        return self.of({group: min(2, groups.count(group)) for group in groups}, 0)

    def rows(self, rows: Mapping[str, Row]) -> frozenset[Value]:
        """`rows`: group and unit, of which the unit has every sibling that belongs there."""
        found: dict[tuple[str, int], int] = {}
        for key, row in rows.items():
            attempt = key.rpartition("/")[0]
            found[attempt, row.unit] = found.get((attempt, row.unit), 0) + 1
        siblings = self._bounds.group_size // len(self._bounds.units)
        return frozenset(
            (self._bounds.prompt(_group_of(attempt)), self._bounds.units[unit])
            for (attempt, unit), count in found.items()
            if count == siblings
        )

    def keys(self, keys: Iterable[str]) -> frozenset[Value]:
        """The groups of row keys."""
        return self.set_of(_group_of(key.rpartition("/")[0]) for key in keys)

    def derived(self, rows: Mapping[str, Row]) -> frozenset[Value]:
        """`derived`: groups of which some rows carry advantages.

        All of them do, or a unit was saved before they were written and another one after.
        """
        return self.keys(key for key, row in rows.items() if "advantage" in row.fields)


def _group_of(attempt: str) -> str:
    """The group id in `lineage/group/attempt`."""
    return attempt.split("/")[1]
