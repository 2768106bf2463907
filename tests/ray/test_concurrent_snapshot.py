"""A storage unit answers during a concurrent snapshot, and what is read is the same."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest
import torch

from cutlock.errors import PlaneError
from cutlock.plane.base import STAMP_FILE
from tests.support.planes import RealHarness, same_rows, stamp_for, take_snapshot

if TYPE_CHECKING:
    from tests.support.real_plane import RealCluster

pytestmark = pytest.mark.real

KEYS = ["g1:0", "g1:1", "g1:2", "g1:3"]
ROWS = {
    # Two rows for each unit, of which one alone is more than a pipe takes.
    "tokens": [torch.arange(40_000 + n) for n in range(4)],
    "hidden": [torch.rand(3 + n, 4).to(torch.bfloat16) for n in range(4)],
    "reward": [torch.tensor([float(n)]) for n in range(4)],
    "mask": [torch.tensor([True, False])] * 4,
    "spectrum": [torch.rand(2, dtype=torch.complex64)] * 4,
    "nothing": [torch.zeros(0)] * 4,
    "turned": [torch.arange(6.0).reshape(2, 3).T] * 4,
}
NEW = {"tokens": [torch.arange(3)] * 2}


@pytest.fixture
async def store(real_cluster: RealCluster) -> AsyncIterator[RealHarness]:
    harness = RealHarness(real_cluster)
    await harness.start()
    yield harness
    await harness.close()


def unit_files(real_cluster: RealCluster, directory: Path) -> list[Path]:
    """The files that the units will write into a snapshot; their directory is made."""
    ids: list[str] = real_cluster.in_controller(
        lambda store: [unit.id for unit in store.tq_config.backend.SimpleStorage.zmq_info.values()]
    )
    (directory / "simple_storage").mkdir()
    return [directory / "simple_storage" / f"su_{n}_{unit}.pkl" for n, unit in enumerate(ids)]


async def begun(pipe: Path) -> IO[bytes]:
    """What a unit has begun to write, once it has; it goes on when that is read."""
    return await asyncio.to_thread(pipe.open, "rb")


def let_write(source: IO[bytes], file: Path) -> None:
    with source, file.open("wb") as target:
        shutil.copyfileobj(source, target)


async def test_puts_gets_and_clears_go_on_while_the_units_write(
    store: RealHarness, real_cluster: RealCluster, tmp_path: Path
) -> None:
    plane = await store.connect()
    await plane.put(KEYS, ROWS)
    await plane.snapshot_index(tmp_path)
    files = unit_files(real_cluster, tmp_path)
    for file in files:
        os.mkfifo(file)
    save = asyncio.create_task(plane.snapshot_rows(tmp_path, stamp_for(plane.info)))
    sources = [await begun(file) for file in files]
    await plane.put(["g2:0", "g2:1"], NEW)
    await plane.clear(["g2:0"])
    await plane.put(["g3:0", "g3:1"], NEW)
    assert same_rows(await plane.get(KEYS, list(ROWS)), ROWS)
    assert not save.done()
    for file in files:
        file.unlink()
        file.touch()
    await asyncio.gather(*map(asyncio.to_thread, [let_write] * len(files), sources, files))
    await save
    await store.start()
    await store.bootstrap.load(tmp_path)
    plane = await store.connect()
    assert await plane.list_keys() == KEYS
    assert same_rows(await plane.get(KEYS, list(ROWS)), ROWS)


def name_nobody(names: dict[str, str]) -> None:
    names.update(dict.fromkeys(names, "nobody"))


def swap(names: dict[str, str]) -> None:
    names.update(zip(names, reversed([*names.values()]), strict=True))


async def written(store: RealHarness, directory: Path, change: Any = None) -> dict[str, bytes]:
    """The files of the units."""
    plane: Any = await store.connect()
    if change is not None:
        change(plane._client.storage_manager.actors)
    await take_snapshot(plane, directory)
    return {path.name: path.read_bytes() for path in directory.rglob("su_*")}


def tables(files: dict[str, bytes]) -> dict[str, Any]:
    """What TransferQueue reads of the files of its units."""

    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.dtype, value.shape, value.tolist()
        return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value

    return {name: plain(pickle.loads(content)) for name, content in files.items()}


def is_of_bytes(files: dict[str, bytes]) -> bool:
    """Whether rows are written as their bytes, and not by torch."""
    (of_bytes,) = {b"frombuffer" in content for content in files.values()}
    return of_bytes


async def test_what_is_read_is_the_same_whoever_writes(store: RealHarness, tmp_path: Path) -> None:
    plane = await store.connect()
    await plane.put(KEYS, ROWS)
    aside = await written(store, tmp_path / "aside")
    assert len(aside) == 2
    assert is_of_bytes(aside)
    store.snapshot = "request"
    request = await written(store, tmp_path / "request")
    assert not is_of_bytes(request)
    assert tables(aside) == tables(request)


@pytest.mark.parametrize("change", [name_nobody, swap])
async def test_a_unit_that_ray_does_not_find_writes_as_it_always_did(
    store: RealHarness, tmp_path: Path, change: Any, caplog: pytest.LogCaptureFixture
) -> None:
    plane = await store.connect()
    await plane.put(KEYS, ROWS)
    found = await written(store, tmp_path / "found")
    not_found = await written(store, tmp_path / "not_found", change)
    assert "in spite of plane.snapshot = 'aside'" in caplog.text
    assert tables(found) == tables(not_found)
    assert not is_of_bytes(not_found)


ELSEWHERE = """
import asyncio, sys
from pathlib import Path
import ray
from cutlock.plane.transfer_queue import TransferQueuePlane
from tests.support.planes import take_snapshot

ray.init(sys.argv[1], namespace="elsewhere", log_to_driver=False, configure_logging=False)

async def save():
    plane = await TransferQueuePlane.connect("rollouts")
    await take_snapshot(plane, Path(sys.argv[2]))
    await plane.close()

asyncio.run(save())
"""


async def test_a_client_in_another_namespace_of_ray_has_the_units_write_concurrently_as_well(
    store: RealHarness, tmp_path: Path
) -> None:
    import ray

    await (await store.connect()).put(KEYS, ROWS)
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", ELSEWHERE, address, str(tmp_path / "aside")]
    client = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, said = await client.communicate()
    assert client.returncode == 0, said.decode()
    files = [path.read_bytes() for path in tmp_path.rglob("su_*")]
    assert len(files) == 2
    assert is_of_bytes({str(number): content for number, content in enumerate(files)})


async def test_a_unit_that_cannot_write_is_named_and_answers_still(
    store: RealHarness, real_cluster: RealCluster, tmp_path: Path
) -> None:
    plane = await store.connect()
    await plane.put(KEYS, ROWS)
    await plane.snapshot_index(tmp_path)
    unit_files(real_cluster, tmp_path)[1].mkdir()
    with pytest.raises(PlaneError, match=r"could not write .*Is a directory.*see to the disk"):
        await plane.snapshot_rows(tmp_path, stamp_for(plane.info))
    assert not (tmp_path / STAMP_FILE).exists()
    assert same_rows(await plane.get(KEYS, list(ROWS)), ROWS)
