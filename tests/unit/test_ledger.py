"""The ownership ledger: one owner, whole batches, one admission each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutlock.barrier import Barrier, Slot
from cutlock.errors import InvariantError
from cutlock.ledger import Ledger
from cutlock.records import LedgerRecord, Phase
from tests.support.bundles import prompt
from tests.support.loop import entered
from tests.support.sections import no_proof, refuses


@pytest.fixture
def barrier() -> Barrier:
    return Barrier()


@pytest.fixture
def ledger(barrier: Barrier) -> Ledger:
    return Ledger(barrier)


def reserve(ledger: Ledger, *numbers: int) -> int:
    with entered(ledger._barrier.mutation("reserve")) as slot:
        return ledger.reserve(slot, [prompt(number) for number in numbers])


def admit(ledger: Ledger, admission: int, index: int, weight: int = 0) -> list[LedgerRecord]:
    with entered(ledger._barrier.mutation("admit")) as slot:
        return ledger.admit(slot, admission, dispatch_index=index, stamp=index, start_weight=weight)


def records(ledger: Ledger, owned: tuple[str, ...] = ()) -> tuple[LedgerRecord, ...]:
    with entered(ledger._barrier.checkpoint()) as cut:
        return ledger.snapshot(cut, owned)


def ids(found: list[LedgerRecord] | tuple[LedgerRecord, ...]) -> list[str]:
    return [record.group_id for record in found]


class TestReserve:
    def test_a_batch_is_reserved_under_one_new_admission_id(self, ledger: Ledger) -> None:
        assert reserve(ledger, 1, 2) == 0
        assert reserve(ledger, 3) == 1
        assert ledger.next_admission == 2
        assert [(r.group_id, r.admission_id, r.phase) for r in records(ledger)] == [
            ("p1@0", 0, Phase.RESERVED),
            ("p2@0", 0, Phase.RESERVED),
            ("p3@0", 1, Phase.RESERVED),
        ]
        assert len(ledger) == 3
        assert "p2@0" in ledger
        assert ledger["p2@0"].occurrence == prompt(2)

    @pytest.mark.parametrize("batch", [(), (1, 1), (3, 2, 3)])
    def test_a_batch_has_at_least_one_prompt_and_none_twice(
        self, ledger: Ledger, batch: tuple[int, ...]
    ) -> None:
        with pytest.raises(InvariantError, match=r"a batch of \[.*\] cannot be reserved; give"):
            reserve(ledger, *batch)
        assert (len(ledger), ledger.next_admission) == (0, 0)

    def test_an_occurrence_with_an_owner_here_refuses_its_whole_batch(self, ledger: Ledger) -> None:
        reserve(ledger, 1, 2)
        with pytest.raises(InvariantError, match=r"'p2@0' is already in the ledger; .* one owner"):
            reserve(ledger, 3, 2)
        assert ids(records(ledger)) == ["p1@0", "p2@0"]
        assert ledger.next_admission == 1

    def test_the_same_prompt_of_another_epoch_is_another_occurrence(
        self, ledger: Ledger, barrier: Barrier
    ) -> None:
        with entered(barrier.mutation("reserve")) as slot:
            ledger.reserve(slot, [prompt(1, 0), prompt(1, 1)])
        assert ids(records(ledger)) == ["p1@0", "p1@1"]

    def test_an_admission_id_is_not_used_again_when_its_groups_are_gone(
        self, ledger: Ledger, barrier: Barrier
    ) -> None:
        reserve(ledger, 1)
        with entered(barrier.mutation("drop")) as slot:
            ledger.discard(slot, "p1@0")
        assert reserve(ledger, 1) == 1


class TestAdmit:
    def test_a_whole_batch_is_admitted_with_the_values_of_its_admission(
        self, ledger: Ledger
    ) -> None:
        reserve(ledger, 1, 2)
        reserve(ledger, 3)
        admitted = admit(ledger, 0, index=4, weight=3)
        assert admitted == ledger.admitted()
        assert [
            (r.group_id, r.phase, r.dispatch_index, r.stamp, r.start_weight) for r in admitted
        ] == [("p1@0", Phase.ADMITTED, 4, 4, 3), ("p2@0", Phase.ADMITTED, 4, 4, 3)]
        assert ledger["p3@0"].phase is Phase.RESERVED

    def test_a_batch_is_admitted_once(self, ledger: Ledger) -> None:
        reserve(ledger, 1, 2)
        admit(ledger, 0, index=0)
        with pytest.raises(InvariantError, match=r"admission 0 has 2 records .*\['ADMITTED'\]"):
            admit(ledger, 0, index=1)
        assert [r.dispatch_index for r in ledger.admitted()] == [0, 0]
        assert (ledger.in_flight_weights, ledger.stamps) == ({0: 2}, {0: 2})

    def test_a_stamp_goes_with_the_last_record_that_bears_it(
        self, ledger: Ledger, barrier: Barrier
    ) -> None:
        reserve(ledger, 1, 2)
        admit(ledger, 0, index=4)
        with entered(barrier.mutation("discard")) as slot:
            ledger.discard(slot, "p1@0")
            assert ledger.stamps == {4: 1}
            ledger.discard(slot, "p2@0")
        assert ledger.stamps == {}

    def test_an_unknown_admission_is_refused(self, ledger: Ledger) -> None:
        with pytest.raises(InvariantError, match="admission 7 has 0 records"):
            admit(ledger, 7, index=0)

    def test_a_batch_that_was_admitted_in_part_is_refused(
        self, ledger: Ledger, barrier: Barrier
    ) -> None:
        half = LedgerRecord("p1@0", 0, prompt(1))
        other = LedgerRecord("p2@0", 0, prompt(2), Phase.ADMITTED, 0, 0, 0)
        with entered(barrier.mutation("restore")) as slot:
            ledger.restore(slot, [half, other], 1, ())
        with pytest.raises(InvariantError, match=r"\['ADMITTED', 'RESERVED'\]; .* whole and once"):
            admit(ledger, 0, index=1)

    def test_what_is_left_of_a_batch_is_admitted(self, ledger: Ledger, barrier: Barrier) -> None:
        reserve(ledger, 1, 2)
        with entered(barrier.mutation("drop")) as slot:
            ledger.discard(slot, "p1@0")
        assert ids(admit(ledger, 0, index=0)) == ["p2@0"]


class TestOrder:
    def test_admitted_groups_come_in_the_order_of_their_dispatch(self, ledger: Ledger) -> None:
        for number in range(3):
            reserve(ledger, number)
        for admission, index in ((2, 0), (0, 1), (1, 2)):
            admit(ledger, admission, index)
        assert ids(ledger.admitted()) == ["p2@0", "p0@0", "p1@0"]

    def test_a_restored_ledger_gives_the_same_order_whatever_order_it_was_saved_in(
        self, ledger: Ledger
    ) -> None:
        for number in range(4):
            reserve(ledger, number)
            admit(ledger, number, index=number)
        barrier = Barrier()
        again = Ledger(barrier)
        with entered(barrier.mutation("restore")) as slot:
            again.restore(slot, records(ledger)[::-1], 4, ())
        assert ids(again.admitted()) == ids(ledger.admitted())

    def test_reserved_batches_come_in_the_order_of_their_reservation(self, ledger: Ledger) -> None:
        reserve(ledger, 5, 6)
        reserve(ledger, 3)
        reserve(ledger, 9, 1)
        admit(ledger, 1, index=0)
        assert [(admission, ids(batch)) for admission, batch in ledger.reserved()] == [
            (0, ["p5@0", "p6@0"]),
            (2, ["p9@0", "p1@0"]),
        ]


class TestDiscard:
    def test_a_discarded_group_has_no_owner_here(self, ledger: Ledger, barrier: Barrier) -> None:
        reserve(ledger, 1, 2)
        admit(ledger, 0, index=0, weight=5)
        with entered(barrier.mutation("commit")) as slot:
            assert ledger.discard(slot, "p1@0").start_weight == 5
        assert "p1@0" not in ledger
        assert ledger.in_flight_weights == {5: 1}

    def test_a_group_that_is_not_here_cannot_be_discarded(
        self, ledger: Ledger, barrier: Barrier
    ) -> None:
        with (
            entered(barrier.mutation("commit")) as slot,
            pytest.raises(InvariantError, match="'p1@0' is not in the ledger"),
        ):
            ledger.discard(slot, "p1@0")

    def test_discard_owned_takes_what_is_here_and_names_it(
        self, ledger: Ledger, barrier: Barrier
    ) -> None:
        reserve(ledger, 1, 2)
        admit(ledger, 0, index=0, weight=5)
        with entered(barrier.mutation("select")) as slot:
            assert ledger.discard_owned(slot, ["p9@0", "p2@0"]) == ["p2@0"]
            assert ledger.discard_owned(slot, ["p9@0", "p2@0"]) == []
        assert ids(records(ledger)) == ["p1@0"]
        assert ledger.in_flight_weights == {5: 1}


class TestSubstitute:
    def test_a_substitute_takes_the_place_of_the_lost_group(
        self, ledger: Ledger, barrier: Barrier
    ) -> None:
        reserve(ledger, 1, 2)
        admit(ledger, 0, index=4, weight=3)
        with entered(barrier.mutation("drop")) as slot:
            substitute = ledger.substitute(slot, "p1@0", prompt(7), start_weight=6)
        assert substitute == LedgerRecord("p7@0", 0, prompt(7), Phase.ADMITTED, 4, 4, 6)
        assert ids(records(ledger)) == ["p2@0", "p7@0"]
        assert ledger.in_flight_weights == {3: 1, 6: 1}

    def test_a_reserved_group_has_no_place_to_take(self, ledger: Ledger, barrier: Barrier) -> None:
        reserve(ledger, 1)
        with (
            entered(barrier.mutation("drop")) as slot,
            pytest.raises(InvariantError, match="'p1@0' is RESERVED; only an ADMITTED"),
        ):
            ledger.substitute(slot, "p1@0", prompt(7), start_weight=0)
        assert ids(records(ledger)) == ["p1@0"]

    @pytest.mark.parametrize("spare", [1, 2])
    def test_a_spare_that_has_an_owner_here_is_no_substitute(
        self, ledger: Ledger, barrier: Barrier, spare: int
    ) -> None:
        reserve(ledger, 1, 2)
        admit(ledger, 0, index=0)
        before = records(ledger)
        with (
            entered(barrier.mutation("drop")) as slot,
            pytest.raises(InvariantError, match="one owner"),
        ):
            ledger.substitute(slot, "p1@0", prompt(spare), start_weight=0)
        assert records(ledger) == before
        assert ledger.in_flight_weights == {0: 2}

    def test_a_group_that_is_not_here_is_not_replaced(
        self, ledger: Ledger, barrier: Barrier
    ) -> None:
        with (
            entered(barrier.mutation("drop")) as slot,
            pytest.raises(InvariantError, match="'p1@0' is not in the ledger"),
        ):
            ledger.substitute(slot, "p1@0", prompt(7), start_weight=0)
        assert len(ledger) == 0


class TestCut:
    def test_a_snapshot_leaves_out_what_the_index_owns(self, ledger: Ledger) -> None:
        reserve(ledger, 1, 2, 3)
        assert ids(records(ledger, ("p2@0", "p8@0"))) == ["p1@0", "p3@0"]
        assert len(ledger) == 3

    def test_a_restore_leaves_out_what_the_index_owns(self, ledger: Ledger) -> None:
        reserve(ledger, 1, 2)
        admit(ledger, 0, index=0, weight=2)
        again = restored(records(ledger), 1, ("p1@0",))
        assert ids(records(again)) == ["p2@0"]
        assert again.in_flight_weights == {2: 1}
        assert reserve(again, 1) == 1

    def test_a_restored_ledger_is_the_saved_one(self, ledger: Ledger) -> None:
        reserve(ledger, 1, 2)
        reserve(ledger, 3)
        admit(ledger, 0, index=0, weight=2)
        again = restored(records(ledger), ledger.next_admission)
        assert records(again) == records(ledger)
        assert again.in_flight_weights == ledger.in_flight_weights
        assert again.reserved() == ledger.reserved()
        assert again.next_admission == 2

    def test_a_ledger_in_use_is_not_restored_into(self, ledger: Ledger, barrier: Barrier) -> None:
        reserve(ledger, 1)
        with entered(barrier.mutation("restore")) as slot:
            with pytest.raises(InvariantError, match="holds 1 records; restore into a new one"):
                ledger.restore(slot, [], 0, ())
            ledger.discard(slot, "p1@0")
            with pytest.raises(InvariantError, match="restore into a new one"):
                ledger.restore(slot, [], 0, ())

    def test_a_bundle_with_a_group_twice_is_refused_and_nothing_restored(
        self, ledger: Ledger, barrier: Barrier
    ) -> None:
        record = LedgerRecord("p1@0", 0, prompt(1), Phase.ADMITTED, 0, 0, 0)
        twice = [record, msgspec.structs.replace(record, admission_id=1)]
        with (
            entered(barrier.mutation("restore")) as slot,
            pytest.raises(InvariantError, match="a group comes twice in the 2 records"),
        ):
            ledger.restore(slot, twice, 2, ())
        assert (len(ledger), ledger.next_admission, dict(ledger.in_flight_weights)) == (0, 0, {})

    def test_a_bundle_whose_next_admission_was_given_already_is_refused(
        self, ledger: Ledger, barrier: Barrier
    ) -> None:
        record = LedgerRecord("p1@0", 4, prompt(1))
        with entered(barrier.mutation("restore")) as slot:
            with pytest.raises(InvariantError, match="next_admission is 4 and admission 4 is in"):
                ledger.restore(slot, [record], 4, ())
            assert len(ledger) == 0
            ledger.restore(slot, [record], 5, ())

    def test_an_admission_below_the_first_is_refused(
        self, ledger: Ledger, barrier: Barrier
    ) -> None:
        with (
            entered(barrier.mutation("restore")) as slot,
            pytest.raises(InvariantError, match="next_admission is -1"),
        ):
            ledger.restore(slot, [], -1, ())


def restored(saved: tuple[LedgerRecord, ...], following: int, owned: Any = ()) -> Ledger:
    barrier = Barrier()
    ledger = Ledger(barrier)
    with entered(barrier.mutation("restore")) as slot:
        ledger.restore(slot, saved, following, owned)
    return ledger


MUTATORS: dict[str, Callable[[Ledger, Slot], object]] = {
    "reserve": lambda ledger, slot: ledger.reserve(slot, [prompt(5)]),
    "admit": lambda ledger, slot: ledger.admit(
        slot, 0, dispatch_index=0, stamp=None, start_weight=0
    ),
    "discard": lambda ledger, slot: ledger.discard(slot, "p1@0"),
    "discard_owned": lambda ledger, slot: ledger.discard_owned(slot, ["p1@0"]),
    "substitute": lambda ledger, slot: ledger.substitute(slot, "p2@0", prompt(5), 0),
    "restore": lambda ledger, slot: ledger.restore(slot, [], 0, ()),
}


@no_proof
@pytest.mark.parametrize("mutator", MUTATORS)
def test_every_change_needs_a_live_slot_of_this_barrier(
    ledger: Ledger, barrier: Barrier, mutator: str, no_proof: str
) -> None:
    reserve(ledger, 1)
    reserve(ledger, 2)
    admit(ledger, 1, index=0)
    before = records(ledger)
    refuses(no_proof, barrier, "slot", lambda slot: MUTATORS[mutator](ledger, slot))
    assert records(ledger) == before
    assert ledger.next_admission == 2


@no_proof
def test_a_snapshot_needs_a_live_cut_of_this_barrier(
    ledger: Ledger, barrier: Barrier, no_proof: str
) -> None:
    refuses(no_proof, barrier, "cut", lambda cut: ledger.snapshot(cut, ()))


# Random histories against a recount.

steps = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "admit", "discard", "discard_owned", "substitute", "restore"]),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(steps)
def test_the_ledger_is_what_a_recount_of_its_history_says(
    history: list[tuple[str, int, int]],
) -> None:
    ledger, model = Ledger(Barrier()), Model()
    for step, choice, weight in history:
        ledger = model.perform(ledger, step, choice, weight)
        counted = Counter(r.start_weight for r in model.records if r.phase is Phase.ADMITTED)
        assert dict(ledger.in_flight_weights) == dict(counted)
        stamped = Counter(r.stamp for r in model.records if r.stamp is not None)
        assert dict(ledger.stamps) == dict(stamped)
        assert sorted(records(ledger), key=str) == sorted(model.records, key=str)
        order = [(r.dispatch_index, r.admission_id) for r in ledger.admitted()]
        assert order == sorted(order)
        assert [admission for admission, _ in ledger.reserved()] == sorted(model.reserved())


class Model:
    """A list of records, and nothing that is kept up to date beside it."""

    def __init__(self) -> None:
        self.records: list[LedgerRecord] = []
        self._prompts = 0
        self._admissions = 0
        self._cursor = -1

    def reserved(self) -> set[int]:
        return {r.admission_id for r in self.records if r.phase is Phase.RESERVED}

    def _take(self, choice: int, phase: Phase | None = None) -> LedgerRecord | None:
        found = [r for r in self.records if phase in (None, r.phase)]
        return found[choice % len(found)] if found else None

    def _new_prompt(self) -> Any:
        self._prompts += 1
        return prompt(self._prompts)

    def perform(self, ledger: Ledger, step: str, choice: int, weight: int) -> Ledger:
        if step == "restore":
            owned = {r.group_id for r in self.records[:choice]}
            self.records = self.records[choice:]
            return restored(records(ledger), ledger.next_admission, owned)
        with entered(ledger._barrier.mutation(step)) as slot:
            match step:
                case "reserve":
                    batch = [self._new_prompt() for _ in range(choice % 3 + 1)]
                    admission = ledger.reserve(slot, batch)
                    assert admission == self._admissions
                    self._admissions += 1
                    self.records += [LedgerRecord(o.key, admission, o) for o in batch]
                case "admit" if waiting := sorted(self.reserved()):
                    admission = waiting[choice % len(waiting)]
                    self._cursor += 1
                    values = {
                        "dispatch_index": self._cursor,
                        "stamp": None,
                        "start_weight": weight,
                    }
                    ledger.admit(slot, admission, **values)
                    self.records = [
                        msgspec.structs.replace(r, phase=Phase.ADMITTED, **values)
                        if r.admission_id == admission
                        else r
                        for r in self.records
                    ]
                case "discard" if record := self._take(choice):
                    assert ledger.discard(slot, record.group_id) == record
                    self.records.remove(record)
                case "discard_owned" if record := self._take(choice):
                    ledger.discard_owned(slot, ["unknown", record.group_id])
                    self.records.remove(record)
                case "substitute" if record := self._take(choice, Phase.ADMITTED):
                    spare = self._new_prompt()
                    self.records.remove(record)
                    self.records.append(ledger.substitute(slot, record.group_id, spare, weight))
        return ledger
