"""The step model of the in-process plane: what stands between any two steps of its calls."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from cutlock.errors import PlaneError, PlaneTouchedError, RowsMissingError
from cutlock.plane.base import STAMP_FILE
from cutlock.plane.memory import INDEX_FILE, MemoryBootstrap, MemoryPlane, MemoryStore, PlaneStep
from tests.support.plane_steps import StepByStep
from tests.support.planes import stamp_for, take_snapshot

A, B, C, D = "a", "b", "c", "d"


def numbers(*values: int) -> dict[str, list[torch.Tensor]]:
    return {"n": [torch.tensor([value]) for value in values]}


@pytest.fixture
def steps() -> StepByStep:
    return StepByStep()


@pytest.fixture
def store(steps: StepByStep) -> MemoryStore:
    return MemoryStore(units=2, steps=steps)


@pytest.fixture
def plane(store: MemoryStore) -> MemoryPlane:
    return MemoryPlane(store)


async def read(plane: MemoryPlane, *keys: str) -> list[int]:
    rows = await plane.get(keys, ["n"])
    return [int(row.item()) for row in rows["n"]]


async def restored(directory: Path) -> tuple[MemoryStore, MemoryPlane]:
    bootstrap = MemoryBootstrap()
    await bootstrap.load(directory)
    return bootstrap.store, MemoryPlane(bootstrap.store)


class TestSteps:
    async def test_a_put_is_reserve_store_in_each_unit_notify_tag(
        self, plane: MemoryPlane, steps: StepByStep
    ) -> None:
        await plane.put([A, B, C], numbers(1, 2, 3))
        assert steps.history == [
            ("put", "reserve", None),
            ("put", "store", 0),
            ("put", "store", 1),
            ("put", "notify", None),
            ("put", "tag", None),
        ]

    async def test_a_get_is_find_then_read_in_each_unit(
        self, plane: MemoryPlane, steps: StepByStep
    ) -> None:
        await plane.put([A, B], numbers(1, 2))
        steps.history.clear()
        await plane.get([B, A], ["n"])
        assert steps.history == [("get", "find", None), ("get", "read", 0), ("get", "read", 1)]

    async def test_a_clear_is_mark_delete_in_each_unit_free(
        self, plane: MemoryPlane, steps: StepByStep
    ) -> None:
        await plane.put([A, B], numbers(1, 2))
        steps.history.clear()
        await plane.clear([A, B])
        assert steps.history == [
            ("clear", "mark", None),
            ("clear", "delete", 0),
            ("clear", "delete", 1),
            ("clear", "free", None),
        ]

    async def test_a_snapshot_is_index_each_unit_stamp(
        self, plane: MemoryPlane, steps: StepByStep, tmp_path: Path
    ) -> None:
        await take_snapshot(plane, tmp_path / "data_plane")
        assert steps.history == [
            ("snapshot", "index", None),
            ("snapshot", "unit", 0),
            ("snapshot", "unit", 1),
            ("snapshot", "stamp", None),
        ]

    async def test_a_load_is_check_each_unit_index_recheck(
        self, plane: MemoryPlane, tmp_path: Path
    ) -> None:
        await take_snapshot(plane, tmp_path / "data_plane")
        steps = StepByStep()
        await MemoryBootstrap(MemoryStore(steps=steps)).load(tmp_path / "data_plane")
        assert steps.history == [
            ("load", "check", None),
            ("load", "unit", 0),
            ("load", "unit", 1),
            ("load", "index", None),
            ("load", "recheck", None),
        ]

    async def test_a_call_touches_only_the_units_of_its_rows(
        self, plane: MemoryPlane, steps: StepByStep
    ) -> None:
        await plane.put([A], numbers(1))
        assert ("put", "store", 1) not in steps.history

    async def test_a_step_names_its_keys(self) -> None:
        seen: list[PlaneStep] = []

        class Listener:
            async def reach(self, step: PlaneStep, /) -> None:
                seen.append(step)

        await MemoryPlane(MemoryStore(steps=Listener())).put([A, B, C], numbers(1, 2, 3))
        assert [step.keys for step in seen[:3]] == [(A, B, C), (A, C), (B,)]

    async def test_without_a_listener_no_call_suspends(self) -> None:
        put = MemoryPlane(MemoryStore()).put([A], numbers(1))
        with pytest.raises(StopIteration):
            put.send(None)


class TestIndexes:
    async def test_the_row_with_index_g_lives_in_unit_g_mod_n(
        self, plane: MemoryPlane, store: MemoryStore
    ) -> None:
        await plane.put([A, B, C], numbers(1, 2, 3))
        assert [sorted(unit) for unit in store.units] == [[0, 2], [1]]

    async def test_freed_indexes_are_given_again_in_the_order_in_which_they_were_freed(
        self, plane: MemoryPlane, store: MemoryStore
    ) -> None:
        await plane.put([A, B, C], numbers(1, 2, 3))
        await plane.clear([C])
        await plane.clear([A])
        await plane.put(["x", "y", "z"], numbers(4, 5, 6))
        assert [store.indexes[key] for key in ("x", "y", "z")] == [2, 0, 3]

    async def test_the_counter_does_not_fall_when_all_rows_are_cleared(
        self, plane: MemoryPlane, store: MemoryStore
    ) -> None:
        await plane.put([A, B], numbers(1, 2))
        await plane.clear([A, B])
        assert store.counter == 2


class TestPutStepByStep:
    @pytest.mark.parametrize("at", [("store", 0), ("store", 1), ("notify", None)])
    async def test_rows_are_listed_and_none_can_be_read_before_the_notice(
        self, plane: MemoryPlane, steps: StepByStep, at: tuple[str, int | None]
    ) -> None:
        put = steps.lead(plane.put([A, B], numbers(1, 2)))
        await put.to(*at)
        assert await plane.list_keys() == [A, B]
        for key in (A, B):
            with pytest.raises(RowsMissingError, match=key):
                await read(plane, key)
        await put.end()

    async def test_the_notice_makes_all_rows_readable_at_once(
        self, plane: MemoryPlane, steps: StepByStep
    ) -> None:
        put = steps.lead(plane.put([A, B], numbers(1, 2)))
        await put.to("tag")
        assert await read(plane, A, B) == [1, 2]
        await put.end()

    async def test_a_put_that_was_cancelled_between_two_steps_stays_there(
        self, plane: MemoryPlane, steps: StepByStep, store: MemoryStore
    ) -> None:
        put = steps.lead(plane.put([A, B], numbers(1, 2)))
        await put.to("store", 1)
        put.task.cancel()
        await asyncio.wait([put.task])
        assert [sorted(unit) for unit in store.units] == [[0], []]
        assert await plane.list_keys() == [A, B]

    async def test_a_put_that_comes_late_hits_the_row_that_has_its_index_by_then(
        self, plane: MemoryPlane, steps: StepByStep
    ) -> None:
        late = steps.lead(plane.put([A], numbers(1)))
        await late.to("store", 0)
        await plane.clear([A])
        await plane.put([B], numbers(2))
        await late.end()
        assert await read(plane, B) == [1]


class TestClearStepByStep:
    @pytest.mark.parametrize("at", [("delete", 0), ("delete", 1), ("free", None)])
    async def test_rows_are_unreadable_and_listed_until_their_indexes_are_free(
        self, plane: MemoryPlane, steps: StepByStep, at: tuple[str, int | None]
    ) -> None:
        await plane.put([A, B], numbers(1, 2))
        clear = steps.lead(plane.clear([A, B]))
        await clear.to(*at)
        with pytest.raises(RowsMissingError):
            await read(plane, B)
        assert await plane.list_keys() == [A, B]
        await clear.end()
        assert await plane.list_keys() == []

    async def test_no_index_is_given_again_before_it_is_free(
        self, plane: MemoryPlane, steps: StepByStep, store: MemoryStore
    ) -> None:
        await plane.put([A], numbers(1))
        clear = steps.lead(plane.clear([A]))
        await clear.to("free")
        await plane.put([B], numbers(2))
        assert store.indexes[B] == 1
        await clear.end()

    async def test_a_get_that_found_a_row_before_its_clear_misses_the_data(
        self, plane: MemoryPlane, steps: StepByStep
    ) -> None:
        await plane.put([A], numbers(1))
        get = steps.lead(plane.get([A], ["n"]))
        await get.to("read", 0)
        await plane.clear([A])
        with pytest.raises(RowsMissingError, match="unit 0 has no data for 'a'"):
            await get.end()


class TestSnapshotStepByStep:
    """What the rules of the narrow cut are for: each of these faults is silent on disk."""

    async def test_a_put_is_torn_across_units_but_cannot_be_read(
        self, plane: MemoryPlane, steps: StepByStep, tmp_path: Path
    ) -> None:
        put = steps.lead(plane.put([A, B], numbers(1, 2)))
        await put.to("store", 1)
        await take_snapshot(plane, tmp_path / "data_plane")
        await put.end()
        store, plane = await restored(tmp_path / "data_plane")
        assert [sorted(unit) for unit in store.units] == [[0], []]
        assert await plane.list_keys() == [A, B]
        for key in (A, B):
            with pytest.raises(RowsMissingError):
                await read(plane, key)

    async def test_a_put_between_the_index_and_the_units_is_not_loaded(
        self, plane: MemoryPlane, steps: StepByStep, tmp_path: Path
    ) -> None:
        await plane.put([A], numbers(1))
        await plane.snapshot_index(tmp_path)
        await plane.put([B, C], numbers(2, 3))
        await plane.snapshot_rows(tmp_path, stamp_for(plane.info))
        store, plane = await restored(tmp_path)
        assert await plane.list_keys() == [A]
        assert [sorted(unit) for unit in store.units] == [[0], []]
        await plane.put([D], numbers(4))
        assert await read(plane, A, D) == [1, 4]

    async def test_a_load_brings_back_the_rows_that_it_is_told_to(
        self, plane: MemoryPlane, tmp_path: Path
    ) -> None:
        await plane.put([A, B], numbers(1, 2))
        await take_snapshot(plane, tmp_path / "data_plane")
        bootstrap = MemoryBootstrap()
        await bootstrap.load(tmp_path / "data_plane", keep=[B, "unknown"])
        plane = MemoryPlane(bootstrap.store)
        assert await plane.list_keys() == [B]
        assert [sorted(unit) for unit in bootstrap.store.units] == [[], [1]]
        await plane.put([C], numbers(3))
        assert await read(plane, B, C) == [2, 3]

    async def test_a_pinned_row_that_is_cleared_meanwhile_is_readable_by_the_index_and_has_no_data(
        self, plane: MemoryPlane, tmp_path: Path
    ) -> None:
        await plane.put([A, B], numbers(1, 2))
        await plane.snapshot_index(tmp_path)
        await plane.clear([A])
        await plane.snapshot_rows(tmp_path, stamp_for(plane.info))
        _, plane = await restored(tmp_path)
        with pytest.raises(RowsMissingError, match="listed as produced"):
            await read(plane, A)

    async def test_a_pinned_row_whose_index_is_given_again_comes_back_as_the_other_row(
        self, plane: MemoryPlane, tmp_path: Path
    ) -> None:
        await plane.put([A, B], numbers(1, 2))
        await plane.snapshot_index(tmp_path)
        await plane.clear([A])
        await plane.put([C], numbers(3))
        await plane.snapshot_rows(tmp_path, stamp_for(plane.info))
        _, plane = await restored(tmp_path)
        assert await plane.list_keys() == [A, B]
        assert await read(plane, A, B) == [3, 2]

    async def test_one_unit_may_have_the_old_row_and_the_next_the_other_row(
        self, plane: MemoryPlane, steps: StepByStep, tmp_path: Path
    ) -> None:
        await plane.put([A, B], numbers(1, 2))
        await plane.snapshot_index(tmp_path)
        snapshot = steps.lead(plane.snapshot_rows(tmp_path, stamp_for(plane.info)))
        await snapshot.to("unit", 1)
        await plane.clear([A, B])
        await plane.put([C, D], numbers(3, 4))
        await snapshot.end()
        _, plane = await restored(tmp_path)
        assert await read(plane, A, B) == [1, 4]

    async def test_a_pinned_row_that_is_overwritten_meanwhile_is_newer_than_the_index(
        self, plane: MemoryPlane, tmp_path: Path
    ) -> None:
        await plane.put([A], numbers(1))
        await plane.snapshot_index(tmp_path)
        await plane.put([A], numbers(7))
        await plane.snapshot_rows(tmp_path, stamp_for(plane.info))
        _, plane = await restored(tmp_path)
        assert await read(plane, A) == [7]

    async def test_a_field_that_is_added_meanwhile_cannot_be_read(
        self, plane: MemoryPlane, tmp_path: Path
    ) -> None:
        await plane.put([A], numbers(1))
        await plane.snapshot_index(tmp_path)
        await plane.put([A], {"advantage": [torch.ones(1)]})
        await plane.snapshot_rows(tmp_path, stamp_for(plane.info))
        _, plane = await restored(tmp_path)
        assert await read(plane, A) == [1]
        with pytest.raises(RowsMissingError, match="'advantage'"):
            await plane.get([A], ["advantage"])

    async def test_an_index_taken_after_the_units_lists_rows_that_have_no_data(
        self, plane: MemoryPlane, steps: StepByStep, tmp_path: Path
    ) -> None:
        await plane.snapshot_index(tmp_path)
        snapshot = steps.lead(plane.snapshot_rows(tmp_path, stamp_for(plane.info)))
        await snapshot.to("stamp")
        await plane.put([A], numbers(1))
        await plane.snapshot_index(tmp_path)
        await snapshot.end()
        _, plane = await restored(tmp_path)
        with pytest.raises(RowsMissingError, match="listed as produced"):
            await read(plane, A)

    async def test_a_clear_of_another_row_does_no_harm(
        self, plane: MemoryPlane, tmp_path: Path
    ) -> None:
        await plane.put([A], numbers(1))
        await plane.snapshot_index(tmp_path)
        await plane.put([B, C], numbers(2, 3))
        await plane.clear([B])
        await plane.put([D], numbers(4))
        await plane.snapshot_rows(tmp_path, stamp_for(plane.info))
        _, plane = await restored(tmp_path)
        assert await read(plane, A) == [1]

    async def test_a_snapshot_is_made_of_plain_data_only(
        self, plane: MemoryPlane, tmp_path: Path
    ) -> None:
        await take_snapshot(plane, tmp_path / "data_plane")
        assert {path.name for path in (tmp_path / "data_plane").iterdir()} == {
            INDEX_FILE,
            "unit_0.safetensors",
            "unit_1.safetensors",
            STAMP_FILE,
        }


class TestLoadStepByStep:
    @pytest.mark.parametrize("at", [("unit", 0), ("unit", 1), ("index", None), ("recheck", None)])
    async def test_a_client_that_connects_meanwhile_is_found_out(
        self, plane: MemoryPlane, tmp_path: Path, at: tuple[str, int | None]
    ) -> None:
        await plane.put([A, B], numbers(1, 2))
        await take_snapshot(plane, tmp_path / "data_plane")
        steps = StepByStep()
        bootstrap = MemoryBootstrap(MemoryStore(steps=steps))
        load = steps.lead(bootstrap.load(tmp_path / "data_plane"))
        await load.to(*at)
        MemoryPlane(bootstrap.store)
        with pytest.raises(PlaneTouchedError, match="1 other clients"):
            await load.end()

    async def test_a_store_that_was_used_meanwhile_is_unusable(
        self, plane: MemoryPlane, tmp_path: Path
    ) -> None:
        await take_snapshot(plane, tmp_path / "data_plane")
        steps = StepByStep()
        bootstrap = MemoryBootstrap(MemoryStore(steps=steps))
        load = steps.lead(bootstrap.load(tmp_path / "data_plane"))
        await load.to("recheck")
        intruder = MemoryPlane(bootstrap.store)
        await intruder.put([C], numbers(3))
        with pytest.raises(PlaneTouchedError, match="index counter at 1 instead of 0"):
            await load.end()
        with pytest.raises(PlaneError, match="was used while it was loaded"):
            await intruder.list_keys()

    async def test_a_load_that_was_cancelled_leaves_the_store_unusable(
        self, plane: MemoryPlane, tmp_path: Path
    ) -> None:
        await take_snapshot(plane, tmp_path / "data_plane")
        steps = StepByStep()
        bootstrap = MemoryBootstrap(MemoryStore(steps=steps))
        load = steps.lead(bootstrap.load(tmp_path / "data_plane"))
        await load.to("unit", 1)
        load.task.cancel()
        await asyncio.wait([load.task])
        with pytest.raises(PlaneError, match="half loaded"):
            await bootstrap.require_untouched()

    @pytest.mark.parametrize("file", [INDEX_FILE, "unit_0.safetensors"])
    async def test_a_broken_file_is_refused_by_name_of_the_snapshot(
        self, plane: MemoryPlane, tmp_path: Path, file: str
    ) -> None:
        await plane.put([A, B], numbers(1, 2))
        await take_snapshot(plane, tmp_path / "data_plane")
        content = (tmp_path / "data_plane" / file).read_bytes()
        (tmp_path / "data_plane" / file).write_bytes(content[:-1])
        with pytest.raises(PlaneError, match=r"cannot load .*data_plane"):
            await MemoryBootstrap().load(tmp_path / "data_plane")

    async def test_a_missing_file_is_refused(self, plane: MemoryPlane, tmp_path: Path) -> None:
        await take_snapshot(plane, tmp_path / "data_plane")
        (tmp_path / "data_plane" / "unit_1.safetensors").unlink()
        with pytest.raises(PlaneError, match="unit_1"):
            await MemoryBootstrap().load(tmp_path / "data_plane")


class TestDeadUnit:
    @pytest.fixture
    async def half_dead(self, plane: MemoryPlane, store: MemoryStore) -> MemoryPlane:
        await plane.put([A, B], numbers(1, 2))
        store.fail_unit(1)
        return plane

    async def test_a_get_names_it(self, half_dead: MemoryPlane) -> None:
        with pytest.raises(PlaneError, match="get: storage unit 1"):
            await read(half_dead, A, B)

    async def test_a_get_that_does_not_need_it_works(self, half_dead: MemoryPlane) -> None:
        assert await read(half_dead, A) == [1]

    async def test_a_put_names_it_and_makes_no_row_readable(
        self, half_dead: MemoryPlane, store: MemoryStore
    ) -> None:
        with pytest.raises(PlaneError, match="put: storage unit 1"):
            await half_dead.put([C, D], numbers(3, 4))
        assert store.units[0].keys() == {0, 2}
        with pytest.raises(RowsMissingError):
            await read(half_dead, C)

    async def test_a_clear_names_it_and_frees_no_index(
        self, half_dead: MemoryPlane, store: MemoryStore
    ) -> None:
        with pytest.raises(PlaneError, match="clear: storage unit 1"):
            await half_dead.clear([A, B])
        assert await half_dead.list_keys() == [A, B]
        assert not store.free

    async def test_a_snapshot_names_it_and_gets_no_stamp(
        self, half_dead: MemoryPlane, tmp_path: Path
    ) -> None:
        await half_dead.snapshot_index(tmp_path)
        with pytest.raises(PlaneError, match="snapshot: storage unit 1"):
            await half_dead.snapshot_rows(tmp_path, stamp_for(half_dead.info))
        assert not (tmp_path / STAMP_FILE).exists()

    async def test_a_load_names_it(self, plane: MemoryPlane, tmp_path: Path) -> None:
        await take_snapshot(plane, tmp_path / "data_plane")
        store = MemoryStore()
        store.fail_unit(0)
        with pytest.raises(PlaneError, match="load: storage unit 0"):
            await MemoryBootstrap(store).load(tmp_path / "data_plane")


class TestStore:
    async def test_a_stopped_store_answers_nothing(self) -> None:
        bootstrap = MemoryBootstrap()
        plane = MemoryPlane(bootstrap.store)
        await bootstrap.stop()
        with pytest.raises(PlaneError, match="was stopped"):
            await plane.list_keys()

    def test_a_store_of_no_units_is_refused(self) -> None:
        with pytest.raises(PlaneError, match="0 units"):
            MemoryStore(0)

    async def test_a_time_out_of_the_listener_s_own_is_not_the_plane_s(self) -> None:
        class Listener:
            async def reach(self, step: PlaneStep, /) -> None:
                raise TimeoutError("of the listener")

        with pytest.raises(TimeoutError, match="of the listener"):
            await MemoryPlane(MemoryStore(steps=Listener()), limit_s=60).list_keys()

    async def test_rows_keep_neither_gradients_nor_strides(self, plane: MemoryPlane) -> None:
        turned = torch.rand(3, 2, requires_grad=True).t()
        await plane.put([A], {"weights": [turned]})
        row = (await plane.get([A], ["weights"]))["weights"][0]
        assert not row.requires_grad
        assert row.is_contiguous()
        assert torch.equal(row, turned.detach())
