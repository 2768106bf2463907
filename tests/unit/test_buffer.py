"""The replay buffer on the in-process plane: rows and index together, or neither."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutlock.alphabet import Action
from cutlock.barrier import Slot
from cutlock.buffer import ReplayBuffer, index_digest
from cutlock.errors import CapacityError, InvariantError, PlaneError
from cutlock.records import IndexEntry, Occurrence, Phase
from tests.support.bundles import finished, prompt
from tests.support.loop import Holder, at_once, entered, settle
from tests.support.parts import CLEAR_STEPS, PUT_STEPS, Parts, Place, Script, rows
from tests.support.sections import no_proof, refuses


def ids(entries: Sequence[IndexEntry]) -> list[str]:
    return [entry.group_id for entry in entries]


def snapshot(parts: Parts) -> tuple[IndexEntry, ...]:
    with entered(parts.barrier.checkpoint()) as cut:
        return parts.buffer.snapshot(cut)


class TestReserve:
    async def test_a_reserved_group_holds_a_place_and_is_never_saved(self) -> None:
        parts = Parts()
        (record,) = await parts.admitted(1)
        assert parts.buffer.reserve(record) == 0
        assert len(parts.buffer) == 1
        assert "p1@0" not in parts.buffer
        assert list(parts.buffer.ready()) == []
        assert snapshot(parts) == ()

    async def test_a_released_group_holds_no_place(self) -> None:
        parts = Parts()
        (record,) = await parts.admitted(1)
        parts.buffer.reserve(record)
        parts.buffer.release("p1@0")
        parts.buffer.release("p1@0")
        assert len(parts.buffer) == 0

    async def test_a_group_whose_batch_is_not_admitted_is_not_launched(self) -> None:
        parts = Parts()
        async with parts.barrier.mutation("reserve") as slot:
            parts.ledger.reserve(slot, [prompt(1)])
        with pytest.raises(InvariantError, match="'p1@0' is RESERVED; admit its batch"):
            parts.buffer.reserve(parts.ledger["p1@0"])

    async def test_a_group_is_in_flight_once(self) -> None:
        parts = Parts()
        (record,) = await parts.admitted(1)
        parts.buffer.reserve(record)
        with pytest.raises(InvariantError, match="'p1@0' is already in flight; release it"):
            parts.buffer.reserve(record)

    async def test_a_finished_group_is_not_launched_again(self) -> None:
        parts = Parts()
        (record,) = await parts.admitted(1)
        parts.buffer.reserve(record)
        await parts.commit(1)
        with pytest.raises(InvariantError, match="'p1@0' is already finished"):
            parts.buffer.reserve(record)
        async with parts.barrier.mutation("select") as slot:
            parts.buffer.select(slot, 0, ["p1@0"])
        with pytest.raises(InvariantError, match="'p1@0' is already finished"):
            parts.buffer.reserve(record)


class TestCommit:
    async def test_a_commit_moves_the_group_from_the_ledger_to_the_index(self) -> None:
        parts = Parts()
        (record,) = await parts.admitted(1, weight=3, stamp=5, index=5)
        parts.buffer.reserve(record)
        entry = await parts.commit(1, end_weight=4)
        assert entry == IndexEntry("p1@0", 0, prompt(1), 5, 5, 3, 4, ("r0/p1@0/0/0", "r0/p1@0/0/1"))
        assert list(parts.buffer.ready()) == [entry]
        assert len(parts.ledger) == 0
        assert parts.saved() == set(entry.row_keys)
        assert parts.actions() == ["BeginCommit", "PutRows", "CommitGroup"]
        found = await parts.plane.get(entry.row_keys, ["n"])
        assert [int(row) for row in found["n"]] == [1, 1]

    async def test_a_group_that_is_not_reserved_is_refused(self) -> None:
        parts = Parts()
        await parts.admitted(1)
        with pytest.raises(InvariantError, match="'p1@0' is not reserved"):
            await parts.commit(1)
        assert parts.saved() == set()

    @pytest.mark.parametrize("size", [0, 1, 3])
    async def test_a_group_of_another_size_is_refused_and_stays_reserved(self, size: int) -> None:
        parts = Parts()
        (record,) = await parts.admitted(1)
        parts.buffer.reserve(record)
        async with parts.barrier.mutation("commit") as slot:
            with pytest.raises(InvariantError, match=f"has {size} rows of field 'n'; .* is 2"):
                await parts.buffer.commit(slot, "p1@0", rows(1, size), end_weight=0)
        assert parts.saved() == set()
        await parts.commit(1)

    async def test_a_group_that_the_ledger_does_not_own_is_refused(self) -> None:
        parts = Parts()
        (record,) = await parts.admitted(1)
        parts.buffer.reserve(record)
        async with parts.barrier.mutation("drop") as slot:
            parts.ledger.discard(slot, "p1@0")
        with pytest.raises(InvariantError, match="'p1@0' is not in the ledger"):
            await parts.commit(1)
        assert parts.saved() == set()

    async def test_a_group_that_was_admitted_without_values_is_refused_before_its_rows_are_put(
        self,
    ) -> None:
        parts = Parts()
        (record,) = await parts.admitted(1)
        again = Parts()
        broken = msgspec.structs.replace(record, dispatch_index=None)
        async with again.barrier.mutation("restore") as slot:
            again.ledger.restore(slot, [broken], 1, ())
        again.buffer.reserve(broken)
        with pytest.raises(InvariantError, match="'p1@0' was never admitted"):
            await again.commit(1)
        assert again.saved() == set()

    async def test_a_group_is_committed_by_one_task(self) -> None:
        script = Script(hold=[PUT_STEPS[0]])
        parts = Parts(script=script)
        (record,) = await parts.admitted(1)
        parts.buffer.reserve(record)
        first = asyncio.create_task(parts.commit(1))
        await script.reached.wait()
        assert parts.buffer.committing == {"p1@0": "committing"}
        with pytest.raises(InvariantError, match="'p1@0' is being committed; commit it once"):
            await parts.commit(1)
        with pytest.raises(InvariantError, match="'p1@0' is already in flight"):
            parts.buffer.reserve(record)
        script.go()
        await first
        assert not parts.buffer.committing

    async def test_rows_that_have_no_field_are_refused_and_leave_nothing(self) -> None:
        parts = Parts()
        (record,) = await parts.admitted(1)
        parts.buffer.reserve(record)
        async with parts.barrier.mutation("commit") as slot:
            with pytest.raises(PlaneError, match="names no field"):
                await parts.buffer.commit(slot, "p1@0", {}, end_weight=0)
        assert parts.saved() == set()
        assert "p1@0" in parts.ledger


async def nothing_happened(parts: Parts) -> None:
    """After a commit of group 1 that was rolled back: no row, no entry, and one owner."""
    assert parts.saved() == set()
    assert list(parts.buffer.ready()) == []
    assert len(parts.buffer) == 0
    assert not parts.buffer.committing
    assert parts.ledger["p1@0"].phase is Phase.ADMITTED
    assert (parts.barrier.slots, parts.barrier.waiting) == (0, ())
    assert parts.actions()[-1] == "RollbackGroup"
    # The group can be tried again, under keys that were never used.
    assert parts.buffer.reserve(parts.ledger["p1@0"]) == 1
    entry = await parts.commit(1)
    assert entry.row_keys == ("r0/p1@0/1/0", "r0/p1@0/1/1")
    assert parts.saved() == set(entry.row_keys)


async def committing(script: Script) -> tuple[Parts, asyncio.Task[IndexEntry]]:
    """A commit of group 1 that stands at a place of the script."""
    parts = Parts(script=script)
    (record,) = await parts.admitted(1)
    parts.buffer.reserve(record)
    task = asyncio.create_task(parts.commit(1))
    await script.reached.wait()
    return parts, task


BEFORE_COMMIT: tuple[Place, ...] = (Action.PUT_ROWS, *PUT_STEPS, Action.COMMIT_GROUP)
ROLLBACK: tuple[Place, ...] = (Action.ROLLBACK_GROUP, *CLEAR_STEPS)


class TestRollback:
    @pytest.mark.parametrize("times", [1, 2])
    @pytest.mark.parametrize("place", BEFORE_COMMIT, ids=str)
    async def test_a_commit_that_is_cancelled_at_any_step_leaves_nothing(
        self, place: Place, times: int
    ) -> None:
        script = Script(hold=[place])
        parts, task = await committing(script)
        for _ in range(times):
            task.cancel()
            await settle()
        script.go()
        with pytest.raises(asyncio.CancelledError):
            await task
        if place in PUT_STEPS:
            # A put in progress is never cancelled, and never cleared under.
            assert script.passed.index(PUT_STEPS[-1]) < script.passed.index(CLEAR_STEPS[0])
        await nothing_happened(parts)

    @pytest.mark.parametrize("place", PUT_STEPS, ids=str)
    async def test_a_put_that_fails_at_any_step_leaves_nothing(self, place: Place) -> None:
        parts = Parts()
        (record,) = await parts.admitted(1)
        parts.buffer.reserve(record)
        parts.store.steps = Script(fail={place: PlaneError("unit lost")})
        with pytest.raises(PlaneError, match="unit lost"):
            await parts.commit(1)
        parts.store.steps = Script()
        await nothing_happened(parts)

    @pytest.mark.parametrize("times", [1, 2])
    @pytest.mark.parametrize("place", ROLLBACK, ids=str)
    async def test_a_cancellation_during_the_rollback_of_a_failure_waits_for_it(
        self, place: Place, times: int
    ) -> None:
        script = Script(hold=[place], fail={PUT_STEPS[4]: PlaneError("unit lost")})
        parts, task = await committing(script)
        for _ in range(times):
            task.cancel()
            await settle()
        script.go()
        await asyncio.wait({task})
        assert task.cancelled()
        parts.store.steps = Script()
        await nothing_happened(parts)

    @pytest.mark.parametrize("place", ROLLBACK, ids=str)
    async def test_a_second_cancellation_during_the_rollback_of_the_first_waits_for_it(
        self, place: Place
    ) -> None:
        script = Script(hold=[PUT_STEPS[2], place])
        parts, task = await committing(script)
        task.cancel()
        await settle()
        script.go()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        await nothing_happened(parts)

    @pytest.mark.parametrize("place", [*BEFORE_COMMIT, *ROLLBACK], ids=str)
    async def test_a_cut_waits_until_the_commit_or_its_rollback_has_ended(
        self, place: Place
    ) -> None:
        fail = {PUT_STEPS[4]: PlaneError("unit lost")} if place in ROLLBACK else {}
        script = Script(hold=[place], fail=fail)
        parts, task = await committing(script)
        seen: list[tuple[set[str], set[str]]] = []
        cut = Holder(
            parts.barrier.checkpoint(), lambda: seen.append((parts.saved(), parts.owned()))
        )
        await settle()
        assert seen == []
        task.cancel()
        script.go()
        await asyncio.wait({task})
        await cut.left()
        assert seen == [(set(), set())]

    async def test_rows_that_can_be_neither_put_nor_cleared_are_told_with_both_errors(
        self,
    ) -> None:
        put, clear = PlaneError("put lost"), PlaneError("clear lost")
        parts = Parts()
        (record,) = await parts.admitted(1)
        parts.buffer.reserve(record)
        parts.store.steps = Script(fail={PUT_STEPS[3]: put, CLEAR_STEPS[0]: clear})
        with pytest.raises(
            ExceptionGroup, match=r"'p1@0': .* a save in the full window finds"
        ) as caught:
            await parts.commit(1)
        assert caught.value.exceptions == (put, clear)
        assert list(parts.buffer.ready()) == []
        assert len(parts.buffer) == 0
        assert "p1@0" in parts.ledger
        assert set(await parts.plane.list_keys()) == {"r0/p1@0/0/0", "r0/p1@0/0/1"}
        assert "RollbackGroup" not in parts.actions()

    async def test_a_cancelled_commit_whose_rows_cannot_be_cleared_is_no_mere_cancellation(
        self,
    ) -> None:
        clear = PlaneError("clear lost")
        script = Script(hold=[PUT_STEPS[3]], fail={CLEAR_STEPS[3]: clear})
        _, task = await committing(script)
        task.cancel()
        await settle()
        script.go()
        with pytest.raises(BaseExceptionGroup) as caught:
            await task
        assert isinstance(caught.value.exceptions[0], asyncio.CancelledError)
        assert caught.value.exceptions[1] is clear

    async def test_an_unforeseen_error_of_the_clear_is_told_with_the_first_one(self) -> None:
        put, clear = PlaneError("put lost"), ValueError("bug")
        parts = Parts()
        (record,) = await parts.admitted(1)
        parts.buffer.reserve(record)
        parts.store.steps = Script(fail={PUT_STEPS[0]: put, CLEAR_STEPS[0]: clear})
        with pytest.raises(ExceptionGroup) as caught:
            await parts.commit(1)
        assert caught.value.exceptions == (put, clear)

    @pytest.mark.parametrize("place", BEFORE_COMMIT, ids=str)
    @pytest.mark.parametrize("how", ["discarded", "released"])
    async def test_a_commit_that_finds_its_group_given_up_clears_its_rows(
        self, place: Place, how: str
    ) -> None:
        script = Script(hold=[place])
        parts, task = await committing(script)
        async with parts.barrier.mutation("drop") as slot:
            if how == "discarded":
                parts.ledger.discard(slot, "p1@0")
            else:
                parts.buffer.release("p1@0")
        script.go()
        with pytest.raises(InvariantError, match="'p1@0' was given up while its rows were put"):
            await task
        assert parts.saved() == set()
        assert list(parts.buffer.ready()) == []
        assert len(parts.buffer) == 0

    async def test_a_rollback_touches_no_other_group(self) -> None:
        parts = Parts()
        (other,) = await parts.finished(2)
        (record,) = await parts.admitted(1)
        parts.buffer.reserve(record)
        parts.store.steps = Script(fail={PUT_STEPS[3]: PlaneError("unit lost")})
        with pytest.raises(PlaneError):
            await parts.commit(1)
        assert parts.saved() == set(other.row_keys)
        assert list(parts.buffer.ready()) == [other]


class TestKeys:
    async def test_a_row_key_is_never_used_twice_over_attempts_and_incarnations(self) -> None:
        used: list[str] = []
        for lineage in ("r0", "r1", "r10"):
            parts = Parts(lineage=lineage)
            for number in (1, 11):
                (record,) = await parts.admitted(number)
                for _ in range(3):
                    parts.buffer.reserve(record)
                    parts.store.steps = Script(fail={PUT_STEPS[1]: PlaneError("lost")})
                    with pytest.raises(PlaneError):
                        await parts.commit(number)
                    parts.store.steps = Script()
                    used += [f"{lineage}/{record.group_id}/{_}/{s}" for s in range(2)]
                parts.buffer.reserve(record)
                used += (await parts.commit(number)).row_keys
        assert len(set(used)) == len(used) == 3 * 2 * 4 * 2

    async def test_attempts_are_counted_from_nothing_after_a_group_is_gone_for_good(self) -> None:
        parts = Parts()
        (record,) = await parts.admitted(1)
        assert parts.buffer.reserve(record) == 0
        parts.buffer.release("p1@0")
        assert parts.buffer.reserve(record) == 1
        parts.buffer.release("p1@0")
        parts.buffer.forget_attempts("p1@0")
        parts.buffer.forget_attempts("p1@0")
        assert parts.buffer.reserve(record) == 0


class TestSelect:
    async def test_selected_groups_leave_the_index_and_keep_their_rows(self) -> None:
        parts = Parts()
        entries = await parts.finished(1, 2, 3)
        async with parts.barrier.mutation("select") as slot:
            chosen = parts.buffer.select(slot, 0, ["p3@0", "p1@0"])
        assert chosen == [entries[2], entries[0]]
        assert ids(parts.buffer.ready()) == ["p2@0"]
        assert list(parts.buffer.claimed) == ["p3@0", "p1@0"]
        assert len(parts.buffer) == 1
        assert parts.saved() == parts.owned()
        assert len(parts.saved()) == 6
        assert snapshot(parts) == (entries[1],)

    async def test_selection_and_eviction_discard_a_record_that_outlived_its_commit(self) -> None:
        parts = Parts()
        await parts.finished(1, 2)
        async with parts.barrier.mutation("late") as slot:
            parts.ledger.reserve(slot, [prompt(1), prompt(2)])
            parts.buffer.select(slot, 0, ["p1@0"])
            assert "p1@0" not in parts.ledger
            await parts.buffer.evict(slot, 0, ["p2@0"])
            assert len(parts.ledger) == 0

    @pytest.mark.parametrize("group_ids", [["p1@0", "p9@0"], ["p1@0", "p1@0"], ["p1@0", "p3@0"]])
    @pytest.mark.parametrize("how", ["select", "evict"])
    async def test_only_finished_groups_leave_the_index_each_once_and_all_or_none(
        self, how: str, group_ids: list[str]
    ) -> None:
        parts = Parts()
        entries = await parts.finished(1, 2)
        (unready,) = await parts.admitted(3)
        parts.buffer.reserve(unready)
        async with parts.barrier.mutation(how) as slot:
            with pytest.raises(InvariantError, match="only finished groups leave it, each once"):
                await take(parts.buffer, how, slot, group_ids)
        assert list(parts.buffer.ready()) == entries
        assert parts.buffer.claimed == {}
        assert parts.saved() == parts.owned()
        assert ids(parts.buffer.ready_with_weight(0)) == ["p1@0", "p2@0"]

    @pytest.mark.parametrize("place", [*PUT_STEPS, Action.COMMIT_GROUP], ids=str)
    async def test_a_group_that_is_being_committed_is_not_evicted(self, place: Place) -> None:
        script = Script(hold=[place])
        parts, task = await committing(script)
        async with parts.barrier.mutation("evict") as slot:
            with pytest.raises(InvariantError, match="only finished groups"):
                await parts.buffer.evict(slot, 3, ["p1@0"])
        script.go()
        entry = await task
        assert list(parts.buffer.ready()) == [entry]
        assert parts.saved() == parts.owned()


async def take(buffer: ReplayBuffer, how: str, slot: Slot, group_ids: list[str]) -> None:
    if how == "select":
        buffer.select(slot, 0, group_ids)
    else:
        await buffer.evict(slot, 0, group_ids)


class TestEvict:
    async def test_evicted_groups_lose_entry_and_rows(self) -> None:
        parts = Parts()
        await parts.finished(1, 2, 3, weight=4)
        async with parts.barrier.mutation("evict") as slot:
            await parts.buffer.evict(slot, 7, ["p1@0", "p3@0"])
        assert ids(parts.buffer.ready()) == ["p2@0"]
        assert parts.saved() == parts.owned()
        assert parts.actions()[-1] == "EvictGroups"

    @pytest.mark.parametrize("place", CLEAR_STEPS, ids=str)
    async def test_an_eviction_that_is_cancelled_is_whole(self, place: Place) -> None:
        parts = Parts()
        script = await self._evicting(parts, place)
        task = self._task
        task.cancel()
        await settle()
        script.go()
        await asyncio.wait({task})
        assert task.cancelled()
        assert parts.saved() == parts.owned()
        assert len(parts.saved()) == 2
        assert parts.barrier.slots == 0

    async def _evicting(self, parts: Parts, place: Place) -> Script:
        await parts.finished(1, 2)
        script = Script(hold=[place])
        parts.store.steps = parts.buffer._stops = script

        async def evict() -> None:
            async with parts.barrier.mutation("evict") as slot:
                await parts.buffer.evict(slot, 7, ["p1@0"])

        self._task = asyncio.create_task(evict())
        await script.reached.wait()
        return script


class TestAnnouncements:
    """What a schedule stands on, and what is in the log."""

    async def test_a_commit_says_which_group_and_which_attempt(self) -> None:
        script = Script()
        parts = Parts(script=script)
        (record,) = await parts.admitted(1)
        parts.buffer.reserve(record)
        parts.buffer.release("p1@0")
        parts.buffer.reserve(record)
        await parts.commit(1, end_weight=3)
        group = {"group": "p1@0"}
        attempt = {**group, "attempt": 1}
        assert parts.log() == [
            ("BeginCommit", {**attempt, "end_weight": 3}),
            ("PutRows", attempt),
            ("CommitGroup", attempt),
        ]
        assert script.announced == [(Action.PUT_ROWS, group), (Action.COMMIT_GROUP, group)]

    async def test_a_rollback_says_which_group_and_which_attempt(self) -> None:
        script = Script(fail={PUT_STEPS[1]: PlaneError("lost")})
        parts = Parts(script=script)
        (record,) = await parts.admitted(1)
        parts.buffer.reserve(record)
        with pytest.raises(PlaneError):
            await parts.commit(1)
        assert parts.log()[-1] == ("RollbackGroup", {"group": "p1@0", "attempt": 0})
        assert script.announced[-1] == (Action.ROLLBACK_GROUP, {"group": "p1@0"})

    async def test_selection_eviction_and_clearing_say_which_groups(self) -> None:
        script = Script()
        parts = Parts(script=script)
        await parts.finished(1, 2, 3)
        async with parts.barrier.mutation("evict") as slot:
            await parts.buffer.evict(slot, 7, ["p3@0"])
        async with parts.barrier.mutation("select") as slot:
            parts.buffer.select(slot, 4, ["p1@0", "p2@0"])
        async with parts.barrier.mutation("clear") as slot:
            await parts.buffer.clear_claimed(slot, 4)
        chosen = {"step": 4, "groups": ["p1@0", "p2@0"]}
        assert parts.log()[-3:] == [
            ("EvictGroups", {"version": 7, "groups": ["p3@0"]}),
            ("SelectGroups", chosen),
            ("ClearRows", chosen),
        ]
        assert script.announced[-1] == (Action.CLEAR_ROWS, {"step": 4})


class TestClearClaimed:
    async def test_the_rows_of_the_open_step_go_and_its_claim_ends(self) -> None:
        parts = Parts()
        await parts.finished(1, 2, 3)
        async with parts.barrier.mutation("clear") as slot:
            parts.buffer.select(slot, 4, ["p1@0", "p2@0"])
            await parts.buffer.clear_claimed(slot, 4)
        assert parts.buffer.claimed == {}
        assert parts.saved() == parts.owned()
        assert len(parts.saved()) == 2
        record = parts.events.records[-1]
        assert (record.action, record.args) == (
            "ClearRows",
            {"step": 4, "groups": ["p1@0", "p2@0"]},
        )

    @pytest.mark.parametrize("times", [1, 2])
    @pytest.mark.parametrize("place", [Action.CLEAR_ROWS, *CLEAR_STEPS], ids=str)
    async def test_a_claim_ends_with_its_rows_also_when_it_is_cancelled(
        self, place: Place, times: int
    ) -> None:
        parts = Parts()
        await parts.finished(1)
        script = Script(hold=[place])

        async def clear() -> None:
            async with parts.barrier.mutation("clear") as slot:
                parts.buffer.select(slot, 0, ["p1@0"])
                parts.store.steps = parts.buffer._stops = script
                await parts.buffer.clear_claimed(slot, 0)

        task = asyncio.create_task(clear())
        await script.reached.wait()
        for _ in range(times):
            task.cancel()
            await settle()
        script.go()
        await asyncio.wait({task})
        assert task.cancelled()
        assert parts.saved() == parts.owned()
        assert len(parts.buffer.claimed) == (1 if place is Action.CLEAR_ROWS else 0)
        assert ("ClearRows" in parts.actions()) == (place is not Action.CLEAR_ROWS)

    async def test_a_claim_whose_rows_cannot_be_cleared_stays(self) -> None:
        parts = Parts()
        await parts.finished(1)
        parts.store.steps = Script(fail={CLEAR_STEPS[1]: PlaneError("unit lost")})
        async with parts.barrier.mutation("clear") as slot:
            parts.buffer.select(slot, 0, ["p1@0"])
            with pytest.raises(PlaneError, match="unit lost"):
                await parts.buffer.clear_claimed(slot, 0)
        assert list(parts.buffer.claimed) == ["p1@0"]
        assert parts.actions()[-1] == "ClearRows", "what is recorded is that it is begun"


class TestViews:
    async def test_finished_groups_come_in_the_order_of_their_commits(self) -> None:
        parts = Parts()
        records = await parts.admitted(1, 2, 3, weight=2, stamp=6)
        for record in records:
            parts.buffer.reserve(record)
        for number in (3, 1, 2):
            await parts.commit(number)
        for view in (
            parts.buffer.ready(),
            parts.buffer.ready_with_stamp(6),
            parts.buffer.ready_with_weight(2),
            snapshot(parts),
        ):
            assert ids(view) == ["p3@0", "p1@0", "p2@0"]

    async def test_stamps_and_weights_tell_groups_apart(self) -> None:
        parts = Parts()
        await parts.finished(1, weight=2, stamp=3)
        await parts.finished(2, weight=0, stamp=4)
        await parts.finished(3, weight=2, stamp=None)
        assert ids(parts.buffer.ready_with_stamp(3)) == ["p1@0"]
        assert ids(parts.buffer.ready_with_stamp(4)) == ["p2@0"]
        assert ids(parts.buffer.ready_with_weight(2)) == ["p1@0", "p3@0"]
        assert parts.buffer.ready_weights() == [0, 2]
        assert parts.buffer.ready_stamps() == [3, 4]
        assert not parts.buffer.ready_with_stamp(9)
        assert not parts.buffer.ready_with_weight(9)

    async def test_in_flight_weights_count_what_the_ledger_owns(self) -> None:
        parts = Parts()
        (first, _) = await parts.admitted(1, 2, weight=3)
        parts.buffer.reserve(first)
        assert dict(parts.buffer.in_flight_weights()) == {3: 2}
        await parts.commit(1)
        assert dict(parts.buffer.in_flight_weights()) == {3: 1}


class TestDigest:
    def test_it_does_not_depend_on_the_order_of_the_commits(self) -> None:
        entries = [finished(number) for number in (3, 1, 2)]
        assert index_digest(entries) == index_digest(entries[::-1])

    CHANGES: dict[str, Any] = {  # noqa: RUF012
        "group_id": "p9@0",
        "admission_id": 9,
        "occurrence": Occurrence(0, 1, "p1", "edited"),
        "dispatch_index": 9,
        "stamp": None,
        "start_weight": 5,
        "end_weight": 9,
        "row_keys": ("p1@0/1", "p1@0/0"),
    }

    def test_every_field_has_a_change_here(self) -> None:
        assert list(self.CHANGES) == list(IndexEntry.__struct_fields__)

    @pytest.mark.parametrize("field", CHANGES)
    def test_it_changes_with_every_field(self, field: str) -> None:
        changed = msgspec.structs.replace(finished(1), **{field: self.CHANGES[field]})
        assert changed != finished(1)
        assert index_digest([changed]) != index_digest([finished(1)])

    def test_it_changes_with_every_group(self) -> None:
        digests = {index_digest([finished(n) for n in range(count)]) for count in range(4)}
        assert len(digests) == 4


class TestRestore:
    def test_a_restored_index_is_the_saved_one_and_the_plane_is_not_written(self) -> None:
        parts = Parts()
        entries = [finished(number, start_weight=number) for number in (2, 1)]
        with entered(parts.barrier.mutation("restore")) as slot:
            parts.buffer.restore(slot, entries, capacity=2)
        assert list(parts.buffer.ready()) == entries
        assert list(parts.buffer.ready_with_weight(1)) == [entries[1]]
        assert list(parts.buffer.ready_with_stamp(7)) == entries
        assert len(parts.buffer) == 2
        assert (parts.store.counter, parts.saved()) == (0, set())

    def test_more_groups_than_the_capacity_are_refused_with_both_numbers(self) -> None:
        parts = Parts()
        with (
            entered(parts.barrier.mutation("restore")) as slot,
            pytest.raises(CapacityError, match=r"holds 3 .* capacity is 2; .* at least 3"),
        ):
            parts.buffer.restore(slot, [finished(n) for n in range(3)], capacity=2)
        assert len(parts.buffer) == 0

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            (finished(2, row_keys=("a",)), r"'p2@0' has 1 rows in the bundle; the group size is 2"),
            (finished(1), r"'p1@0' or one of its rows .* is in the bundle twice"),
            (finished(1, row_keys=("a", "b")), r"'p1@0' or one of its rows .* twice"),
            (finished(2, row_keys=("a", "p1@0/1")), r"'p2@0' or one of its rows .* twice"),
        ],
    )
    def test_a_group_that_contradicts_another_is_refused_and_nothing_restored(
        self, entry: IndexEntry, message: str
    ) -> None:
        parts = Parts()
        with (
            entered(parts.barrier.mutation("restore")) as slot,
            pytest.raises(InvariantError, match=message),
        ):
            parts.buffer.restore(slot, [finished(1), entry], capacity=9)
        assert len(parts.buffer) == 0
        assert parts.buffer.ready_weights() == []

    @pytest.mark.parametrize("state", ["reserved", "ready", "claimed"])
    async def test_a_buffer_in_use_is_not_restored_into(self, state: str) -> None:
        parts = Parts()
        (record,) = await parts.admitted(1)
        parts.buffer.reserve(record)
        if state != "reserved":
            await parts.commit(1)
        async with parts.barrier.mutation("restore") as slot:
            if state == "claimed":
                parts.buffer.select(slot, 0, ["p1@0"])
            with pytest.raises(InvariantError, match="restore into a new one"):
                parts.buffer.restore(slot, [], capacity=9)

    def test_a_restored_group_can_be_selected_and_is_not_launched_again(self) -> None:
        parts = Parts()
        with entered(parts.barrier.mutation("restore")) as slot:
            parts.buffer.restore(slot, [finished(1)], capacity=1)
            assert parts.buffer.select(slot, 7, ["p1@0"]) == [finished(1)]


CHANGES: dict[str, Callable[[ReplayBuffer, Any], object]] = {
    "commit": lambda b, slot: at_once(b.commit(slot, "p1@0", rows(1), end_weight=0)),
    "select": lambda b, slot: b.select(slot, 0, []),
    "evict": lambda b, slot: at_once(b.evict(slot, 0, [])),
    "clear_claimed": lambda b, slot: at_once(b.clear_claimed(slot, 0)),
    "restore": lambda b, slot: b.restore(slot, [], 9),
}


@no_proof
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_needs_a_live_slot_of_this_barrier(change: str, no_proof: str) -> None:
    parts = Parts()
    refuses(no_proof, parts.barrier, "slot", lambda slot: CHANGES[change](parts.buffer, slot))
    assert parts.events.records == []


@no_proof
def test_a_snapshot_needs_a_live_cut_of_this_barrier(no_proof: str) -> None:
    parts = Parts()
    refuses(no_proof, parts.barrier, "cut", parts.buffer.snapshot)


# Random histories against a naive list.

operations = st.lists(
    st.tuples(
        st.sampled_from(["finish", "finish", "select", "evict", "clear", "restore"]),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    max_size=25,
)


@settings(max_examples=100, deadline=None)
@given(operations)
def test_the_index_is_what_a_naive_list_says(history: list[tuple[str, int, int]]) -> None:
    asyncio.run(compare_with_a_list(history))


async def compare_with_a_list(history: list[tuple[str, int, int]]) -> None:
    parts, ready, claimed = Parts(), list[IndexEntry](), list[IndexEntry]()
    for number, (operation, choice, weight) in enumerate(history):
        taken = ready[choice:] + ready[: choice // 2]
        if operation == "finish":
            stamp = None if choice == 5 else choice
            ready += await parts.finished(number, weight=weight, stamp=stamp)
        elif operation == "restore" and not claimed:
            again = Parts(lineage=f"r{number + 1}", store=parts.store)
            async with again.barrier.mutation("restore") as slot:
                again.buffer.restore(slot, snapshot(parts), capacity=99)
            parts = again
        else:
            async with parts.barrier.mutation(operation) as slot:
                if operation == "select":
                    assert parts.buffer.select(slot, number, ids(taken)) == taken
                    claimed += taken
                    ready = [entry for entry in ready if entry not in taken]
                elif operation == "evict":
                    await parts.buffer.evict(slot, number, ids(taken))
                    ready = [entry for entry in ready if entry not in taken]
                else:
                    await parts.buffer.clear_claimed(slot, number)
                    claimed = []
        check_views(parts, ready)
        assert list(parts.buffer.claimed.values()) == claimed
        assert parts.saved() == {key for e in ready + claimed for key in e.row_keys}


def check_views(parts: Parts, ready: list[IndexEntry]) -> None:
    buffer = parts.buffer
    assert list(buffer.ready()) == ready
    assert len(buffer) == len(ready)
    assert buffer.ready_weights() == sorted({entry.start_weight for entry in ready})
    for value in range(6):
        assert list(buffer.ready_with_stamp(value)) == [e for e in ready if e.stamp == value]
        assert list(buffer.ready_with_weight(value)) == [
            e for e in ready if e.start_weight == value
        ]
    # Nothing is kept for what is gone.
    assert not buffer._attempts
    assert buffer.ready_stamps() == sorted({e.stamp for e in ready if e.stamp is not None})
    assert set(buffer._by_stamp._entries) == set(buffer.ready_stamps())
    assert set(buffer._by_weight._entries) == set(buffer.ready_weights())
