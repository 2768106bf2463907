"""The replay buffer: an index of finished groups whose tensors live only in the data plane.

A group goes: reserved (unready, never saved) -> ready (rows in the plane, entry in the
index) -> claimed for training (entry gone, rows still there) -> cleared. Rows and index
change together, inside one slot, or not at all.

The in-memory effects of a commit (entry ready, ledger record gone) are one synchronous
step after the rows have been put, so that no instant shows a group with two owners or none.

Source: spec variables `index`, `rows`, `claimed`; design, sections 4 and 7.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from cutlock.alphabet import Action
from cutlock.barrier import Barrier, Cut, Slot
from cutlock.errors import CapacityError, InvariantError
from cutlock.events import Events
from cutlock.ledger import Ledger
from cutlock.plane.base import DataPlane, Fields
from cutlock.records import IndexEntry, LedgerRecord, Phase, digest_of
from cutlock.stops import NO_STOPS, StopPoints

__all__ = ["ReplayBuffer", "index_digest"]


def index_digest(entries: Iterable[IndexEntry]) -> str:
    """sha256 over the entries in the order of their group ids: independent of commit order."""
    return digest_of(sorted(entries, key=lambda entry: entry.group_id))


class _Buckets:
    """Entries by a number that many of them share, each bucket in the order of the commits."""

    def __init__(self) -> None:
        self._entries: dict[int, dict[str, IndexEntry]] = {}
        self.keys: list[int] = []
        """Numbers that some entry has, ascending."""

    def of(self, key: int) -> Collection[IndexEntry]:
        return self._entries.get(key, {}).values()

    def add(self, key: int, entry: IndexEntry) -> None:
        bucket = self._entries.get(key)
        if bucket is None:
            bucket = self._entries[key] = {}
            insort(self.keys, key)
        bucket[entry.group_id] = entry

    def remove(self, key: int, group_id: str) -> None:
        bucket = self._entries[key]
        del bucket[group_id]
        if not bucket:
            del self._entries[key]
            del self.keys[bisect_left(self.keys, key)]


class ReplayBuffer:
    """Index by group id; look-up, insertion and removal take constant time.

    Args:
        plane: holds the rows.
        ledger: loses a group's record in the same step in which its entry turns ready.
        group_size: siblings, and so rows, per group.
        lineage: prefix of row keys that no earlier process of this history has used, so
            that a key is never used twice.
    """

    def __init__(
        self,
        barrier: Barrier,
        plane: DataPlane,
        ledger: Ledger,
        events: Events,
        *,
        group_size: int,
        lineage: str,
        stops: StopPoints = NO_STOPS,
    ) -> None:
        self._barrier = barrier
        self._plane = plane
        self._ledger = ledger
        self._events = events
        self._stops = stops
        self._group_size = group_size
        self._lineage = lineage
        self._reserved: dict[str, int] = {}
        self._attempts: Counter[str] = Counter()
        self._committing: dict[str, str] = {}
        self._ready: dict[str, IndexEntry] = {}
        self._by_stamp = _Buckets()
        self._by_weight = _Buckets()
        self._claimed: dict[str, IndexEntry] = {}

    # What samplers look at. These are views, not copies: a look must not cost more the more
    # groups are held, so that nothing here may be kept over a change of the index.

    def ready(self) -> Collection[IndexEntry]:
        """Finished groups in the order of their commits."""
        return self._ready.values()

    def ready_with_stamp(self, stamp: int) -> Collection[IndexEntry]:
        """Finished groups of one stamp in the order of their commits."""
        return self._by_stamp.of(stamp)

    def ready_with_weight(self, start_weight: int) -> Collection[IndexEntry]:
        """Finished groups of one start weight in the order of their commits."""
        return self._by_weight.of(start_weight)

    def ready_stamps(self) -> Sequence[int]:
        """Stamps that some finished group has, ascending."""
        return self._by_stamp.keys

    def ready_weights(self) -> Sequence[int]:
        """Start weights that some finished group has, ascending."""
        return self._by_weight.keys

    def in_flight_weights(self) -> Mapping[int, int]:
        """Start weight to the number of ADMITTED groups in the ledger."""
        return self._ledger.in_flight_weights

    def __len__(self) -> int:
        """Groups that hold a place: reserved and ready."""
        return len(self._reserved) + len(self._ready)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._ready

    @property
    def claimed(self) -> Mapping[str, IndexEntry]:
        """Groups that the open training step has taken and whose rows are not cleared yet."""
        return self._claimed

    @property
    def committing(self) -> Mapping[str, str]:
        """Groups whose commit is under way: `committing` until their rows are put, then `put`."""
        return self._committing

    # The life of a group.

    def reserve(self, record: LedgerRecord) -> int:
        """Note that a rollout of an ADMITTED group starts; return the attempt, from 0.

        Synchronous and never saved, so it needs no slot: the ledger owns the group.
        """
        group_id = record.group_id
        if record.phase is not Phase.ADMITTED:
            raise InvariantError(
                f"group {group_id!r} is {record.phase}; admit its batch before it is launched"
            )
        if group_id in self._ready or group_id in self._claimed:
            raise InvariantError(f"group {group_id!r} is already finished; it has one owner")
        if group_id in self._reserved or group_id in self._committing:
            raise InvariantError(
                f"group {group_id!r} is already in flight; release it before it is tried again"
            )
        attempt = self._attempts[group_id]
        self._attempts[group_id] += 1
        self._reserved[group_id] = attempt
        return attempt

    def release(self, group_id: str) -> None:
        """Forget a reservation whose rollout ended without a commit; absent is no error."""
        self._reserved.pop(group_id, None)

    def forget_attempts(self, group_id: str) -> None:
        """Forget how often a group that is gone for good was tried."""
        self._attempts.pop(group_id, None)

    async def commit(
        self, slot: Slot, group_id: str, fields: Fields, *, end_weight: int
    ) -> IndexEntry:
        """Put the rows of a finished group and hand it from the ledger to the index.

        On any failure, cancellation included, the same rows are cleared before this
        returns, and the ledger keeps the group. A cancellation is raised after that, also
        one that comes while the rows of another failure are cleared.

        Args:
            fields: one tensor per sibling and field.
            end_weight: trainer version now.

        Raises:
            InvariantError: the group is not reserved, or has not `group_size` rows; nothing
                was changed. Or it was given up while its rows were put; they have been
                cleared.
            PlaneError: the rows could not be put; they have been cleared.
            ExceptionGroup: neither could they be cleared; both errors are in it.
        """
        self._barrier.require_slot(slot)
        if group_id not in self._reserved:
            raise InvariantError(
                f"group {group_id!r} is not reserved; its rollout was released or aborted"
            )
        if group_id in self._committing:
            raise InvariantError(f"group {group_id!r} is being committed; commit it once")
        for name, rows in fields.items():
            if len(rows) != self._group_size:
                raise InvariantError(
                    f"group {group_id!r} has {len(rows)} rows of field {name!r}; the group "
                    f"size is {self._group_size}"
                )
        attempt = self._reserved[group_id]
        keys = tuple(
            f"{self._lineage}/{group_id}/{attempt}/{sibling}" for sibling in range(self._group_size)
        )
        entry = _entry(self._ledger[group_id], keys, end_weight)
        self._committing[group_id] = "committing"
        self._events.record(
            Action.BEGIN_COMMIT, group=group_id, attempt=attempt, end_weight=end_weight
        )
        try:
            await self._stops.reach(Action.PUT_ROWS, group=group_id)
            await slot.run(self._plane.put(keys, fields))
            self._events.record(Action.PUT_ROWS, group=group_id, attempt=attempt)
            self._committing[group_id] = "put"
            await self._stops.reach(Action.COMMIT_GROUP, group=group_id)
            if group_id not in self._reserved or group_id not in self._ledger:
                raise InvariantError(
                    f"group {group_id!r} was given up while its rows were put; a group is "
                    "dropped before its commit or after it"
                )
        except BaseException as error:
            cancelled = await self._roll_back(slot, group_id, attempt, keys, error)
            if cancelled is not None:
                raise cancelled from error
            raise
        finally:
            del self._committing[group_id]
        # One synchronous step from here: no instant has two owners.
        self._index(entry)
        self._ledger.discard(slot, group_id)
        del self._reserved[group_id]
        self.forget_attempts(group_id)
        self._events.record(Action.COMMIT_GROUP, group=group_id, attempt=attempt)
        return entry

    async def _roll_back(
        self,
        slot: Slot,
        group_id: str,
        attempt: int,
        keys: Sequence[str],
        error: BaseException,
    ) -> asyncio.CancelledError | None:
        """Clear the rows of a failed put; return the cancellation that came meanwhile."""
        self._reserved.pop(group_id, None)
        cancelled = None
        try:
            await self._stops.reach(Action.ROLLBACK_GROUP, group=group_id)
        except asyncio.CancelledError as again:
            cancelled = again
        clear = asyncio.ensure_future(self._plane.clear(keys))
        cancelled = await slot.until_done(clear) or cancelled
        second = clear.exception()
        if second is not None:
            raise BaseExceptionGroup(
                f"group {group_id!r}: its rows could be neither put nor cleared; a save in the "
                "full window finds them and refuses, and a restore leaves them behind",
                [error, second],
            ) from error
        self._events.record(Action.ROLLBACK_GROUP, group=group_id, attempt=attempt)
        return cancelled

    def _index(self, entry: IndexEntry) -> None:
        self._ready[entry.group_id] = entry
        if entry.stamp is not None:
            self._by_stamp.add(entry.stamp, entry)
        self._by_weight.add(entry.start_weight, entry)

    def _take(self, group_ids: Sequence[str]) -> list[IndexEntry]:
        """Remove finished groups from the index: all of them, or none and an error."""
        missing = [group_id for group_id in group_ids if group_id not in self._ready]
        if missing or len(set(group_ids)) < len(group_ids):
            raise InvariantError(
                f"{list(group_ids)} cannot leave the index, {missing} are not in it; only "
                "finished groups leave it, each once"
            )
        return [self._unindex(group_id) for group_id in group_ids]

    def _unindex(self, group_id: str) -> IndexEntry:
        entry = self._ready.pop(group_id)
        if entry.stamp is not None:
            self._by_stamp.remove(entry.stamp, group_id)
        self._by_weight.remove(entry.start_weight, group_id)
        return entry

    def select(self, slot: Slot, step: int, group_ids: Sequence[str]) -> list[IndexEntry]:
        """Claim finished groups for a training step: they leave the index, rows stay."""
        self._barrier.require_slot(slot)
        entries = self._take(group_ids)
        self._ledger.discard_owned(slot, group_ids)
        self._claimed.update((entry.group_id, entry) for entry in entries)
        self._events.record(Action.SELECT_GROUPS, step=step, groups=list(group_ids))
        return entries

    async def evict(self, slot: Slot, version: int, group_ids: Sequence[str]) -> None:
        """Drop finished groups that can never train: entries and rows."""
        self._barrier.require_slot(slot)
        entries = self._take(group_ids)
        self._ledger.discard_owned(slot, group_ids)
        self._events.record(Action.EVICT_GROUPS, version=version, groups=list(group_ids))
        await slot.run(self._plane.clear([key for e in entries for key in e.row_keys]))

    async def clear_claimed(self, slot: Slot, step: int) -> None:
        """Delete the rows of the open training step and end its claim."""
        self._barrier.require_slot(slot)
        await self._stops.reach(Action.CLEAR_ROWS, step=step)

        # What has to wait for a snapshot is decided in the step that is recorded.
        cleared = self._plane.clear([key for e in self._claimed.values() for key in e.row_keys])
        self._events.record(Action.CLEAR_ROWS, step=step, groups=list(self._claimed))

        async def clear() -> None:
            # The claim ends with its rows, also if the caller is cancelled meanwhile.
            await cleared
            self._claimed.clear()

        await slot.run(clear())

    # The cut.

    def snapshot(self, cut: Cut) -> tuple[IndexEntry, ...]:
        """The index: finished groups in the order of their commits, no tensors."""
        self._barrier.require_cut(cut)
        return tuple(self._ready.values())

    def restore(self, slot: Slot, entries: Sequence[IndexEntry], capacity: int) -> None:
        """Fill an empty index from a bundle; writes nothing to the plane.

        Raises:
            CapacityError: more groups than `capacity`; none is dropped to make it fit.
            InvariantError: the buffer is in use, a group has another number of rows, or a
                group or row comes twice.
        """
        self._barrier.require_slot(slot)
        if len(self) or self._claimed:
            raise InvariantError(f"the buffer holds {len(self)} groups; restore into a new one")
        if len(entries) > capacity:
            raise CapacityError(
                f"the bundle holds {len(entries)} finished groups and the buffer capacity is "
                f"{capacity}; resume with a capacity of at least {len(entries)}"
            )
        groups: set[str] = set()
        rows: set[str] = set()
        for entry in entries:
            if len(entry.row_keys) != self._group_size:
                raise InvariantError(
                    f"group {entry.group_id!r} has {len(entry.row_keys)} rows in the bundle; "
                    f"the group size is {self._group_size}"
                )
            if entry.group_id in groups or not rows.isdisjoint(entry.row_keys):
                raise InvariantError(
                    f"group {entry.group_id!r} or one of its rows {list(entry.row_keys)} is in "
                    "the bundle twice; a row has one owner, restore an older bundle"
                )
            groups.add(entry.group_id)
            rows.update(entry.row_keys)
        for entry in entries:
            self._index(entry)


def _entry(record: LedgerRecord, keys: tuple[str, ...], end_weight: int) -> IndexEntry:
    if record.dispatch_index is None or record.start_weight is None:
        raise InvariantError(
            f"group {record.group_id!r} was never admitted: {record}; admit its batch first"
        )
    return IndexEntry(
        group_id=record.group_id,
        admission_id=record.admission_id,
        occurrence=record.occurrence,
        dispatch_index=record.dispatch_index,
        stamp=record.stamp,
        start_weight=record.start_weight,
        end_weight=end_weight,
        row_keys=keys,
    )
