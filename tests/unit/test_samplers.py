"""The four samplers, as tables with the numbers written out, and under random histories."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutlock.barrier import Barrier
from cutlock.errors import ConfigError, InvariantError
from cutlock.ledger import Ledger
from cutlock.records import IndexEntry, LedgerRecord
from cutlock.samplers import (
    SAMPLER_NAMES,
    Admission,
    GroupView,
    TrainerVersion,
    TransactionalAdmissionSampler,
    build_sampler,
    is_restorable,
    parse_sampler,
)
from cutlock.samplers.base import GatedSampler
from cutlock.samplers.builtin import WindowedSampler
from cutlock.spare_pool import Shortfall
from tests.support.bundles import finished, prompt
from tests.support.loop import at_once, entered, settle, turns
from tests.support.sections import no_proof, refuses

GATED = ("ready_first", "weight_fifo", "in_order")


def sampler(name: str, window: int = 1, **options: object) -> GatedSampler:
    built = build_sampler(parse_sampler({"name": name, "window": window, **options}), Barrier())
    assert isinstance(built, GatedSampler)
    return built


def admit(sampler: GatedSampler, version: int) -> Admission:
    with entered(sampler._barrier.mutation("admission")) as slot:
        return sampler.commit_admission(slot, version)


def restore(sampler: GatedSampler, cursor: int) -> None:
    with entered(sampler._barrier.mutation("restore")) as slot:
        sampler.restore_cursor(slot, cursor)


class View:
    """What a sampler sees: finished groups in the order of their commits, and weights in flight."""

    def __init__(
        self, ready: Sequence[IndexEntry] = (), in_flight: Mapping[int, int] | None = None
    ) -> None:
        self.entries = list(ready)
        self.in_flight = dict(in_flight or {})

    def ready(self) -> Sequence[IndexEntry]:
        return list(self.entries)

    def ready_with_stamp(self, stamp: int) -> Sequence[IndexEntry]:
        return [entry for entry in self.entries if entry.stamp == stamp]

    def ready_with_weight(self, start_weight: int) -> Sequence[IndexEntry]:
        return [entry for entry in self.entries if entry.start_weight == start_weight]

    def ready_stamps(self) -> Sequence[int]:
        return sorted({entry.stamp for entry in self.entries if entry.stamp is not None})

    def ready_weights(self) -> Sequence[int]:
        return sorted({entry.start_weight for entry in self.entries})

    def in_flight_weights(self) -> Mapping[int, int]:
        return self.in_flight


def weights(*values: int, in_flight: Mapping[int, int] | None = None) -> View:
    """Groups p0, p1, ... of these start weights, committed in this order."""
    return View([finished(n, start_weight=weight) for n, weight in enumerate(values)], in_flight)


def stamps(*values: int) -> View:
    """Groups p0, p1, ... of these stamps, committed in this order."""
    return View([finished(n, stamp=stamp) for n, stamp in enumerate(values)])


def numbers(group_ids: Sequence[str]) -> list[int]:
    return [int(group_id.removeprefix("p").removesuffix("@0")) for group_id in group_ids]


class TestAdmission:
    @pytest.mark.parametrize("name", GATED)
    @pytest.mark.parametrize(
        ("window", "version", "batches"),
        [
            (0, 0, 1), (0, 1, 2), (0, 5, 6),
            (1, 0, 2), (1, 1, 3), (1, 5, 7),
            (2, 0, 3), (2, 1, 4), (2, 5, 8),
        ],
    )  # fmt: skip
    def test_the_gate_lets_in_what_the_window_allows(
        self, name: str, window: int, version: int, batches: int
    ) -> None:
        tested = sampler(name, window)
        for number in range(batches):
            at_once(tested.wait_until_admissible(TrainerVersion(version)))
            stamp = number if name == "in_order" else None
            assert admit(tested, version) == Admission(number, stamp)
        with pytest.raises(
            InvariantError,
            match=f"{name}: cursor {batches - 1} may not advance at trainer version {version} "
            f"with window {window}",
        ):
            admit(tested, version)
        assert tested.cursor == batches - 1

    @pytest.mark.parametrize("name", GATED)
    @pytest.mark.parametrize("window", [0, 1, 2])
    async def test_a_shut_gate_opens_with_the_next_version_and_not_before(
        self, name: str, window: int
    ) -> None:
        tested, version = sampler(name, window), TrainerVersion(3)
        restore(tested, 3 + window + 1)
        waiting = asyncio.create_task(tested.wait_until_admissible(version))
        for _ in range(2):
            await settle()
            assert not waiting.done()
            version.raise_to(version.value + 1)
        await waiting
        assert version.value == 5

    @pytest.mark.parametrize("name", GATED)
    async def test_a_wait_at_the_gate_that_is_cancelled_leaves_the_cursor(self, name: str) -> None:
        tested, version = sampler(name, 0), TrainerVersion()
        restore(tested, 0)
        waiting = asyncio.create_task(tested.wait_until_admissible(version))
        await settle()
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert tested.cursor == 0
        assert not version._raised.waiters

    @pytest.mark.parametrize("window", [0, 1, 2])
    def test_windowed_has_no_gate(self, window: int) -> None:
        tested = sampler("windowed", window)
        for number in range(20):
            at_once(tested.wait_until_admissible(TrainerVersion()))
            assert admit(tested, 0) == Admission(number, None)

    @pytest.mark.parametrize(
        ("window", "needed"), [(0, 8), (1, 16), (2, 24)], ids="window {}".format
    )
    def test_a_gated_sampler_needs_room_for_what_its_gate_lets_in(
        self, window: int, needed: int
    ) -> None:
        for name in GATED:
            assert sampler(name, window).capacity_needed(8) == needed
        assert sampler("windowed", window).capacity_needed(8) == 8

    @no_proof
    @pytest.mark.parametrize("name", SAMPLER_NAMES)
    def test_the_cursor_moves_only_in_a_live_slot_of_this_barrier(
        self, name: str, no_proof: str
    ) -> None:
        tested = sampler(name)
        refuses(no_proof, tested._barrier, "slot", lambda s: tested.commit_admission(s, 0))
        refuses(no_proof, tested._barrier, "slot", lambda s: tested.restore_cursor(s, 4))
        assert tested.cursor == -1

    @pytest.mark.parametrize("name", SAMPLER_NAMES)
    def test_the_shipped_samplers_have_the_split_admission(self, name: str) -> None:
        assert isinstance(sampler(name), TransactionalAdmissionSampler)
        assert sampler(name).name == name


class TestRestoredCursor:
    @pytest.mark.parametrize("name", SAMPLER_NAMES)
    def test_dispatch_goes_on_after_the_saved_cursor(self, name: str) -> None:
        tested = sampler(name)
        restore(tested, 6)
        assert tested.cursor == 6
        stamp = 7 if name == "in_order" else None
        assert admit(tested, 6) == Admission(7, stamp)

    @pytest.mark.parametrize("name", SAMPLER_NAMES)
    def test_the_cursor_of_a_sampler_in_use_is_not_restored(self, name: str) -> None:
        tested = sampler(name)
        admit(tested, 0)
        with pytest.raises(InvariantError, match="cursor is already at 0; restore a new"):
            restore(tested, 6)
        assert tested.cursor == 0

    @pytest.mark.parametrize("name", GATED)
    @pytest.mark.parametrize("version", [0, 1, 10, 1000])
    def test_the_room_after_a_restore_does_not_grow_with_the_version(
        self, name: str, version: int
    ) -> None:
        tested = sampler(name, window=1)
        restore(tested, version - 1)
        admitted = 0
        while tested._gate_open(version):
            admit(tested, version)
            admitted += 1
        assert admitted == 2

    def test_the_step_after_a_full_one_has_a_producer_before_the_version_moves(self) -> None:
        tested = sampler("in_order", window=1)
        restore(tested, 30)
        at_once(tested.wait_until_admissible(TrainerVersion(30)))
        assert admit(tested, 30).stamp == 31

    @pytest.mark.parametrize("name", SAMPLER_NAMES)
    def test_groups_that_were_finished_for_the_next_step_are_selected_after_a_restore(
        self, name: str
    ) -> None:
        tested = sampler(name, window=1)
        restore(tested, 6)
        ready = View([finished(n, stamp=5, start_weight=4) for n in (1, 2)])
        assert tested.evict(ready, 5) == []
        assert numbers(tested.select(ready, 5, 2)) == [1, 2]


SELECT = [
    # name, window, version, view, need, selected
    ("windowed", 1, 5, weights(4, 5), 2, [0, 1]),
    ("windowed", 1, 5, weights(5, 4), 2, [0, 1]),
    ("windowed", 1, 5, weights(3, 4, 5), 2, [1, 2]),
    ("windowed", 1, 5, weights(3, 4), 2, []),
    ("windowed", 1, 5, weights(6, 4), 2, []),
    ("windowed", 0, 5, weights(4, 5, 5), 2, [1, 2]),
    ("windowed", 2, 5, weights(3, 5, 4, 5), 3, [0, 1, 2]),
    ("windowed", 1, 5, weights(), 1, []),
    ("ready_first", 1, 5, weights(5, 0, 3), 2, [0, 1]),
    ("ready_first", 1, 5, weights(6, 0, 3), 2, [1, 2]),
    ("ready_first", 1, 5, weights(6, 5), 2, []),
    ("ready_first", 0, 5, weights(0, 0), 2, [0, 1]),
    ("weight_fifo", 1, 5, weights(5, 4, 4), 2, [1, 2]),
    ("weight_fifo", 1, 5, weights(5, 5, 4), 2, []),
    ("weight_fifo", 1, 5, weights(5, 5, in_flight={4: 1}), 2, []),
    ("weight_fifo", 1, 5, weights(5, 5, in_flight={3: 1}), 2, [0, 1]),
    ("weight_fifo", 1, 5, weights(3, 5, 5), 2, [1, 2]),
    ("weight_fifo", 0, 5, weights(4, 4, 5, 5), 2, [2, 3]),
    ("weight_fifo", 2, 5, weights(5, 3, 4, 3), 2, [1, 3]),
    ("weight_fifo", 1, 5, weights(4, 4, 4, in_flight={4: 1}), 2, [0, 1]),
    ("in_order", 1, 5, stamps(5, 6, 5), 2, [0, 2]),
    ("in_order", 1, 5, stamps(5, 6, 6), 2, []),
    ("in_order", 1, 5, stamps(4, 4, 6), 2, []),
    ("in_order", 1, 5, stamps(5, 5, 5), 2, [0, 1]),
    ("in_order", 0, 5, stamps(5), 1, [0]),
]


class TestSelect:
    @pytest.mark.parametrize(("name", "window", "version", "view", "need", "selected"), SELECT)
    def test_the_groups_of_the_table_are_selected(
        self, name: str, window: int, version: int, view: View, need: int, selected: list[int]
    ) -> None:
        assert numbers(sampler(name, window).select(view, version, need)) == selected

    @pytest.mark.parametrize(
        ("values", "selected"),
        [
            ((4, 5, 4, 5), [1, 3]),
            ((4, 4, 5), [2, 0]),
            ((4, 4, 4), [0, 1]),
            ((3, 5, 6, 4), [1, 3]),
            ((5, 6), []),
        ],
    )
    def test_windowed_may_take_the_freshest_first(
        self, values: tuple[int, ...], selected: list[int]
    ) -> None:
        tested = sampler("windowed", 1, order="freshest")
        assert numbers(tested.select(weights(*values), 5, 2)) == selected

    def test_a_half_finished_step_waits_for_its_own_groups(self) -> None:
        tested = sampler("in_order")
        restore(tested, 6)
        assert tested.need(6, 4, 0, stamps(6, 6)) == 4
        assert tested.select(stamps(6, 6), 6, 4) == []
        assert numbers(tested.select(stamps(6, 6, 6, 6), 6, 4)) == [0, 1, 2, 3]

    @pytest.mark.parametrize("name", SAMPLER_NAMES)
    def test_selection_looks_and_takes_nothing(self, name: str) -> None:
        view = View([finished(n, stamp=5, start_weight=5) for n in range(3)])
        tested = sampler(name)
        assert tested.select(view, 5, 2) == tested.select(view, 5, 2)
        assert len(view.entries) == 3


EVICT = [
    # name, window, version, view, evicted
    ("windowed", 1, 5, weights(3, 4, 5, 2), [3, 0]),
    ("windowed", 0, 5, weights(4, 5), [0]),
    ("windowed", 2, 5, weights(3, 2), [1]),
    ("ready_first", 0, 5, weights(0, 5), []),
    ("weight_fifo", 1, 5, weights(3, 4, 5, 2), [3, 0]),
    ("weight_fifo", 0, 5, weights(4, 5), [0]),
    ("in_order", 1, 5, stamps(4, 5, 6, 3), [3, 0]),
    ("in_order", 0, 5, stamps(5, 4), [1]),
]


class Looks(View):
    """Counts the groups that are looked at."""

    def __init__(self, ready: Sequence[IndexEntry]) -> None:
        super().__init__(ready)
        self.looks = 0

    def ready(self) -> Collection[IndexEntry]:
        return self._counted(super().ready())

    def ready_with_stamp(self, stamp: int) -> Collection[IndexEntry]:
        return self._counted(super().ready_with_stamp(stamp))

    def ready_with_weight(self, start_weight: int) -> Collection[IndexEntry]:
        return self._counted(super().ready_with_weight(start_weight))

    def _counted(self, entries: Sequence[IndexEntry]) -> Collection[IndexEntry]:
        looks = self

        class Counted(list[IndexEntry]):
            def __iter__(self) -> Iterator[IndexEntry]:
                for entry in super().__iter__():
                    looks.looks += 1
                    yield entry

        return Counted(entries)


@pytest.mark.parametrize("order", ["insertion", "freshest"])
@pytest.mark.parametrize("name", SAMPLER_NAMES)
def test_a_choice_looks_at_no_more_groups_than_it_takes(name: str, order: str) -> None:
    options = {"order": order} if name == "windowed" else {}
    tested = build_sampler(parse_sampler({"name": name, "window": 3, **options}), Barrier())
    view = Looks([finished(n, start_weight=5 - n % 3, stamp=5 + n % 3) for n in range(90)])
    assert not tested.evict(view, 5)
    assert tested.need(5, 4, 0, view) == 4
    assert len(tested.select(view, 5, 4)) == 4
    assert view.looks == 4


class TestEvict:
    @pytest.mark.parametrize(("name", "window", "version", "view", "evicted"), EVICT)
    def test_the_groups_of_the_table_are_evicted(
        self, name: str, window: int, version: int, view: View, evicted: list[int]
    ) -> None:
        assert numbers(sampler(name, window).evict(view, version)) == evicted

    @pytest.mark.parametrize("name", SAMPLER_NAMES)
    @given(
        st.integers(0, 2),
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=8),
        st.integers(0, 6),
    )
    def test_what_can_still_be_selected_is_never_evicted(
        self, name: str, window: int, groups: list[tuple[int, int]], version: int
    ) -> None:
        tested = sampler(name, window)
        view = View([finished(n, start_weight=w, stamp=s) for n, (w, s) in enumerate(groups)])
        evicted = set(tested.evict(view, version))
        for need in range(1, len(groups) + 1):
            assert not evicted & set(tested.select(view, version, need))

    @pytest.mark.parametrize(
        ("name", "start_weight", "stale"),
        [
            ("windowed", 3, True),
            ("windowed", 4, False),
            ("windowed", 5, False),
            ("ready_first", 0, False),
            ("weight_fifo", 0, False),
            ("in_order", 0, False),
        ],
    )
    def test_only_windowed_gives_up_rollouts_that_fall_out_of_the_window(
        self, name: str, start_weight: int, stale: bool
    ) -> None:
        assert sampler(name, 1).stale_in_flight(start_weight, 5) is stale


class TestNeed:
    @pytest.mark.parametrize("name", ["ready_first", "in_order"])
    @pytest.mark.parametrize(
        ("shortfall", "need"), [(0, 4), (1, 3), (4, 0), (5, 0)], ids="short of {}".format
    )
    def test_a_step_needs_its_groups_less_those_that_will_never_arrive(
        self, name: str, shortfall: int, need: int
    ) -> None:
        assert sampler(name).need(5, 4, shortfall, View()) == need
        assert sampler(name).credits_shortfall()

    def test_windowed_needs_a_whole_step_because_later_batches_fill_it(self) -> None:
        assert sampler("windowed").need(5, 4, 2, View()) == 4
        assert not sampler("windowed").credits_shortfall()

    @pytest.mark.parametrize(
        ("view", "need"),
        [
            (weights(in_flight={5: 4}), 4),
            (weights(5, 5, in_flight={5: 6}), 4),
            (weights(4, 4, 5, 5, 5), 2),
            (weights(4, in_flight={4: 1, 5: 9}), 2),
            (weights(in_flight={4: 1}), 1),
            (weights(5, 5, 5), 3),
            (weights(3, in_flight={3: 2, 4: 3}), 3),
        ],
    )
    def test_weight_fifo_needs_no_more_than_is_left_of_the_oldest_weight(
        self, view: View, need: int
    ) -> None:
        tested = sampler("weight_fifo", 1)
        assert tested.need(5, 4, 0, view) == need
        assert tested.need(5, 4, 3, view) == need
        assert not tested.credits_shortfall()

    @pytest.mark.parametrize("window", [0, 1, 2])
    def test_weight_fifo_waits_for_the_next_batch_while_the_gate_is_open(self, window: int) -> None:
        assert sampler("weight_fifo", window).need(0, 4, 0, View()) == 4

    @pytest.mark.parametrize("window", [0, 1, 2])
    def test_weight_fifo_makes_an_empty_step_when_all_that_the_gate_let_in_is_lost(
        self, window: int
    ) -> None:
        tested = sampler("weight_fifo", window)
        for _ in range(window + 1):
            admit(tested, 0)
        assert tested.need(0, 4, 0, View()) == 0
        assert tested.need(1, 4, 0, View()) == 4

    def test_weight_fifo_outlives_a_smaller_window_after_a_restore(self) -> None:
        tested = sampler("weight_fifo", 0)
        restore(tested, 2)
        left = weights(0, 0, 0)
        assert numbers(tested.select(left, 0, tested.need(0, 3, 0, left))) == [0, 1, 2]
        assert numbers(tested.evict(left, 1)) == [0, 1, 2]
        assert tested.need(1, 3, 0, View()) == 0
        assert tested.need(2, 3, 0, View()) == 0
        assert tested.need(3, 3, 0, View()) == 3

    @pytest.mark.parametrize("name", SAMPLER_NAMES)
    def test_a_substitute_has_the_weight_that_it_is_generated_with_or_stands_for(
        self, name: str
    ) -> None:
        expected = 6 if name == "windowed" else 4
        assert sampler(name).substitute_weight(4, version=6) == expected


class TestTrainerVersion:
    def test_it_only_rises(self) -> None:
        version = TrainerVersion(3)
        for value in (3, 2):
            with pytest.raises(InvariantError, match=f"cannot go from 3 to {value}"):
                version.raise_to(value)
        version.raise_to(7)
        assert version.value == 7

    def test_what_is_reached_is_not_waited_for(self) -> None:
        at_once(TrainerVersion(3).wait_for(lambda value: value >= 3))

    async def test_every_waiter_is_woken_and_looks_for_itself(self) -> None:
        version = TrainerVersion()
        waiters = [
            asyncio.create_task(version.wait_for(lambda value, at=at: value >= at))
            for at in (1, 2, 1)
        ]
        await settle()
        version.raise_to(1)
        await settle()
        assert [waiter.done() for waiter in waiters] == [True, False, True]
        version.raise_to(2)
        await waiters[1]

    async def test_a_version_that_rises_twice_in_one_turn_is_seen_once(self) -> None:
        version, seen = TrainerVersion(), list[int]()

        def look(value: int) -> bool:
            seen.append(value)
            return value >= 2

        waiter = asyncio.create_task(version.wait_for(look))
        await turns(2)
        version.raise_to(1)
        version.raise_to(2)
        await waiter
        assert seen == [0, 2]


class TestConfigurations:
    @pytest.mark.parametrize("name", SAMPLER_NAMES)
    def test_the_window_is_one_unless_it_is_given(self, name: str) -> None:
        built = build_sampler(parse_sampler({"name": name}), Barrier())
        assert isinstance(built, GatedSampler)
        assert built.window == 1
        assert is_restorable(parse_sampler({"name": name}))

    def test_the_order_of_windowed_is_that_of_the_commits_unless_it_is_given(self) -> None:
        built = build_sampler(parse_sampler({"name": "windowed"}), Barrier())
        assert isinstance(built, WindowedSampler)
        assert built.order == "insertion"

    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            ({}, "unknown sampler None; choose one of windowed, ready_first, weight_fifo, in"),
            ({"name": "fifo"}, "unknown sampler 'fifo'; choose one of"),
            ({"name": ["in_order"]}, r"unknown sampler \['in_order'\]"),
            ({"name": "in_order", "window": -1}, "'in_order': window = -1: Expected `int` >= 0"),
            ({"name": "in_order", "window": 1.5}, "window = 1.5: Expected `int`, got `float`"),
            ({"name": "in_order", "order": "x"}, "'in_order': order is unknown; .* window$"),
            ({"name": "windowed", "order": "x"}, "order = 'x': choose from 'freshest', 'insert"),
            ({"name": "custom"}, "'custom': {'name': 'custom'}: .* missing required field `path`"),
        ],
    )
    def test_a_bad_table_is_refused_with_the_value_and_what_is_allowed(
        self, raw: dict[str, object], message: str
    ) -> None:
        with pytest.raises(ConfigError, match=message):
            parse_sampler(raw)


# Random histories: what must hold of every run, whatever is lost and whenever.

PROMPTS_PER_STEP = 3

moves = st.lists(
    st.tuples(
        st.sampled_from(["admit", "admit", "finish", "finish", "finish", "lose", "train"]),
        st.integers(0, 20),
    ),
    max_size=80,
)


class Run:
    """The parts that a sampler works with, moved as the pumps move them."""

    def __init__(self, name: str, window: int) -> None:
        self.sampler = sampler(name, window)
        self.barrier = self.sampler._barrier
        self.ledger = Ledger(self.barrier)
        self.shortfall = Shortfall(self.barrier, PROMPTS_PER_STEP)
        self.view = View()
        self.version = 0
        self.admissions: list[Admission] = []
        self.trained: list[str] = []
        self.lost: list[str] = []
        self._prompts = 0
        self._look()

    def _look(self) -> GroupView:
        self.view.in_flight = dict(self.ledger.in_flight_weights)
        return self.view

    def gate_open(self) -> bool:
        return self.sampler.name == "windowed" or self.sampler._gate_open(self.version)

    def admit(self, choice: int) -> None:
        if not self.gate_open():
            with pytest.raises(InvariantError):
                admit(self.sampler, self.version)
            return
        size = choice % PROMPTS_PER_STEP + 1
        batch = [prompt(self._prompts + n) for n in range(size)]
        self._prompts += size
        with entered(self.barrier.mutation("admission")) as slot:
            admission = self.sampler.commit_admission(slot, self.version)
            self.ledger.admit(
                slot,
                self.ledger.reserve(slot, batch),
                dispatch_index=admission.dispatch_index,
                stamp=admission.stamp,
                start_weight=self.version,
            )
            if size < PROMPTS_PER_STEP and self.sampler.credits_shortfall():
                self.shortfall.credit(slot, admission.dispatch_index, PROMPTS_PER_STEP - size)
        self.admissions.append(admission)

    def _in_flight(self, choice: int) -> LedgerRecord | None:
        records = self.ledger.admitted()
        return records[choice % len(records)] if records else None

    def finish(self, choice: int) -> None:
        record = self._in_flight(choice)
        if record is None:
            return
        assert record.start_weight is not None
        number = record.occurrence.position
        with entered(self.barrier.mutation("commit")) as slot:
            self.ledger.discard(slot, record.group_id)
        entry = finished(number, stamp=record.stamp, start_weight=record.start_weight)
        self.view.entries.append(entry)

    def lose(self, choice: int) -> None:
        """Give a group up: one in three has a spare to take its place."""
        record = self._in_flight(choice)
        if record is None:
            return
        assert record.start_weight is not None
        assert record.dispatch_index is not None
        with entered(self.barrier.mutation("drop")) as slot:
            if choice % 3 == 0:
                spare = prompt(self._prompts)
                self._prompts += 1
                weight = self.sampler.substitute_weight(record.start_weight, self.version)
                self.ledger.substitute(slot, record.group_id, spare, weight)
            else:
                self.ledger.discard(slot, record.group_id)
                if self.sampler.credits_shortfall():
                    self.shortfall.credit(slot, max(record.dispatch_index, self.version))
        self.lost.append(record.group_id)

    def train(self, _: int = 0) -> bool:
        """One step, if there is one to train; an empty one if its groups were all lost."""
        evicted = self.sampler.evict(self._look(), self.version)
        self.view.entries = [e for e in self.view.entries if e.group_id not in evicted]
        if self.sampler.name != "windowed":
            assert evicted == []
        view = self._look()
        short = self.shortfall.of(self.version)
        need = self.sampler.need(self.version, PROMPTS_PER_STEP, short, view)
        chosen = self.sampler.select(view, self.version, need) if need else []
        assert 0 <= need <= PROMPTS_PER_STEP
        assert len(chosen) in (0, need)
        if need and not chosen:
            return False
        self._check_choice(chosen)
        self.trained += chosen
        self.view.entries = [e for e in self.view.entries if e.group_id not in chosen]
        with entered(self.barrier.mutation("select")) as slot:
            self.version += 1
            self.shortfall.forget_before(slot, self.version)
        return True

    def _check_choice(self, chosen: list[str]) -> None:
        window = self.sampler.window
        taken = [entry for entry in self.view.entries if entry.group_id in chosen]
        assert len(taken) == len(chosen)
        for entry in taken:
            assert entry.start_weight <= self.version
            if self.sampler.name != "ready_first":
                assert entry.start_weight >= self.version - window
            if self.sampler.name == "in_order":
                assert entry.stamp == self.version
        if self.sampler.name == "weight_fifo" and taken:
            live = {*self.ledger.in_flight_weights, *self.view.ready_weights()}
            oldest = min(weight for weight in live if weight >= self.version - window)
            assert {entry.start_weight for entry in taken} == {oldest}

    def check(self) -> None:
        assert [a.dispatch_index for a in self.admissions] == list(range(len(self.admissions)))
        for admission in self.admissions:
            stamped = self.sampler.name == "in_order"
            assert admission.stamp == (admission.dispatch_index if stamped else None)
        if self.sampler.name != "windowed":
            assert self.sampler.cursor <= self.version + self.sampler.window
        assert max(Counter(self.trained + self.lost).values(), default=1) == 1

    def settle(self) -> None:
        """Finish everything, then train: nothing may be left that waits for ever."""
        while len(self.ledger):
            self.finish(0)
        while self.train():
            self.check()
            if not self.view.entries and self.gate_open():
                break
        assert not self.view.entries or self.sampler.name == "windowed"
        assert self.gate_open()


@pytest.mark.parametrize("name", SAMPLER_NAMES)
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2), moves)
def test_no_history_of_losses_breaks_a_promise_or_stops_the_run(
    name: str, window: int, history: list[tuple[str, int]]
) -> None:
    run = Run(name, window)
    for move, choice in history:
        getattr(run, move)(choice)
        run.check()
    run.settle()
