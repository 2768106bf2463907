"""What a cut reads: in one step, or read by read inside a window.

Source: spec variable `cap`; design, sections 4 and 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cutlock.errors import InvariantError
from cutlock.records import IndexEntry, LedgerRecord, LoaderState, Occurrence, Phase, Snapshot

__all__ = ["Capture", "LedgerRead", "given_back"]


@dataclass(frozen=True, kw_only=True)
class LedgerRead:
    """The last read: the ledger and the counters that belong to it."""

    records: tuple[LedgerRecord, ...]
    """Without the groups that the captured index owns."""
    next_admission: int
    shortfall: tuple[tuple[int, int], ...]
    dropped: int
    step: int
    version: int


@dataclass(kw_only=True)
class Capture:
    """What the open save has read so far, one field per read; None is not read yet."""

    cursor: int | None = None
    loader: LoaderState | None = None
    spare_pool: tuple[Occurrence, ...] | None = None
    index: tuple[IndexEntry, ...] | None = None
    ledger: LedgerRead | None = None

    def snapshot(self, *, rows: bool) -> Snapshot:
        """All of it as one value.

        Args:
            rows: False gives the groups of the index back to the ledger.

        Raises:
            InvariantError: something is not read yet.
        """
        cursor, loader, spare_pool = self.cursor, self.loader, self.spare_pool
        index, ledger = self.index, self.ledger
        if (
            cursor is None
            or loader is None
            or spare_pool is None
            or index is None
            or ledger is None
        ):
            raise InvariantError(f"the cut is not complete: {self}; make every read before this")
        return Snapshot(
            step=ledger.step,
            version=ledger.version,
            cursor=cursor,
            next_admission=ledger.next_admission,
            loader=loader,
            spare_pool=spare_pool,
            index=index if rows else (),
            ledger=ledger.records if rows else (*given_back(index), *ledger.records),
            shortfall=ledger.shortfall,
            dropped=ledger.dropped,
        )


def given_back(entries: Sequence[IndexEntry]) -> tuple[LedgerRecord, ...]:
    """Finished groups as ledger records, to be generated again: a bundle without rows."""
    return tuple(
        LedgerRecord(
            group_id=entry.group_id,
            admission_id=entry.admission_id,
            occurrence=entry.occurrence,
            phase=Phase.ADMITTED,
            dispatch_index=entry.dispatch_index,
            stamp=entry.stamp,
            start_weight=entry.start_weight,
        )
        for entry in entries
    )
