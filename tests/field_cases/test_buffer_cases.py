"""Public failures of the replay buffer: what is evicted, and while what goes on."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

import pytest

from cutlock.barrier import Barrier
from cutlock.errors import InvariantError
from cutlock.records import IndexEntry
from cutlock.samplers import build_sampler, parse_sampler
from tests.support.bundles import finished, prompt
from tests.support.parts import PUT_STEPS, Parts, Script

SAMPLERS = ("windowed", "ready_first", "weight_fifo", "in_order")
EVICTING = ("windowed", "weight_fifo", "in_order")


def sampler_of(name: str, window: int, barrier: Barrier | None = None) -> Any:
    return build_sampler(parse_sampler({"name": name, "window": window}), barrier or Barrier())


class TestEvictedWhileItIsCommitted:
    """FB-53: a group of weight 1 is put, the window is 1, and the trainer stands at version 3."""

    @pytest.mark.parametrize("name", EVICTING)
    @pytest.mark.parametrize("at", PUT_STEPS, ids=str)
    async def test_fb_53_a_group_is_not_evicted_before_its_commit_has_ended(
        self, name: str, at: Any
    ) -> None:
        script = Script(hold=[at])
        parts = Parts(script=script)
        sampler = sampler_of(name, 1, parts.barrier)
        (record,) = await parts.admitted(0, weight=1, stamp=1)
        parts.buffer.reserve(record)
        commit = asyncio.create_task(parts.commit(0, end_weight=3))
        await script.reached.wait()
        key = record.group_id
        assert sampler.evict(parts.buffer, 3) == []
        async with parts.barrier.mutation("evict") as slot:
            with pytest.raises(InvariantError, match="only finished groups leave it"):
                await parts.buffer.evict(slot, 3, [key])
        script.go()
        entry = await commit
        assert parts.saved() == {*entry.row_keys} == parts.owned()
        # Finished, it is what the next eviction takes, with its rows.
        assert sampler.evict(parts.buffer, 3) == [key]
        async with parts.barrier.mutation("evict") as slot:
            await parts.buffer.evict(slot, 3, [key])
        assert parts.saved() == parts.owned() == set()
        assert len(parts.buffer) == len(parts.ledger) == 0

    @pytest.mark.parametrize("at", PUT_STEPS, ids=str)
    @pytest.mark.parametrize("gone", ["the place", "the ledger record"])
    async def test_fb_53_a_commit_that_finds_its_group_gone_clears_its_rows(
        self, at: Any, gone: str
    ) -> None:
        parts, script = Parts(), Script(hold=[at])
        await parts.finished(1)
        parts.store.steps = script
        (record,) = await parts.admitted(0, weight=1)
        parts.buffer.reserve(record)
        commit = asyncio.create_task(parts.commit(0, end_weight=3))
        await script.reached.wait()
        if gone == "the place":
            parts.buffer.release(record.group_id)
        else:
            async with parts.barrier.mutation("drop") as slot:
                parts.ledger.discard(slot, record.group_id)
        script.go()
        with pytest.raises(InvariantError, match="given up while its rows were put"):
            await commit
        assert [entry.group_id for entry in parts.buffer.ready()] == [prompt(1).key]
        assert parts.saved() == parts.owned()

    @pytest.mark.parametrize("name", SAMPLERS)
    def test_fb_53_what_may_be_evicted_is_never_selected_at_this_version_or_a_later_one(
        self, name: str
    ) -> None:
        evicted = 0
        for window, stamp, weight, version in product(range(3), range(5), range(5), range(5)):
            if not weight <= stamp <= weight + window:
                continue  # the gate lets no such group in
            sampler, view = sampler_of(name, window), View(stamp, weight)
            if name == "in_order":
                assert sampler.evict(view, version) == ([view.key] if stamp < version else [])
            if sampler.evict(view, version):
                evicted += 1
                for later in range(version, 8):
                    assert sampler.select(view, later, 1) == [], (window, stamp, weight, later)
        assert (evicted > 0) == (name in EVICTING)

    @pytest.mark.parametrize("name", SAMPLERS)
    def test_fb_53_what_is_selected_at_a_later_version_is_not_evicted_before(
        self, name: str
    ) -> None:
        selected = 0
        for window, stamp, weight, later in product(range(3), range(5), range(5), range(8)):
            sampler, view = sampler_of(name, window), View(stamp, weight)
            if weight <= stamp <= weight + window and sampler.select(view, later, 1):
                selected += 1
                for version in range(later + 1):
                    assert sampler.evict(view, version) == [], (window, stamp, weight, version)
        assert selected > 0


class View:
    """One finished group, as samplers see it."""

    def __init__(self, stamp: int, weight: int) -> None:
        self._entry = finished(
            0, dispatch_index=stamp, stamp=stamp, start_weight=weight, end_weight=weight
        )
        self.key = self._entry.group_id

    def ready(self) -> list[IndexEntry]:
        return [self._entry]

    def ready_with_stamp(self, stamp: int) -> list[IndexEntry]:
        return [self._entry] if stamp == self._entry.stamp else []

    def ready_with_weight(self, start_weight: int) -> list[IndexEntry]:
        return [self._entry] if start_weight == self._entry.start_weight else []

    def ready_stamps(self) -> list[int]:
        return [] if self._entry.stamp is None else [self._entry.stamp]

    def ready_weights(self) -> list[int]:
        return [self._entry.start_weight]

    def in_flight_weights(self) -> dict[int, int]:
        return {}
