"""The dataloader: every prompt once per epoch, over any number of saves and resumes."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutlock.barrier import Barrier
from cutlock.errors import ConfigMismatchError, InvariantError
from cutlock.ledger import Ledger
from cutlock.loader import Batch, PromptLoader, epoch_order
from cutlock.records import LoaderState, canonical_json
from cutlock.workers.prompts import ReverseTask
from tests.support.loop import entered, turns
from tests.support.sections import no_proof, refuses


def loader(
    prompts: int = 7, *, batch_size: int = 3, epochs: int = 2, seed: int = 0
) -> PromptLoader:
    return PromptLoader(
        Barrier(), ReverseTask(prompts), batch_size=batch_size, epochs=epochs, seed=seed
    )


class NoPrompts:
    """A data set of nothing."""

    name = "nothing"
    digest = "0" * 64

    def __len__(self) -> int:
        return 0


def following(loader: PromptLoader) -> Batch | None:
    """The next batch, taken as the rollout pump takes it."""
    with entered(loader._barrier.mutation("advance")) as slot:
        batch = loader.next_batch(slot)
        if batch is not None and batch.ends_epoch:
            loader.raise_epoch(slot)
        return batch


def rest(loader: PromptLoader) -> list[Batch]:
    batches = []
    while (batch := following(loader)) is not None:
        batches.append(batch)
    return batches


def saved(loader: PromptLoader) -> LoaderState:
    with entered(loader._barrier.checkpoint()) as cut:
        return loader.snapshot(cut)


def restored(state: LoaderState, **changes: int) -> PromptLoader:
    fresh = loader(**changes)
    with entered(fresh._barrier.mutation("restore")) as slot:
        fresh.restore(slot, state)
    return fresh


def positions(batches: list[Batch]) -> list[list[int]]:
    return [[occurrence.position for occurrence in batch.occurrences] for batch in batches]


def flat(batches: list[Batch]) -> list[int]:
    return [position for batch in positions(batches) for position in batch]


class TestServing:
    @settings(max_examples=50, deadline=None)
    @given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 3), st.integers(0, 5))
    def test_every_prompt_is_served_once_per_epoch(
        self, prompts: int, batch_size: int, epochs: int, seed: int
    ) -> None:
        batches = rest(loader(prompts, batch_size=batch_size, epochs=epochs, seed=seed))
        served = [occurrence.key for batch in batches for occurrence in batch.occurrences]
        assert len(set(served)) == len(served) == prompts * epochs
        for epoch in range(epochs):
            own = [batch for batch in batches if batch.epoch == epoch]
            assert sorted(flat(own)) == list(range(prompts))
            assert {o.epoch for batch in own for o in batch.occurrences} == {epoch}
            assert [batch.ends_epoch for batch in own] == [False] * (len(own) - 1) + [True]

    def test_the_last_batch_of_an_epoch_may_be_short_and_epochs_do_not_mix(self) -> None:
        batches = rest(loader(7, batch_size=3, epochs=2))
        assert [(b.epoch, b.position, len(b.occurrences), b.ends_epoch) for b in batches] == [
            (0, 3, 3, False),
            (0, 6, 3, False),
            (0, 7, 1, True),
            (1, 3, 3, False),
            (1, 6, 3, False),
            (1, 7, 1, True),
        ]

    def test_a_tail_is_served_before_its_epoch_starts_again(self) -> None:
        tested = loader(3, batch_size=2, epochs=1)
        first, second = rest(tested)
        assert (len(first.occurrences), len(second.occurrences)) == (2, 1)
        assert (first.ends_epoch, second.ends_epoch) == (False, True)
        assert not {o.key for o in first.occurrences} & {o.key for o in second.occurrences}
        assert tested.exhausted

    def test_a_batch_larger_than_the_data_set_is_one_epoch(self) -> None:
        assert [len(b.occurrences) for b in rest(loader(2, batch_size=5, epochs=3))] == [2, 2, 2]

    def test_the_order_is_a_function_of_seed_and_epoch(self) -> None:
        batches = rest(loader(7, batch_size=7, epochs=2, seed=5))
        assert positions(batches) == [epoch_order(7, 0, 5), epoch_order(7, 1, 5)]
        assert epoch_order(7, 0, 5) == epoch_order(7, 0, 5)
        others = [epoch_order(7, 1, 5), epoch_order(7, 0, 6)]
        assert all(sorted(order) == list(range(7)) for order in others)
        assert epoch_order(7, 0, 5) not in others

    def test_the_order_does_not_depend_on_global_random_state(self) -> None:
        random.seed(1)
        first = epoch_order(20, 0, 0)
        random.seed(2)
        assert epoch_order(20, 0, 0) == first

    def test_an_occurrence_names_its_prompt_by_id_and_digest(self) -> None:
        task = ReverseTask(7)
        for batch in rest(loader(7)):
            for occurrence in batch.occurrences:
                prompt = task[occurrence.position]
                assert occurrence.prompt_id == prompt.prompt_id
                assert occurrence.digest == prompt.digest
                assert occurrence.key == f"{prompt.prompt_id}@{batch.epoch}"

    def test_after_the_last_batch_there_is_none_for_ever(self) -> None:
        tested = loader(3, batch_size=3, epochs=2)
        rest(tested)
        assert tested.exhausted
        assert [following(tested) for _ in range(3)] == [None] * 3
        assert (tested.epoch, tested.position) == (2, 0)

    def test_a_data_set_of_nothing_is_exhausted_from_the_start(self) -> None:
        tested = PromptLoader(
            Barrier(), NoPrompts(), batch_size=2, epochs=2, seed=0  # type: ignore[arg-type]
        )  # fmt: skip
        assert tested.exhausted
        assert following(tested) is None
        assert saved(tested).exhausted


class TestEpoch:
    def test_the_epoch_is_raised_in_the_slot_of_the_batch_that_ends_it(self) -> None:
        tested = loader(4, batch_size=2, epochs=2)
        seen = [saved(tested)]
        while following(tested) is not None:
            seen.append(saved(tested))
        assert [(s.epoch, s.position, s.exhausted, s.inner is None) for s in seen] == [
            (0, 0, False, True),
            (0, 2, False, False),
            (1, 0, False, True),
            (1, 2, False, False),
            (2, 0, True, True),
        ]

    def test_the_last_batch_leaves_the_loader_at_the_end_of_its_epoch_until_that_is_raised(
        self,
    ) -> None:
        tested = loader(4, batch_size=4, epochs=1)
        with entered(tested._barrier.mutation("advance")) as slot:
            tested.next_batch(slot)
            assert (tested.epoch, tested.position) == (0, 4)
            assert tested.raise_due
            assert not tested.exhausted
            tested.raise_epoch(slot)
        assert (tested.epoch, tested.position) == (1, 0)
        assert not tested.raise_due
        assert tested.exhausted

    def test_no_batch_is_served_while_the_epoch_is_to_be_raised(self) -> None:
        tested = loader(4, batch_size=4, epochs=2)
        with entered(tested._barrier.mutation("advance")) as slot:
            tested.next_batch(slot)
            with pytest.raises(InvariantError, match=r"cannot serve a batch at the end of epoch 0"):
                tested.next_batch(slot)
            tested.raise_epoch(slot)
        assert rest(tested) == rest(loader(4, batch_size=4, epochs=2))[1:]

    def test_no_position_is_saved_while_the_epoch_is_to_be_raised(self) -> None:
        tested = loader(4, batch_size=4, epochs=2)
        with entered(tested._barrier.mutation("advance")) as slot:
            tested.next_batch(slot)
        with pytest.raises(InvariantError, match=r"be saved .* all 4 prompts .*call raise_epoch"):
            saved(tested)

    @pytest.mark.parametrize("served", [0, 1, 3])
    def test_an_epoch_that_has_not_ended_is_not_raised(self, served: int) -> None:
        tested = loader(6, batch_size=2, epochs=2)
        for _ in range(served):
            following(tested)
        before = saved(tested)
        with (
            entered(tested._barrier.mutation("advance")) as slot,
            pytest.raises(InvariantError, match=r"cannot be raised at prompt \d of 6; serve the"),
        ):
            tested.raise_epoch(slot)
        assert saved(tested) == before

    def test_an_exhausted_loader_has_no_epoch_to_raise(self) -> None:
        tested = loader()
        rest(tested)
        with (
            entered(tested._barrier.mutation("advance")) as slot,
            pytest.raises(InvariantError, match=r"epoch 2 cannot be raised"),
        ):
            tested.raise_epoch(slot)

    def test_a_resume_on_an_epoch_boundary_serves_the_whole_next_epoch(self) -> None:
        tested = loader(6, batch_size=2, epochs=2)
        for _ in range(3):
            following(tested)
        again = restored(saved(tested), prompts=6, batch_size=2, epochs=2)
        batches = rest(again)
        assert [batch.epoch for batch in batches] == [1, 1, 1]
        assert sorted(flat(batches)) == list(range(6))


class TestResume:
    @pytest.mark.parametrize("prompts", [1, 5, 6, 7])
    @pytest.mark.parametrize("batch_size", [1, 3, 8])
    def test_a_resume_at_any_batch_serves_what_was_left(
        self, prompts: int, batch_size: int
    ) -> None:
        sizes = {"prompts": prompts, "batch_size": batch_size, "epochs": 3}
        tested = loader(**sizes)
        whole = rest(loader(**sizes))
        for served in range(len(whole) + 1):
            state = saved(tested)
            again = restored(state, **sizes)
            assert saved(again) == state
            assert rest(again) == whole[served:]
            following(tested)

    @settings(max_examples=50, deadline=None)
    @given(st.integers(1, 9), st.integers(1, 4), st.lists(st.integers(0, 4), max_size=8))
    def test_any_number_of_resumes_serves_what_no_resume_would(
        self, prompts: int, batch_size: int, legs: list[int]
    ) -> None:
        sizes = {"prompts": prompts, "batch_size": batch_size, "epochs": 2}
        tested, served = loader(**sizes), list[Batch]()
        for leg in legs:
            for _ in range(leg):
                if (batch := following(tested)) is not None:
                    served.append(batch)
            tested = restored(saved(tested), **sizes)
        assert served + rest(tested) == rest(loader(**sizes))

    def test_a_second_resume_inside_one_epoch_keeps_its_place(self) -> None:
        sizes = {"prompts": 100, "batch_size": 1, "epochs": 1}
        tested, places = loader(**sizes), []
        for leg in (30, 10, 0, 0, 5):
            for _ in range(leg):
                following(tested)
            places.append(saved(tested).position)
            tested = restored(saved(tested), **sizes)
        assert places == [30, 40, 40, 40, 45]
        assert len(rest(tested)) == 55

    @pytest.mark.parametrize("served", [0, 1, 3])
    def test_a_resume_does_not_depend_on_what_the_new_process_has_served(self, served: int) -> None:
        tested, busy = loader(), loader()
        for _ in range(served):
            following(tested)
        for _ in range(4):
            following(busy)
        with entered(busy._barrier.mutation("restore")) as slot:
            busy.restore(slot, saved(tested))
        assert saved(busy) == saved(tested)
        assert rest(busy) == rest(tested)

    def test_the_state_is_plain_data(self) -> None:
        tested = loader()
        following(tested)
        state = saved(tested)
        again = msgspec.json.decode(canonical_json(state), type=LoaderState)
        assert again == state
        assert rest(restored(again)) == rest(tested)

    def test_an_exhausted_loader_stays_exhausted(self) -> None:
        tested = loader()
        rest(tested)
        again = restored(saved(tested))
        assert again.exhausted
        assert following(again) is None
        assert saved(again) == saved(tested)

    def test_more_epochs_on_a_resume_go_on_where_the_data_had_ended(self) -> None:
        tested = loader(epochs=2)
        rest(tested)
        again = restored(saved(tested), epochs=3)
        assert not again.exhausted
        assert [batch.epoch for batch in rest(again)] == [2, 2, 2]

    def test_more_epochs_on_a_resume_change_nothing_before_the_end(self) -> None:
        tested = loader(epochs=1)
        following(tested)
        assert rest(restored(saved(tested), epochs=2)) == rest(loader(epochs=2))[1:]

    def test_no_epoch_is_served_beyond_a_smaller_number_on_a_resume(self) -> None:
        tested = loader(epochs=3)
        for _ in range(4):
            following(tested)
        state = saved(tested)
        assert (state.epoch, state.position) == (1, 3)
        assert following(restored(state, epochs=1)) is None
        # What was left of the epoch is not forgotten by that.
        assert len(rest(restored(saved(restored(state, epochs=1)), epochs=2))) == 2


class TestRefusals:
    @pytest.mark.parametrize(
        ("state", "message"),
        [
            (LoaderState(3, 0, True, None), "stands at epoch 3, prompt 0; .* has 2 epochs of 7"),
            (LoaderState(0, 7, False, {}), "prompt 7; .*resume with the same data set"),
            (LoaderState(0, -1, False, {}), "epoch 0, prompt -1"),
            (LoaderState(0, 3, False, None), "stands at prompt 3 of epoch 0 and its loader at No"),
            (LoaderState(1, 0, False, {"a": 1}), r"loader at \{'a': 1\}; position and loader bel"),
        ],
    )
    def test_a_position_that_does_not_exist_here_is_refused_and_nothing_changed(
        self, state: LoaderState, message: str
    ) -> None:
        tested = loader()
        with (
            entered(tested._barrier.mutation("restore")) as slot,
            pytest.raises(ConfigMismatchError, match=message),
        ):
            tested.restore(slot, state)
        assert rest(tested) == rest(loader())

    def test_a_state_that_the_wrapped_loader_does_not_take_changes_nothing(self) -> None:
        before, tested = loader(), loader()
        following(before)
        strange = msgspec.structs.replace(saved(before), inner={"of": "another version"})
        with (
            entered(tested._barrier.mutation("restore")) as slot,
            pytest.raises(ConfigMismatchError, match="does not take its saved state"),
        ):
            tested.restore(slot, strange)
        assert rest(tested) == rest(loader())

    @pytest.mark.parametrize(
        "elsewhere",
        [
            *({"_sampler_iter_state": {"samples_yielded": samples}} for samples in (0, 1, 2, 6)),
            {"_sampler_iter_yielded": "not a number"},
        ],
    )
    def test_a_wrapped_loader_that_stands_elsewhere_hands_out_nothing(
        self, elsewhere: dict[str, object]
    ) -> None:
        before = loader()
        following(before)
        state = saved(before)
        assert state.inner is not None
        tested = restored(msgspec.structs.replace(state, inner={**state.inner, **elsewhere}))
        with pytest.raises(InvariantError, match=r"at prompt 3 of epoch 0, where .* are due"):
            following(tested)
        assert (tested.epoch, tested.position) == (0, 3)

    def test_an_empty_state_of_the_wrapped_loader_does_not_serve_an_epoch_again(self) -> None:
        before = loader()
        following(before)
        tested = restored(msgspec.structs.replace(saved(before), inner={}))
        with pytest.raises(InvariantError, match="nothing was handed out"):
            following(tested)

    def test_a_smaller_data_set_does_not_have_the_saved_position(self) -> None:
        tested = loader(8, batch_size=4)
        following(tested)
        with pytest.raises(ConfigMismatchError, match=r"prompt 4; .* epochs of 3 prompts"):
            restored(saved(tested), prompts=3, batch_size=4)

    @no_proof
    def test_a_batch_is_taken_only_in_a_live_slot_of_this_barrier(self, no_proof: str) -> None:
        tested = loader()
        refuses(no_proof, tested._barrier, "slot", tested.next_batch)
        refuses(no_proof, tested._barrier, "slot", tested.raise_epoch)
        refuses(
            no_proof, tested._barrier, "slot", lambda slot: tested.restore(slot, saved(loader()))
        )
        assert rest(tested) == rest(loader())

    @no_proof
    def test_a_snapshot_needs_a_live_cut_of_this_barrier(self, no_proof: str) -> None:
        tested = loader()
        refuses(no_proof, tested._barrier, "cut", tested.snapshot)


async def test_no_cut_sees_a_position_past_a_prompt_that_nobody_owns() -> None:
    barrier = Barrier()
    tested = PromptLoader(barrier, ReverseTask(6), batch_size=2, epochs=1, seed=0)
    ledger = Ledger(barrier)
    seen: list[tuple[int, int, int]] = []

    async def pump() -> None:
        while not tested.exhausted:
            async with barrier.mutation("advance") as slot:
                batch = tested.next_batch(slot)
                assert batch is not None
                await turns(3)
                ledger.reserve(slot, batch.occurrences)
                if batch.ends_epoch:
                    await turns(3)
                    tested.raise_epoch(slot)
            await turns(1)

    async def saver() -> None:
        while not tested.exhausted:
            async with barrier.checkpoint() as cut:
                state = tested.snapshot(cut)
                seen.append((state.epoch, state.position, len(ledger.snapshot(cut, ()))))
            await turns(1)

    await asyncio.gather(pump(), saver())
    assert all(owned == (6 if epoch else position) for epoch, position, owned in seen)
    assert len({owned for *_, owned in seen}) > 1
