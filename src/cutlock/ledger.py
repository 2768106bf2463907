"""The ownership ledger: who owns a prompt between the dataloader and the replay buffer.

A record lives from the slot in which the loader (or the spare pool) hands the prompt out
until its group is ready in the buffer or is given up. Its group id is the occurrence, so
every retry, in this process or after a restart, is the same group.

Source: spec variable `ledger`; design, section 7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from cutlock.barrier import Barrier, Cut, Slot
from cutlock.errors import InvariantError
from cutlock.records import LedgerRecord, Occurrence, Phase

__all__ = ["Ledger"]


class Ledger:
    """Records by group id, in the order in which they were reserved."""

    def __init__(self, barrier: Barrier) -> None:
        self._barrier = barrier
        self._records: dict[str, LedgerRecord] = {}
        self._batches: dict[int, dict[str, None]] = {}
        """Group ids by admission id, in the order of the records."""
        self._in_flight: Counter[int] = Counter()
        self._stamps: Counter[int] = Counter()
        self._next_admission = 0

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._records

    def __getitem__(self, group_id: str) -> LedgerRecord:
        record = self._records.get(group_id)
        if record is None:
            raise InvariantError(
                f"group {group_id!r} is not in the ledger; it was committed, dropped, or "
                "never reserved"
            )
        return record

    @property
    def next_admission(self) -> int:
        """The admission id that the next reservation gets."""
        return self._next_admission

    @property
    def in_flight_weights(self) -> Mapping[int, int]:
        """Start weight to the number of ADMITTED groups of it; kept up to date, not counted."""
        return self._in_flight

    @property
    def stamps(self) -> Mapping[int, int]:
        """Stamp to the number of records that bear it."""
        return self._stamps

    def admitted(self) -> list[LedgerRecord]:
        """ADMITTED records in the order of their dispatch, the only safe order to launch in.

        Another order can deadlock when capacity is tight: later steps would fill the buffer
        while the trainer waits for an earlier one.
        """
        records = [r for r in self._records.values() if r.phase is Phase.ADMITTED]
        return sorted(records, key=lambda r: (r.dispatch_index or 0, r.admission_id))

    def reserved(self) -> list[tuple[int, list[LedgerRecord]]]:
        """RESERVED batches as (admission id, records), in the order of their reservation."""
        batches: dict[int, list[LedgerRecord]] = {}
        for record in self._records.values():
            if record.phase is Phase.RESERVED:
                batches.setdefault(record.admission_id, []).append(record)
        return sorted(batches.items())

    def reserve(self, slot: Slot, occurrences: Sequence[Occurrence]) -> int:
        """Take ownership of one batch; return its admission id.

        Must share its slot with the step that took the batch from its former owner.

        Raises:
            InvariantError: the batch is empty, or one of its occurrences has an owner here.
        """
        self._barrier.require_slot(slot)
        keys = [occurrence.key for occurrence in occurrences]
        if not keys or len(set(keys)) < len(keys):
            raise InvariantError(f"a batch of {keys} cannot be reserved; give distinct prompts")
        for key in keys:
            self._refuse_owned(key)
        admission_id = self._next_admission
        self._next_admission += 1
        for occurrence in occurrences:
            self._add(LedgerRecord(occurrence.key, admission_id, occurrence))
        return admission_id

    def admit(
        self,
        slot: Slot,
        admission_id: int,
        *,
        dispatch_index: int,
        stamp: int | None,
        start_weight: int,
    ) -> list[LedgerRecord]:
        """Flip a whole RESERVED batch to ADMITTED; return its records.

        Must share its slot with the step that raised the sampler's cursor.

        Raises:
            InvariantError: no RESERVED batch of that id is left, or part of it is ADMITTED.
        """
        self._barrier.require_slot(slot)
        batch = [self._records[group_id] for group_id in self._batches.get(admission_id, ())]
        if not batch or any(r.phase is not Phase.RESERVED for r in batch):
            raise InvariantError(
                f"admission {admission_id} has {len(batch)} records in the phases "
                f"{sorted({str(r.phase) for r in batch})}; a batch is admitted whole and once"
            )
        for record in batch:
            self._add(
                msgspec.structs.replace(
                    record,
                    phase=Phase.ADMITTED,
                    dispatch_index=dispatch_index,
                    stamp=stamp,
                    start_weight=start_weight,
                )
            )
        return [self._records[record.group_id] for record in batch]

    def discard(self, slot: Slot, group_id: str) -> LedgerRecord:
        """Give up ownership of one group, which has another owner or none from now on."""
        self._barrier.require_slot(slot)
        return self._remove(self[group_id].group_id)

    def discard_owned(self, slot: Slot, group_ids: Iterable[str]) -> list[str]:
        """Discard those of `group_ids` that are here: the second line of defence.

        Selection and eviction call it for what they take, so that a record which outlived
        its commit cannot be trained again. Returns the ids found, normally none.
        """
        self._barrier.require_slot(slot)
        found = [group_id for group_id in group_ids if group_id in self._records]
        for group_id in found:
            self._remove(group_id)
        return found

    def substitute(
        self, slot: Slot, group_id: str, occurrence: Occurrence, start_weight: int
    ) -> LedgerRecord:
        """Replace a lost group by a spare: old owner out, new owner in, same place in its step.

        Must share its slot with the step that took the spare from the pool.
        """
        self._barrier.require_slot(slot)
        lost = self[group_id]
        if lost.phase is not Phase.ADMITTED:
            raise InvariantError(
                f"group {group_id!r} is {lost.phase}; only an ADMITTED group is substituted"
            )
        self._refuse_owned(occurrence.key)
        self._remove(group_id)
        return self._add(
            msgspec.structs.replace(
                lost,
                group_id=occurrence.key,
                occurrence=occurrence,
                start_weight=start_weight,
            )
        )

    def snapshot(self, cut: Cut, owned_by_index: Collection[str]) -> tuple[LedgerRecord, ...]:
        """The records, without the groups that the index of the same cut owns."""
        self._barrier.require_cut(cut)
        return tuple(r for group_id, r in self._records.items() if group_id not in owned_by_index)

    def restore(
        self,
        slot: Slot,
        records: Sequence[LedgerRecord],
        next_admission: int,
        owned_by_index: Collection[str],
    ) -> None:
        """Fill an empty ledger from a bundle; records that the index owns are left out.

        Raises:
            InvariantError: the ledger is in use, a group comes twice, or `next_admission`
                would be given again; nothing was changed.
        """
        self._barrier.require_slot(slot)
        if self._records or self._next_admission:
            raise InvariantError(
                f"the ledger holds {len(self._records)} records; restore into a new one"
            )
        kept = {r.group_id: r for r in records if r.group_id not in owned_by_index}
        if len(kept) < sum(r.group_id not in owned_by_index for r in records):
            raise InvariantError(
                f"a group comes twice in the {len(records)} records of the bundle; an "
                "occurrence has one owner, restore an older bundle"
            )
        last = max((record.admission_id for record in records), default=-1)
        if next_admission <= last:
            raise InvariantError(
                f"next_admission is {next_admission} and admission {last} is in the bundle; "
                "an id is given once, restore an older bundle"
            )
        for record in kept.values():
            self._add(record)
        self._next_admission = next_admission

    def _add(self, record: LedgerRecord) -> LedgerRecord:
        self._records[record.group_id] = record
        self._batches.setdefault(record.admission_id, {})[record.group_id] = None
        if record.start_weight is not None:
            self._in_flight[record.start_weight] += 1
        if record.stamp is not None:
            self._stamps[record.stamp] += 1
        return record

    def _remove(self, group_id: str) -> LedgerRecord:
        record = self._records.pop(group_id)
        batch = self._batches[record.admission_id]
        del batch[group_id]
        if not batch:
            del self._batches[record.admission_id]
        _count_down(self._in_flight, record.start_weight)
        _count_down(self._stamps, record.stamp)
        return record

    def _refuse_owned(self, group_id: str) -> None:
        if group_id in self._records:
            raise InvariantError(
                f"group {group_id!r} is already in the ledger; an occurrence has one owner"
            )


def _count_down(counter: Counter[int], key: int | None) -> None:
    """One less of `key`, which goes with the last; None was never counted."""
    if key is not None:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]
