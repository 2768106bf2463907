"""What every plane does, whatever holds the rows."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import torch

from cutlock.errors import (
    PlaneError,
    PlaneLostError,
    PlaneTimeoutError,
    PlaneTouchedError,
    RowsMissingError,
)
from cutlock.plane.base import STAMP_FILE, DataPlane, PlaneInfo, PlaneStamp, read_stamp, write_stamp
from tests.support.planes import PlaneHarness, same_rows, stamp_for, take_snapshot

KEYS = ["g1:0", "g1:1", "g2:0"]


def rollouts() -> dict[str, list[torch.Tensor]]:
    """Three ragged rows with one field of each dtype that a run stores."""
    return {
        "tokens": [torch.arange(5), torch.arange(2), torch.arange(9)],
        "logprobs": [torch.rand(5), torch.rand(2), torch.rand(9)],
        "mask": [torch.rand(n) > 0.5 for n in (5, 2, 9)],
        "hidden": [torch.rand(n, 4).to(torch.bfloat16) for n in (5, 2, 9)],
        "reward": [torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([-1.0])],
    }


def files_in(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


class TestPutAndGet:
    async def test_ragged_rows_of_every_dtype_come_back_as_they_were_put(
        self, harness: PlaneHarness
    ) -> None:
        plane = await harness.connect()
        fields = rollouts()
        await plane.put(KEYS, fields)
        assert same_rows(await plane.get(KEYS, list(fields)), fields)

    @pytest.mark.parametrize("ragged", [0, 1])
    async def test_matrices_may_be_ragged_in_either_dimension(
        self, harness: PlaneHarness, ragged: int
    ) -> None:
        plane = await harness.connect()
        shapes = [(n, 3) if ragged == 0 else (3, n) for n in (4, 1, 2)]
        fields = {"weights": [torch.rand(shape) for shape in shapes]}
        await plane.put(KEYS, fields)
        assert same_rows(await plane.get(KEYS, ["weights"]), fields)

    async def test_rows_may_be_empty(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        fields = {"tokens": [torch.arange(0), torch.arange(3), torch.arange(0)]}
        await plane.put(KEYS, fields)
        assert same_rows(await plane.get(KEYS, ["tokens"]), fields)

    async def test_all_rows_of_a_put_may_be_empty(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        fields = {"tokens": [torch.arange(0)] * 3}
        await plane.put(KEYS, fields)
        assert same_rows(await plane.get(KEYS, ["tokens"]), fields)

    async def test_rows_of_several_puts_are_read_together(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        rows = [torch.arange(5), torch.arange(2), torch.arange(9)]
        for key, row in zip(KEYS, rows, strict=True):
            await plane.put([key], {"tokens": [row]})
        assert same_rows(await plane.get(KEYS, ["tokens"]), {"tokens": rows})

    async def test_a_get_keeps_the_order_of_its_keys_and_may_repeat_one(
        self, harness: PlaneHarness
    ) -> None:
        plane = await harness.connect()
        await plane.put(KEYS, {"tokens": [torch.tensor([n]) for n in range(3)]})
        rows = await plane.get([KEYS[2], KEYS[0], KEYS[2]], ["tokens"])
        assert [row.item() for row in rows["tokens"]] == [2, 0, 2]

    async def test_a_get_of_no_keys_gives_no_rows(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        assert await plane.get([], ["tokens"]) == {"tokens": []}

    async def test_a_get_reads_only_the_named_fields(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        await plane.put(KEYS, rollouts())
        assert (await plane.get(KEYS, ["reward"])).keys() == {"reward"}

    async def test_a_put_of_an_old_key_overwrites_the_field_and_keeps_the_others(
        self, harness: PlaneHarness
    ) -> None:
        plane = await harness.connect()
        fields = rollouts()
        await plane.put(KEYS, fields)
        longer = torch.arange(20)
        await plane.put([KEYS[1]], {"tokens": [longer]})
        fields["tokens"][1] = longer
        assert same_rows(await plane.get(KEYS, list(fields)), fields)

    async def test_a_put_adds_a_field_to_old_keys(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        fields = rollouts()
        await plane.put(KEYS, fields)
        fields["advantage"] = [torch.tensor([n]) for n in (0.5, -0.5, 0.0)]
        await plane.put(KEYS, {"advantage": fields["advantage"]})
        assert same_rows(await plane.get(KEYS, list(fields)), fields)

    async def test_a_put_stores_copies(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        row = torch.zeros(3)
        await plane.put([KEYS[0]], {"logprobs": [row]})
        row += 1
        assert (await plane.get([KEYS[0]], ["logprobs"]))["logprobs"][0].sum() == 0

    async def test_a_get_returns_copies(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        await plane.put([KEYS[0]], {"logprobs": [torch.zeros(3)]})
        (await plane.get([KEYS[0]], ["logprobs"]))["logprobs"][0].add_(1)
        assert (await plane.get([KEYS[0]], ["logprobs"]))["logprobs"][0].sum() == 0

    async def test_two_clients_see_the_same_rows(self, harness: PlaneHarness) -> None:
        writer, reader = await harness.connect(), await harness.connect()
        fields = rollouts()
        await writer.put(KEYS, fields)
        assert same_rows(await reader.get(KEYS, list(fields)), fields)

    async def test_many_puts_at_once_keep_their_rows_apart(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        keys = [[f"g{n}:{m}" for m in range(3)] for n in range(20)]
        await asyncio.gather(
            *(plane.put(k, {"n": [torch.tensor([n])] * 3}) for n, k in enumerate(keys))
        )
        for n, group in enumerate(keys):
            rows = await plane.get(group, ["n"])
            assert [row.item() for row in rows["n"]] == [n] * 3


def _refused_puts() -> dict[str, tuple[Sequence[object], Mapping[str, object]]]:
    one, two = [torch.ones(1)], [torch.ones(1), torch.ones(1)]
    return {
        "no key": ([], {"x": []}),
        "a key twice": (["a", "a"], {"x": two}),
        "a key that is no string": ([7], {"x": one}),
        "no field": (["a"], {}),
        "more keys than rows": (["a", "b"], {"x": two, "y": one}),
        "more rows than keys": (["a"], {"x": two}),
        "no tensor": (["a"], {"x": [[1.0]]}),
        "no dimension": (["a"], {"x": [torch.tensor(1.0)]}),
        "two dtypes": (["a", "b"], {"x": [torch.ones(1), torch.ones(1).long()]}),
        "two numbers of dimensions": (["a", "b"], {"x": [torch.ones(1), torch.ones(1, 1)]}),
        "ragged twice": (["a", "b"], {"x": [torch.ones(1, 2), torch.ones(2, 1)]}),
    }


class TestRefusals:
    @pytest.mark.parametrize("case", _refused_puts())
    async def test_a_put_that_makes_no_sense_changes_nothing(
        self, harness: PlaneHarness, case: str
    ) -> None:
        plane = await harness.connect()
        keys, fields = _refused_puts()[case]
        with pytest.raises(PlaneError):
            await plane.put(keys, fields)  # type: ignore[arg-type]
        assert await plane.list_keys() == []

    async def test_a_get_of_an_unknown_key_names_it(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        await plane.put(KEYS, rollouts())
        with pytest.raises(RowsMissingError, match="'g9:0'"):
            await plane.get([KEYS[0], "g9:0"], ["tokens"])

    async def test_a_get_from_an_empty_store_names_the_key(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        with pytest.raises(RowsMissingError, match="'g9:0'"):
            await plane.get(["g9:0"], ["tokens"])

    async def test_a_get_of_an_unknown_field_names_it(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        await plane.put(KEYS, rollouts())
        with pytest.raises(RowsMissingError, match="'advantage'"):
            await plane.get(KEYS, ["tokens", "advantage"])

    async def test_a_get_of_a_field_that_one_row_lacks_names_the_row(
        self, harness: PlaneHarness
    ) -> None:
        plane = await harness.connect()
        await plane.put(KEYS, rollouts())
        await plane.put(KEYS[:2], {"advantage": [torch.ones(1)] * 2})
        with pytest.raises(RowsMissingError, match=r"^'g2:0' has no field 'advantage'"):
            await plane.get(KEYS, ["advantage"])

    async def test_a_get_of_no_field_is_refused(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        await plane.put(KEYS, rollouts())
        with pytest.raises(PlaneError, match="no field"):
            await plane.get(KEYS, [])


class TestClearAndList:
    async def test_an_empty_store_lists_nothing(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        assert await plane.list_keys() == []

    async def test_the_list_is_sorted(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        await plane.put(["b", "c", "a"], {"x": [torch.ones(1)] * 3})
        assert await plane.list_keys() == ["a", "b", "c"]

    async def test_a_cleared_row_is_gone_and_the_others_stay(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        fields = rollouts()
        await plane.put(KEYS, fields)
        await plane.clear([KEYS[1]])
        assert await plane.list_keys() == [KEYS[0], KEYS[2]]
        with pytest.raises(RowsMissingError, match=KEYS[1]):
            await plane.get([KEYS[1]], ["tokens"])
        rest = {field: [rows[0], rows[2]] for field, rows in fields.items()}
        assert same_rows(await plane.get([KEYS[0], KEYS[2]], list(fields)), rest)

    @pytest.mark.parametrize("keys", [[], ["g9:0"], [KEYS[0], "g9:0", KEYS[0]]])
    async def test_clearing_nothing_or_unknown_or_repeated_keys_is_no_error(
        self, harness: PlaneHarness, keys: list[str]
    ) -> None:
        plane = await harness.connect()
        await plane.put(KEYS, rollouts())
        await plane.clear(keys)
        assert await plane.list_keys() == [key for key in KEYS if key not in keys]

    async def test_rows_put_after_a_clear_are_read_right(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        await plane.put(KEYS, {"n": [torch.tensor([n]) for n in range(3)]})
        await plane.clear(KEYS[:2])
        await plane.put(["g3:0", "g3:1", "g3:2"], {"n": [torch.tensor([n]) for n in (3, 4, 5)]})
        rows = await plane.get([KEYS[2], "g3:0", "g3:1", "g3:2"], ["n"])
        assert [row.item() for row in rows["n"]] == [2, 3, 4, 5]

    async def test_a_new_row_lacks_the_fields_of_the_cleared_row_before_it(
        self, harness: PlaneHarness
    ) -> None:
        plane = await harness.connect()
        await plane.put(KEYS, rollouts())
        await plane.clear(KEYS)
        await plane.put(["g3:0"], {"tokens": [torch.arange(2)]})
        with pytest.raises(RowsMissingError, match="'reward'"):
            await plane.get(["g3:0"], ["reward"])

    async def test_a_put_that_its_caller_gave_up_can_be_cleared(
        self, harness: PlaneHarness
    ) -> None:
        plane = await harness.connect()
        put = asyncio.create_task(plane.put(KEYS, rollouts()))
        await asyncio.sleep(0)
        put.cancel()
        await asyncio.wait([put])
        await plane.clear(KEYS)
        assert await plane.list_keys() == []


class TestSnapshotAndLoad:
    async def test_a_loaded_store_has_the_rows_and_the_list_of_the_snapshot(
        self, harness: PlaneHarness, tmp_path: Path
    ) -> None:
        plane = await harness.connect()
        fields = rollouts()
        await plane.put(["g0:0", *KEYS], {f: [rows[0], *rows] for f, rows in fields.items()})
        await plane.put(KEYS[:1], {"advantage": [torch.ones(1)]})
        await plane.clear(["g0:0"])
        await take_snapshot(plane, tmp_path / "data_plane")
        await harness.start()
        await harness.bootstrap.load(tmp_path / "data_plane")
        plane = await harness.connect()
        assert await plane.list_keys() == KEYS
        assert same_rows(await plane.get(KEYS, list(fields)), fields)
        assert (await plane.get(KEYS[:1], ["advantage"]))["advantage"][0].item() == 1

    async def test_a_loaded_store_takes_new_rows_without_harm_to_the_old(
        self, harness: PlaneHarness, tmp_path: Path
    ) -> None:
        plane = await harness.connect()
        fields = rollouts()
        await plane.put(["g0:0", *KEYS], {f: [rows[0], *rows] for f, rows in fields.items()})
        await plane.clear(["g0:0"])
        await take_snapshot(plane, tmp_path / "data_plane")
        await harness.start()
        await harness.bootstrap.load(tmp_path / "data_plane")
        plane = await harness.connect()
        new = [f"g4:{n}" for n in range(5)]
        await plane.put(new, {"tokens": [torch.tensor([n]) for n in range(5)]})
        assert same_rows(await plane.get(KEYS, list(fields)), fields)
        rows = await plane.get(new, ["tokens"])
        assert [row.item() for row in rows["tokens"]] == list(range(5))

    async def test_a_snapshot_of_an_empty_store_loads(
        self, harness: PlaneHarness, tmp_path: Path
    ) -> None:
        await take_snapshot(await harness.connect(), tmp_path / "data_plane")
        await harness.start()
        await harness.bootstrap.load(tmp_path / "data_plane")
        assert await (await harness.connect()).list_keys() == []

    async def test_a_snapshot_of_a_loaded_store_loads_again(
        self, harness: PlaneHarness, tmp_path: Path
    ) -> None:
        plane = await harness.connect()
        fields = rollouts()
        await plane.put(KEYS, fields)
        for name in ("first", "second"):
            await take_snapshot(plane, tmp_path / name)
            await harness.start()
            await harness.bootstrap.load(tmp_path / name)
            plane = await harness.connect()
        assert same_rows(await plane.get(KEYS, list(fields)), fields)

    async def test_a_row_put_after_the_index_part_does_not_come_back(
        self, harness: PlaneHarness, tmp_path: Path
    ) -> None:
        plane = await harness.connect()
        await plane.put(KEYS, rollouts())
        await plane.snapshot_index(tmp_path)
        await plane.put(["late"], {"tokens": [torch.arange(3)]})
        await plane.snapshot_rows(tmp_path, stamp_for(plane.info))
        await harness.start()
        await harness.bootstrap.load(tmp_path)
        assert harness.stored() == len(KEYS)
        plane = await harness.connect()
        assert await plane.list_keys() == KEYS
        await plane.put(["g3:0"], {"reward": [torch.ones(1)]})
        with pytest.raises(RowsMissingError, match="'tokens'"):
            await plane.get(["g3:0"], ["tokens"])

    async def test_a_load_brings_back_the_rows_that_it_is_told_to(
        self, harness: PlaneHarness, tmp_path: Path
    ) -> None:
        plane = await harness.connect()
        fields = rollouts()
        await plane.put(KEYS, fields)
        await take_snapshot(plane, tmp_path / "data_plane")
        await harness.start()
        await harness.bootstrap.load(tmp_path / "data_plane", keep=KEYS[1:])
        assert harness.stored() == len(KEYS) - 1
        plane = await harness.connect()
        assert await plane.list_keys() == KEYS[1:]
        kept = {field: rows[1:] for field, rows in fields.items()}
        assert same_rows(await plane.get(KEYS[1:], list(fields)), kept)

    async def test_a_snapshot_leaves_the_rows_readable(
        self, harness: PlaneHarness, tmp_path: Path
    ) -> None:
        plane = await harness.connect()
        fields = rollouts()
        await plane.put(KEYS, fields)
        await take_snapshot(plane, tmp_path / "data_plane")
        assert same_rows(await plane.get(KEYS, list(fields)), fields)

    async def test_the_stamp_comes_back(self, harness: PlaneHarness, tmp_path: Path) -> None:
        plane = await harness.connect()
        stamp = await take_snapshot(plane, tmp_path / "data_plane")
        assert read_stamp(tmp_path / "data_plane") == stamp

    async def test_the_stamp_is_written_last(self, harness: PlaneHarness, tmp_path: Path) -> None:
        plane = await harness.connect()
        await plane.put(KEYS, rollouts())
        await take_snapshot(plane, tmp_path / "data_plane")
        written = {path: path.stat().st_mtime_ns for path in (tmp_path / "data_plane").rglob("*.*")}
        assert max(written, key=lambda path: written[path]).name == STAMP_FILE

    async def test_a_stamp_for_another_store_is_refused(
        self, harness: PlaneHarness, tmp_path: Path
    ) -> None:
        plane = await harness.connect()
        await plane.snapshot_index(tmp_path)
        other = msgspec.structs.replace(plane.info, units=plane.info.units + 1)
        with pytest.raises(PlaneError, match="stamp"):
            await plane.snapshot_rows(tmp_path, stamp_for(other))
        assert not (tmp_path / STAMP_FILE).exists()

    async def test_rows_without_an_index_part_are_refused(
        self, harness: PlaneHarness, tmp_path: Path
    ) -> None:
        plane = await harness.connect()
        with pytest.raises(PlaneError, match="snapshot_index first"):
            await plane.snapshot_rows(tmp_path, stamp_for(plane.info))
        assert files_in(tmp_path) == {}

    async def test_a_snapshot_into_a_missing_directory_is_refused(
        self, harness: PlaneHarness, tmp_path: Path
    ) -> None:
        plane = await harness.connect()
        with pytest.raises(PlaneError, match="not a directory"):
            await plane.snapshot_index(tmp_path / "nowhere")

    async def test_the_files_are_as_large_as_the_rows(
        self, harness: PlaneHarness, tmp_path: Path
    ) -> None:
        plane = await harness.connect()
        # Sixteen rows of one length: the case in which a dense put would be kept many times.
        rows = {"hidden": [torch.rand(64, 1024) for _ in range(16)]}
        await plane.put([f"g0:{n}" for n in range(16)], rows)
        await take_snapshot(plane, tmp_path / "data_plane")
        stored = sum(len(content) for content in files_in(tmp_path / "data_plane").values())
        assert stored == pytest.approx(16 * 64 * 1024 * 4, rel=0.02)


async def _put(plane: DataPlane) -> None:
    await plane.put(KEYS, rollouts())


async def _put_and_clear(plane: DataPlane) -> None:
    await plane.put(KEYS, rollouts())
    await plane.clear(KEYS)


async def _nothing(plane: DataPlane) -> None:
    pass


async def _close(plane: DataPlane) -> None:
    await plane.close()


Touch = Callable[[DataPlane], Awaitable[None]]
TOUCHES = pytest.mark.parametrize(
    "touch", [_put, _put_and_clear, _nothing, _close], ids=["put", "cleared", "connected", "closed"]
)


class TestRestoringOnlyIntoAnUntouchedStore:
    async def test_a_new_store_is_untouched(self, harness: PlaneHarness) -> None:
        await harness.bootstrap.require_untouched()

    @TOUCHES
    async def test_a_touched_store_is_found_out(self, harness: PlaneHarness, touch: Touch) -> None:
        await touch(await harness.connect())
        with pytest.raises(PlaneTouchedError, match="1 other clients"):
            await harness.bootstrap.require_untouched()

    @TOUCHES
    async def test_a_load_into_a_touched_store_is_refused_and_changes_nothing(
        self, harness: PlaneHarness, touch: Touch, tmp_path: Path
    ) -> None:
        plane = await harness.connect()
        await plane.put(["saved"], {"tokens": [torch.arange(3)]})
        await take_snapshot(plane, tmp_path / "data_plane")
        await harness.start()
        plane = await harness.connect()
        await touch(plane)
        plane = await harness.connect()
        before = await plane.list_keys()
        with pytest.raises(PlaneTouchedError):
            await harness.bootstrap.load(tmp_path / "data_plane")
        assert await plane.list_keys() == before

    async def test_a_second_load_is_refused(self, harness: PlaneHarness, tmp_path: Path) -> None:
        plane = await harness.connect()
        await plane.put(KEYS, rollouts())
        await take_snapshot(plane, tmp_path / "data_plane")
        await harness.start()
        await harness.bootstrap.load(tmp_path / "data_plane")
        with pytest.raises(PlaneTouchedError, match="index counter at 3"):
            await harness.bootstrap.load(tmp_path / "data_plane")

    @pytest.mark.parametrize(
        ("name", "value"), [("units", 3), ("kind", "another"), ("version", "0.0.1")]
    )
    async def test_a_snapshot_of_another_kind_of_store_is_refused_before_anything_changes(
        self, harness: PlaneHarness, tmp_path: Path, name: str, value: object
    ) -> None:
        stamp = await take_snapshot(await harness.connect(), tmp_path / "data_plane")
        other = msgspec.structs.replace(stamp.plane, **{name: value})
        write_stamp(tmp_path / "data_plane", msgspec.structs.replace(stamp, plane=other))
        await harness.start()
        with pytest.raises(PlaneError, match=f"{value}"):
            await harness.bootstrap.load(tmp_path / "data_plane")
        await harness.bootstrap.require_untouched()

    async def test_a_snapshot_that_never_ended_is_refused_before_anything_changes(
        self, harness: PlaneHarness, tmp_path: Path
    ) -> None:
        await take_snapshot(await harness.connect(), tmp_path / "data_plane")
        (tmp_path / "data_plane" / STAMP_FILE).unlink()
        await harness.start()
        with pytest.raises(PlaneError, match="never ended"):
            await harness.bootstrap.load(tmp_path / "data_plane")
        await harness.bootstrap.require_untouched()

    async def test_a_store_that_could_not_load_is_unusable_and_says_so(
        self, harness: PlaneHarness, tmp_path: Path
    ) -> None:
        plane = await harness.connect()
        await plane.put(KEYS, rollouts())
        await take_snapshot(plane, tmp_path / "data_plane")
        harness.spoil(tmp_path / "data_plane")
        await harness.start()
        with pytest.raises(PlaneError):
            await harness.bootstrap.load(tmp_path / "data_plane")
        with pytest.raises(PlaneError, match="half loaded"):
            await harness.bootstrap.load(tmp_path / "data_plane")


def _calls(directory: Path) -> dict[str, Callable[[DataPlane], Awaitable[object]]]:
    return {
        "put of 3 keys": lambda plane: plane.put(KEYS, rollouts()),
        "get of 3 keys": lambda plane: plane.get(KEYS, ["tokens"]),
        "clear of 3 keys": lambda plane: plane.clear(KEYS),
        "list_keys": lambda plane: plane.list_keys(),
        "snapshot_index": lambda plane: plane.snapshot_index(directory),
    }


class TestLimitsAndClosing:
    @pytest.mark.parametrize("call", _calls(Path()))
    async def test_a_call_that_does_not_end_is_named_with_its_limit(
        self, harness: PlaneHarness, tmp_path: Path, call: str
    ) -> None:
        plane = await harness.connect(limit_s=harness.short_limit_s)
        said = re.escape(f"{call} did not end within {harness.short_limit_s:g} s")
        with harness.stalled(), pytest.raises(PlaneTimeoutError, match=said):
            await _calls(tmp_path)[call](plane)

    @pytest.mark.parametrize("call", [call for call in _calls(Path()) if "snapshot" not in call])
    async def test_after_a_call_timed_out_no_later_one_is_begun(
        self, harness: PlaneHarness, tmp_path: Path, call: str
    ) -> None:
        plane = await harness.connect(limit_s=harness.short_limit_s)
        with harness.stalled(), pytest.raises(PlaneTimeoutError) as first:
            await _calls(tmp_path)[call](plane)
        for later, begin in _calls(tmp_path).items():
            said = f"^{later.split()[0]} was not begun: "
            with pytest.raises(PlaneLostError, match=said) as lost:
                await begin(plane)
            assert str(first.value) in str(lost.value)

    async def test_a_snapshot_that_timed_out_is_all_that_fails(
        self, harness: PlaneHarness, tmp_path: Path
    ) -> None:
        plane = await harness.connect(limit_s=harness.short_limit_s)
        with harness.stalled(), pytest.raises(PlaneTimeoutError):
            await plane.snapshot_index(tmp_path)
        with suppress(PlaneTimeoutError):  # if what has stalled comes to itself too late
            assert await plane.list_keys() == []

    async def test_another_client_works_on_after_a_call_timed_out(
        self, harness: PlaneHarness
    ) -> None:
        plane = await harness.connect(limit_s=harness.short_limit_s)
        with harness.stalled(), pytest.raises(PlaneTimeoutError):
            await plane.put(KEYS, rollouts())
        plane = await harness.connect()
        fields = rollouts()
        await plane.put(["g7:0", "g7:1", "g7:2"], fields)
        assert same_rows(await plane.get(["g7:0", "g7:1", "g7:2"], list(fields)), fields)

    @pytest.mark.parametrize("call", _calls(Path()))
    async def test_a_closed_client_does_nothing(
        self, harness: PlaneHarness, tmp_path: Path, call: str
    ) -> None:
        plane = await harness.connect()
        await plane.close()
        with pytest.raises(PlaneError, match="closed client"):
            await _calls(tmp_path)[call](plane)

    async def test_closing_twice_is_closing_once(self, harness: PlaneHarness) -> None:
        plane = await harness.connect()
        await plane.close()
        await plane.close()

    async def test_the_other_clients_go_on_when_one_is_closed(self, harness: PlaneHarness) -> None:
        leaving, staying = await harness.connect(), await harness.connect()
        fields = rollouts()
        await leaving.put(KEYS, fields)
        await leaving.close()
        assert same_rows(await staying.get(KEYS, list(fields)), fields)
        await (await harness.connect()).put(["late"], {"tokens": [torch.arange(1)]})
        assert await staying.list_keys() == [*KEYS, "late"]


class TestReadStamp:
    def test_a_stamp_that_was_cut_short_is_refused(self, tmp_path: Path) -> None:
        write_stamp(tmp_path, _some_stamp())
        content = (tmp_path / STAMP_FILE).read_bytes()
        (tmp_path / STAMP_FILE).write_bytes(content[: len(content) // 2])
        with pytest.raises(PlaneError, match="holds no stamp"):
            read_stamp(tmp_path)

    def test_a_stamp_with_an_unknown_field_is_refused(self, tmp_path: Path) -> None:
        write_stamp(tmp_path, _some_stamp())
        content = (tmp_path / STAMP_FILE).read_bytes()
        (tmp_path / STAMP_FILE).write_bytes(content.replace(b'"step"', b'"stage"'))
        with pytest.raises(PlaneError, match="holds no stamp"):
            read_stamp(tmp_path)

    def test_a_snapshot_without_rows_is_refused(self, tmp_path: Path) -> None:
        write_stamp(tmp_path, _some_stamp())
        content = (tmp_path / STAMP_FILE).read_bytes()
        (tmp_path / STAMP_FILE).write_bytes(content.replace(b"true", b"false"))
        with pytest.raises(PlaneError, match="no rows were saved"):
            read_stamp(tmp_path)


def _some_stamp() -> PlaneStamp:
    return stamp_for(PlaneInfo(kind="memory", version="1", units=2))
