"""The pickles of a real TransferQueue: refused by name, and never opened, before they hold."""

from __future__ import annotations

import asyncio
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cutlock.bundle.files import REAL, walk
from cutlock.bundle.layout import DATA_PLANE, STAMP
from cutlock.controller.assembly import build_prompts
from cutlock.errors import BundleCorruptError, PlaneError
from cutlock.run.restore import verify_for_resume
from tests.support.bundles import reseal, reseal_all
from tests.support.corruption import (
    CONTENT,
    NEWEST,
    PLACE,
    SOURCES,
    Saved,
    canaries,
    flip,
    look_at,
    save_run,
)
from tests.support.planes import harness_of
from tests.support.tally import tally

if TYPE_CHECKING:
    from tests.support.real_plane import RealCluster

pytestmark = pytest.mark.real

INDEX = f"{DATA_PLANE}/controller_state.pkl"
OFFSETS = 100
TRIED = 600


class Trap:
    """Leaves a trace where it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._trace,)


@pytest.fixture(scope="module")
def saved(
    one_thread: None, real_cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory
) -> Saved:
    """As the one of the package, of runs on a real store."""
    root = tmp_path_factory.mktemp("real")

    async def save(name: str, seed: int) -> Path:
        async with harness_of(real_cluster) as harness:
            return await save_run(root / name, harness, seed)

    return Saved(asyncio.run(save("run", 0)), asyncio.run(save("other", 1)))


@pytest.fixture
def bundle(saved: Saved, ram_path: Path) -> Path:
    return saved.copy(ram_path / "run")


def files_of_the_store(bundle: Path) -> list[str]:
    found = [name for name in walk(REAL, bundle).files if name.startswith(f"{DATA_PLANE}/")]
    assert {INDEX, STAMP} < set(found)
    assert len(found) == 5
    return found


def refused(bundle: Path, file: str) -> None:
    before = look_at(bundle.parent)
    with canaries(bundle), pytest.raises(BundleCorruptError) as caught:
        verify_for_resume(bundle, build_prompts)
    assert str(caught.value).startswith(f"{bundle}: {file}: ")
    assert look_at(bundle.parent) == before
    tally("corruptions tried", 1)


def changes(data: bytes, trap: bytes) -> dict[str, bytes]:
    step = (len(data) - 1) / (OFFSETS - 1)
    places = sorted({round(place * step) for place in range(OFFSETS)})
    flips = {f"bit {o % 8} of byte {o}": flip(data, o, o % 8) for o in places}
    content = {name: change(data) for name, change in CONTENT.items()}
    return {**flips, **content, "a pickle that leaves a trace": trap}


async def test_nothing_of_a_real_store_s_files_is_opened_before_all_digests_hold(
    saved: Saved, bundle: Path, real_cluster: RealCluster, tmp_path: Path
) -> None:
    trap, tried = pickle.dumps(Trap(tmp_path / "trace")), 0
    async with harness_of(real_cluster) as harness:
        for file in files_of_the_store(bundle):
            path = bundle / file
            data = path.read_bytes()
            others = {name: (of(saved) / file).read_bytes() for name, of in SOURCES.items()}
            # The list of the units is the same in all saves of one store.
            for changed in {*changes(data, trap).values(), *others.values()} - {data}:
                path.write_bytes(changed)
                refused(bundle, file)
                tried += 1
            path.write_bytes(data)
            for change in PLACE.values():
                await asyncio.to_thread(_in_a_copy, bundle, file, change)
                tried += 1
        await harness.bootstrap.require_untouched()
    assert tried >= TRIED
    assert not (tmp_path / "trace").exists()


def _in_a_copy(bundle: Path, file: str, change: Callable[[Path], object]) -> None:
    root = bundle.parent.with_name("copy")
    shutil.copytree(bundle.parent, root)
    change(root / NEWEST / file)
    refused(root / NEWEST, file)
    shutil.rmtree(root)


async def test_a_pickle_in_the_place_of_a_store_s_file_is_not_opened_though_the_manifest_fits(
    bundle: Path, tmp_path: Path
) -> None:
    for file in files_of_the_store(bundle):
        data = (bundle / file).read_bytes()
        (bundle / file).write_bytes(pickle.dumps(Trap(tmp_path / "trace")))
        reseal(bundle)
        with pytest.raises(BundleCorruptError, match=f": {file}: "):
            verify_for_resume(bundle, build_prompts)
        (bundle / file).write_bytes(data)
    assert not (tmp_path / "trace").exists()
    reseal(bundle)
    assert verify_for_resume(bundle, build_prompts).snapshot.index
    tally("corruptions tried", 5)


async def test_whoever_recomputes_every_digest_runs_code_in_the_store(
    bundle: Path, real_cluster: RealCluster, tmp_path: Path
) -> None:
    """Why a run directory is to be trusted like a program: no digest can tell an author."""
    (bundle / INDEX).write_bytes(pickle.dumps(Trap(tmp_path / "trace")))
    reseal_all(bundle)
    plan = verify_for_resume(bundle, build_prompts)
    async with harness_of(real_cluster) as harness:
        assert plan.plane_directory is not None
        with pytest.raises(PlaneError):
            await harness.bootstrap.load(plan.plane_directory)
    assert (tmp_path / "trace").exists()


async def test_the_whole_bundle_loads_into_the_store(
    bundle: Path, real_cluster: RealCluster
) -> None:
    plan = verify_for_resume(bundle, build_prompts)
    async with harness_of(real_cluster) as harness:
        assert plan.plane_directory is not None
        await harness.bootstrap.load(plan.plane_directory)
        plane = await harness.connect()
        keys = {key for entry in plan.snapshot.index for key in entry.row_keys}
        assert set(await plane.list_keys()) == keys
