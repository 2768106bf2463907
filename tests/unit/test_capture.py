"""What a save has read, and what it makes of it."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from cutlock.errors import InvariantError
from cutlock.records import IndexEntry, LedgerRecord, LoaderState, Phase
from cutlock.run.capture import Capture, LedgerRead, given_back
from cutlock.run.save import package_versions
from tests.support.bundles import prompt

FINISHED = prompt(1)
OWED = prompt(2)
SPARE = prompt(3)

ENTRY = IndexEntry(FINISHED.key, 0, FINISHED, 4, 4, 3, 4, ("r1/p1@0/0/0", "r1/p1@0/0/1"))
RECORD = LedgerRecord(OWED.key, 1, OWED)


def complete() -> Capture:
    return Capture(
        cursor=4,
        loader=LoaderState(0, 3, False, {"at": 3}),
        spare_pool=(SPARE,),
        index=(ENTRY,),
        ledger=LedgerRead(
            records=(RECORD,),
            next_admission=2,
            shortfall=((4, 1),),
            dropped=1,
            step=4,
            version=4,
        ),
    )


def test_a_complete_capture_is_one_snapshot() -> None:
    snapshot = complete().snapshot(rows=True)
    assert (snapshot.step, snapshot.version, snapshot.cursor) == (4, 4, 4)
    assert (snapshot.next_admission, snapshot.shortfall, snapshot.dropped) == (2, ((4, 1),), 1)
    assert snapshot.loader == LoaderState(0, 3, False, {"at": 3})
    assert snapshot.spare_pool == (SPARE,)
    assert (snapshot.index, snapshot.ledger) == ((ENTRY,), (RECORD,))


def test_without_rows_finished_groups_are_owed_again_before_all_others() -> None:
    snapshot = complete().snapshot(rows=False)
    again, other = snapshot.ledger
    assert (snapshot.index, other) == ((), RECORD)
    assert (again,) == given_back([ENTRY])
    assert (again.group_id, again.phase) == (FINISHED.key, Phase.ADMITTED)
    assert (again.admission_id, again.dispatch_index, again.stamp) == (0, 4, 4)
    assert again.start_weight == 3
    with_rows = complete().snapshot(rows=True)
    assert msgspec.structs.replace(snapshot, index=(ENTRY,), ledger=(RECORD,)) == with_rows


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Capture)])
def test_a_capture_without_one_of_its_reads_is_no_snapshot(field: str) -> None:
    capture = dataclasses.replace(complete(), **{field: None})
    with pytest.raises(InvariantError, match=rf"not complete: .*{field}=None.*; make every read"):
        capture.snapshot(rows=True)


def test_reads_of_nothing_are_reads() -> None:
    capture = dataclasses.replace(complete(), cursor=-1, spare_pool=(), index=())
    assert capture.snapshot(rows=True).index == ()


def test_package_versions_belong_to_whoever_asks() -> None:
    first = package_versions()
    first["torch"] = "none"
    assert package_versions()["torch"] != "none"
