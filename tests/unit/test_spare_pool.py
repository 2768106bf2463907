"""The spare pool and the shortfall: what a step that loses a prompt is left with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlock.barrier import Barrier
from cutlock.errors import InvariantError
from cutlock.spare_pool import Shortfall, SparePool
from tests.support.bundles import prompt
from tests.support.loop import entered
from tests.support.sections import no_proof, refuses


@pytest.fixture
def barrier() -> Barrier:
    return Barrier()


@pytest.fixture
def pool(barrier: Barrier) -> SparePool:
    return SparePool(barrier)


@pytest.fixture
def shortfall(barrier: Barrier) -> Shortfall:
    return Shortfall(barrier, prompts_per_step=3)


def spares(pool: SparePool) -> list[int]:
    with entered(pool._barrier.checkpoint()) as cut:
        return [spare.position for spare in pool.snapshot(cut)]


def missing(shortfall: Shortfall) -> tuple[tuple[int, int], ...]:
    with entered(shortfall._barrier.checkpoint()) as cut:
        return shortfall.snapshot(cut)


class TestSparePool:
    def test_spares_are_taken_in_the_order_in_which_they_came(
        self, pool: SparePool, barrier: Barrier
    ) -> None:
        with entered(barrier.mutation("pool")) as slot:
            pool.fill(slot, [prompt(3), prompt(1)])
            pool.fill(slot, [prompt(2)])
            assert [spare.position for spare in pool.take(slot, 2)] == [3, 1]
        assert spares(pool) == [2]

    def test_one_spare_is_taken_if_no_number_is_given(
        self, pool: SparePool, barrier: Barrier
    ) -> None:
        with entered(barrier.mutation("pool")) as slot:
            pool.fill(slot, [prompt(1), prompt(2)])
            assert [spare.position for spare in pool.take(slot)] == [1]

    @pytest.mark.parametrize(("count", "taken"), [(0, 0), (1, 1), (2, 2), (3, 2)])
    def test_a_pool_gives_what_it_has(
        self, pool: SparePool, barrier: Barrier, count: int, taken: int
    ) -> None:
        with entered(barrier.mutation("pool")) as slot:
            pool.fill(slot, [prompt(1), prompt(2)])
            assert len(pool.take(slot, count)) == taken
        assert len(pool) == 2 - taken

    def test_an_empty_pool_gives_nothing(self, pool: SparePool, barrier: Barrier) -> None:
        with entered(barrier.mutation("pool")) as slot:
            assert pool.take(slot) == []

    @pytest.mark.parametrize("batch", [(2, 1), (4, 4)])
    def test_a_batch_with_an_occurrence_that_is_a_spare_is_refused_whole(
        self, pool: SparePool, barrier: Barrier, batch: tuple[int, ...]
    ) -> None:
        with entered(barrier.mutation("pool")) as slot:
            pool.fill(slot, [prompt(1)])
            pool.fill(slot, [prompt(3)])
            with pytest.raises(InvariantError, match=r"'p[14]@0' is already a spare"):
                pool.fill(slot, [prompt(number) for number in batch])
        assert spares(pool) == [1, 3]

    def test_a_restored_pool_keeps_the_order(self, pool: SparePool, barrier: Barrier) -> None:
        with entered(barrier.mutation("restore")) as slot:
            pool.restore(slot, iter([prompt(5), prompt(2)]))
        assert spares(pool) == [5, 2]

    def test_a_pool_in_use_is_not_restored_into(self, pool: SparePool, barrier: Barrier) -> None:
        with entered(barrier.mutation("restore")) as slot:
            pool.fill(slot, [prompt(1)])
            with pytest.raises(InvariantError, match="holds 1 spares; restore into a new one"):
                pool.restore(slot, [])

    @no_proof
    @pytest.mark.parametrize("mutator", ["fill", "take", "restore"])
    def test_every_change_needs_a_live_slot_of_this_barrier(
        self, barrier: Barrier, mutator: str, no_proof: str
    ) -> None:
        pool = SparePool(barrier)
        calls: dict[str, Callable[[Any], object]] = {
            "fill": lambda slot: pool.fill(slot, [prompt(1)]),
            "take": pool.take,
            "restore": lambda slot: pool.restore(slot, [prompt(1)]),
        }
        refuses(no_proof, barrier, "slot", calls[mutator])
        assert spares(pool) == []

    @no_proof
    def test_a_snapshot_needs_a_live_cut_of_this_barrier(
        self, pool: SparePool, barrier: Barrier, no_proof: str
    ) -> None:
        refuses(no_proof, barrier, "cut", pool.snapshot)


class TestShortfall:
    def test_a_step_goes_without_what_was_credited_to_it(
        self, shortfall: Shortfall, barrier: Barrier
    ) -> None:
        with entered(barrier.mutation("drop")) as slot:
            shortfall.credit(slot, 4)
            shortfall.credit(slot, 4)
            shortfall.credit(slot, 6)
        assert [shortfall.of(step) for step in (3, 4, 5, 6)] == [0, 2, 0, 1]

    def test_more_than_a_whole_step_goes_on_to_the_next_ones(
        self, shortfall: Shortfall, barrier: Barrier
    ) -> None:
        with entered(barrier.mutation("drop")) as slot:
            shortfall.credit(slot, 5, 2)
            shortfall.credit(slot, 4, 7)
        assert missing(shortfall) == ((4, 3), (5, 3), (6, 3))

    @pytest.mark.parametrize("count", [0, -1])
    def test_a_credit_is_of_at_least_one_group(
        self, shortfall: Shortfall, barrier: Barrier, count: int
    ) -> None:
        with (
            entered(barrier.mutation("drop")) as slot,
            pytest.raises(InvariantError, match=f"of {count} groups is none; credit at least 1"),
        ):
            shortfall.credit(slot, 0, count)
        assert missing(shortfall) == ()

    def test_steps_that_have_been_trained_are_forgotten(
        self, shortfall: Shortfall, barrier: Barrier
    ) -> None:
        with entered(barrier.mutation("select")) as slot:
            for step in (6, 4, 5):
                shortfall.credit(slot, step)
            shortfall.forget_before(slot, 5)
        assert missing(shortfall) == ((5, 1), (6, 1))

    def test_a_restored_shortfall_is_the_saved_one(
        self, shortfall: Shortfall, barrier: Barrier
    ) -> None:
        with entered(barrier.mutation("restore")) as slot:
            shortfall.restore(slot, ((7, 2), (8, 1)))
        assert missing(shortfall) == ((7, 2), (8, 1))

    def test_a_shortfall_in_use_is_not_restored_into(
        self, shortfall: Shortfall, barrier: Barrier
    ) -> None:
        with entered(barrier.mutation("restore")) as slot:
            shortfall.credit(slot, 1)
            with pytest.raises(InvariantError, match=r"holds \{1: 1\}; restore into a new one"):
                shortfall.restore(slot, ())

    @no_proof
    @pytest.mark.parametrize("mutator", ["credit", "forget_before", "restore"])
    def test_every_change_needs_a_live_slot_of_this_barrier(
        self, shortfall: Shortfall, barrier: Barrier, mutator: str, no_proof: str
    ) -> None:
        calls: dict[str, Callable[[Any], object]] = {
            "credit": lambda slot: shortfall.credit(slot, 1),
            "forget_before": lambda slot: shortfall.forget_before(slot, 9),
            "restore": lambda slot: shortfall.restore(slot, ((1, 1),)),
        }
        refuses(no_proof, barrier, "slot", calls[mutator])
        assert missing(shortfall) == ()

    @no_proof
    def test_a_snapshot_needs_a_live_cut_of_this_barrier(
        self, shortfall: Shortfall, barrier: Barrier, no_proof: str
    ) -> None:
        refuses(no_proof, barrier, "cut", shortfall.snapshot)

    @given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9)), max_size=12))
    def test_no_credit_is_lost_and_no_step_is_more_than_empty(
        self, credits_: list[tuple[int, int]]
    ) -> None:
        barrier = Barrier()
        shortfall = Shortfall(barrier, prompts_per_step=3)
        with entered(barrier.mutation("drop")) as slot:
            for step, count in credits_:
                shortfall.credit(slot, step, count)
        found = missing(shortfall)
        assert sum(count for _, count in found) == sum(count for _, count in credits_)
        assert all(1 <= count <= 3 for _, count in found)
        assert found == tuple(sorted(found))
