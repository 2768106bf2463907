"""Rows of an open snapshot are left as they are until it is written."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from cutlock.errors import InvariantError, MisuseError, PlaneError
from cutlock.plane.base import DelegatingPlane, PlaneStamp, read_stamp, take_inventory
from cutlock.plane.memory import MemoryPlane, MemoryStore
from cutlock.plane.pinning import PinningPlane

T = TypeVar("T")

ROW = torch.zeros(1)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(units=2)


@pytest.fixture
def plane(store: MemoryStore) -> PinningPlane:
    return PinningPlane(MemoryPlane(store), derived=["advantage"])


async def put(plane: PinningPlane, *keys: str, field: str = "response") -> None:
    await plane.put(keys, {field: [ROW] * len(keys)})


async def test_a_clear_of_pinned_rows_waits_for_the_flush(plane: PinningPlane) -> None:
    await put(plane, "a", "b")
    plane.pin(["a"])
    await plane.clear(["a", "b"])
    assert await plane.list_keys() == ["a"]
    assert list(plane.deferred) == ["a"]
    assert await plane.flush() == []
    plane.unpin()
    assert await plane.flush() == ["a"]
    assert await plane.list_keys() == []
    assert not plane.deferred


async def test_rows_that_are_not_pinned_are_cleared_at_once(plane: PinningPlane) -> None:
    await put(plane, "a", "b")
    plane.pin(["a"])
    await plane.clear(["b"])
    assert await plane.list_keys() == ["a"]


async def test_a_new_field_of_a_pinned_row_does_not_wait(plane: PinningPlane) -> None:
    await put(plane, "a")
    plane.pin(["a"])
    await put(plane, "a", field="advantage")
    assert await plane.get(["a"], ["advantage"]) == {"advantage": [ROW]}


async def test_a_derived_field_of_a_pinned_row_may_be_computed_again(plane: PinningPlane) -> None:
    await put(plane, "a", field="advantage")
    plane.pin(["a"])
    await plane.put(["a"], {"advantage": [ROW + 1]})
    assert await plane.get(["a"], ["advantage"]) == {"advantage": [ROW + 1]}


async def test_another_field_of_a_pinned_row_is_never_written(plane: PinningPlane) -> None:
    await put(plane, "a")
    plane.pin(["a"])
    with pytest.raises(InvariantError, match=r"\['advantage', 'response'\] of the rows 'a'"):
        await plane.put(["b", "a"], {"advantage": [ROW] * 2, "response": [ROW + 1] * 2})
    assert await plane.get(["a"], ["response"]) == {"response": [ROW]}
    assert await plane.list_keys() == ["a"]
    plane.unpin()
    await plane.put(["a"], {"response": [ROW + 1]})


async def test_a_second_snapshot_is_refused_while_rows_are_pinned(plane: PinningPlane) -> None:
    plane.pin(["a"])
    with pytest.raises(MisuseError, match="another snapshot"):
        plane.pin(["b"])


async def test_what_cannot_be_cleared_stays_deferred(
    store: MemoryStore, plane: PinningPlane
) -> None:
    await put(plane, "a")
    plane.pin(["a"])
    await plane.clear(["a"])
    plane.unpin()
    store.fail_unit(0)
    with pytest.raises(PlaneError, match="unit 0"):
        await plane.flush()
    assert list(plane.deferred) == ["a"]


async def test_an_inventory_compares_the_rows_of_the_store_with_the_owned_ones(
    plane: PinningPlane,
) -> None:
    await put(plane, "e", "b", "d", "a")
    found = await take_inventory(plane, ["f", "a", "c", "b"])
    assert sorted(found.listed) == ["a", "b", "d", "e"]
    assert (found.missing, found.unowned) == (["c", "f"], ["d", "e"])


class Counting(DelegatingPlane):
    """Has every call made by a way of its own."""

    def __init__(self, plane: MemoryPlane) -> None:
        super().__init__(plane)
        self.passed: list[str] = []

    async def _pass_on(self, call: Coroutine[Any, Any, T]) -> T:
        self.passed.append(call.__name__)
        return await call


async def test_a_delegating_plane_passes_every_call_on_in_the_way_of_its_subclass(
    store: MemoryStore, tmp_path: Path
) -> None:
    plane = Counting(MemoryPlane(store))
    assert plane.info == store.info
    assert plane.splits_snapshot
    await plane.put(["a"], {"response": [ROW]})
    assert list(await plane.get(["a"], ["response"])) == ["response"]
    assert await plane.list_keys() == ["a"]
    await plane.snapshot_index(tmp_path)
    stamp = PlaneStamp("0" * 64, 0, 0, "0" * 64, 0, "0" * 64, 0, plane.info)
    await plane.snapshot_rows(tmp_path, stamp)
    assert read_stamp(tmp_path) == stamp
    await plane.clear(["a"])
    assert await MemoryPlane(store).list_keys() == []
    await plane.close()
    with pytest.raises(PlaneError, match="closed client"):
        await plane.list_keys()
    assert plane.passed == [
        "put",
        "get",
        "list_keys",
        "snapshot_index",
        "snapshot_rows",
        "clear",
        "close",
        "list_keys",
    ]
