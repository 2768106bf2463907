"""Rows of an open snapshot are left as they are until it is written."""

from __future__ import annotations

import pytest
import torch

from cutlock.errors import InvariantError, MisuseError, PlaneError
from cutlock.plane.memory import MemoryPlane, MemoryStore
from cutlock.plane.pinning import PinningPlane

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
