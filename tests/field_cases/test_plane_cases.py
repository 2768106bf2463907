"""Public failures in which rows are stored and the record of them is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cutlock.alphabet import Action
from cutlock.errors import PlaneError, SaveError
from cutlock.plane.memory import MemoryPlane, MemoryStore
from tests.support.bundles import prompt
from tests.support.checks import groups_of
from tests.support.parts import PUT_STEPS, Parts, Place, Script, rows
from tests.support.rig import Rig
from tests.support.scripted import PlaneHolds


def held(store: MemoryStore) -> list[int]:
    """The indexes that the units hold a row for, once for each."""
    return sorted(index for unit in store.units for index in unit)


class TestAcknowledgementLost:
    """FB-66: the row is stored, the notice of it is not taken; the caller puts it again."""

    @pytest.mark.parametrize("phase", ["store", "notify", "tag"])
    async def test_fb_66_a_put_that_is_repeated_stores_a_row_once(self, phase: str) -> None:
        holds = PlaneHolds()
        store = MemoryStore(steps=holds)
        plane = MemoryPlane(store)
        holds.fail("put", phase)
        with pytest.raises(PlaneError):
            await plane.put(["r"], {"x": [torch.tensor([1.0])]})
        # What the caller can find out: the key is listed, so the row has to be seen to.
        assert await plane.list_keys() == ["r"]
        await plane.put(["r"], {"x": [torch.tensor([2.0])]})
        assert await plane.list_keys() == ["r"]
        assert held(store) == [store.indexes["r"]]
        assert (await plane.get(["r"], ["x"]))["x"][0].tolist() == [2.0]

    @pytest.mark.parametrize("phase", ["reserve", "store", "notify", "tag"])
    async def test_fb_66_a_row_whose_put_has_failed_can_be_cleared_and_leaves_nothing(
        self, phase: str
    ) -> None:
        holds = PlaneHolds()
        store = MemoryStore(steps=holds)
        plane = MemoryPlane(store)
        holds.fail("put", phase)
        with pytest.raises(PlaneError):
            await plane.put(["r"], {"x": [torch.tensor([1.0])]})
        await plane.clear(["r"])
        assert (await plane.list_keys(), held(store), store.produced) == ([], [], {})

    @pytest.mark.parametrize("phase", ["reserve", "store", "notify", "tag"])
    async def test_fb_66_a_group_is_once_in_payload_and_index_after_its_put_was_repeated(
        self, memory_rig: Rig, phase: str
    ) -> None:
        rig = memory_rig

        async def fail_one(_: object) -> None:
            rig.plane_holds.fail("put", phase)

        run = await rig.run_to(0, fail_one)
        group, other = rig.batch(0)
        run.generator.finish(group, other)
        for name in (group, other):
            await run.logged(Action.COMMIT_GROUP, group=name)
        assert len(groups_of(run.log.records, Action.FAIL_GROUP)) == 1
        store = rig.harness.bootstrap.store  # type: ignore[attr-defined]
        run.cut.release()
        bundle = await run.published(0)
        index = rig.check_bundle(bundle).index
        assert sorted(entry.group_id for entry in index) == sorted([group, other])
        keys = [key for entry in index for key in entry.row_keys]
        assert sorted(keys) == sorted(store.indexes)
        assert held(store) == sorted(store.indexes.values())
        await rig.check_resume(run, bundle)


class TestPayloadWithoutRecord:
    """FB-86: ten rows; the first five are written, and recording that fails."""

    async def committed_at_the_second_try(self, at: Place) -> Parts:
        """Five groups of two rows; the commit of each fails once, and is tried again."""
        parts = Parts()
        await parts.admitted(*range(5))
        for number in range(5):
            (record,) = [r for r in parts.ledger.admitted() if r.group_id == prompt(number).key]
            for fails in (True, False):
                script = Script(fail={at: PlaneError("a bad day")} if fails else {})
                parts.store.steps = parts.buffer._stops = script
                attempt = parts.buffer.reserve(record)
                assert attempt == (not fails)
                if fails:
                    with pytest.raises(PlaneError, match="a bad day"):
                        await parts.commit(number)
                    assert parts.saved() == parts.owned()
                    assert record.group_id in parts.ledger
                else:
                    await parts.commit(number)
        return parts

    @pytest.mark.parametrize("at", [*PUT_STEPS, Action.PUT_ROWS, Action.COMMIT_GROUP], ids=str)
    async def test_fb_86_rows_are_stored_once_when_what_records_them_fails_once(
        self, at: Place
    ) -> None:
        parts = await self.committed_at_the_second_try(at)
        assert len(parts.saved()) == 10
        assert parts.saved() == parts.owned()
        assert len(held(parts.store)) == 10
        assert len(parts.ledger) == 0
        keys = sorted(parts.saved())
        found = (await parts.plane.get(keys, ["n"]))["n"]
        numbers = sorted(int(row) for row in found)
        assert numbers == sorted(int(row) for n in range(5) for row in rows(n)["n"])

    async def test_fb_86_a_save_whose_record_fails_leaves_neither_rows_nor_record_behind(
        self, memory_rig: Rig
    ) -> None:
        """Of a bundle the rows are written first, and what makes them count comes last."""
        rig = memory_rig
        run = await rig.run_to(1)
        run.holds.fail(Action.WRITE_MANIFEST, SaveError("a bad day"))
        run.cut.release()
        await run.logged(Action.FAIL_SAVE, step=1)
        run.controller.request_save()
        bundle = await run.published(1)
        root: Path = rig.directory.root
        assert sorted(path.name for path in root.glob("*step_*")) == ["step_0", "step_1"]
        await rig.check_resume(run, bundle)
