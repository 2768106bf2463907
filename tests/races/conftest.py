from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from tests.support.planes import MemoryHarness, PlaneHarness, harness_of
from tests.support.rig import Rig, rig_on

if TYPE_CHECKING:
    from tests.support.real_plane import RealCluster


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """A policy this small is trained fastest by one thread, on a busy machine by far."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.real)])
def cluster(request: pytest.FixtureRequest) -> RealCluster | None:
    return request.getfixturevalue("real_cluster") if request.param == "real" else None


@pytest.fixture
async def harness(cluster: RealCluster | None) -> AsyncIterator[PlaneHarness]:
    async with harness_of(cluster) as started:
        yield started


@pytest.fixture
def root() -> Iterator[Path]:
    """Where a run goes: in memory if possible, because a save syncs some forty times."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        yield Path(made) / "run"


@pytest.fixture
async def rig(root: Path, harness: PlaneHarness) -> AsyncIterator[Rig]:
    """On both planes."""
    async with rig_on(root, harness) as made:
        yield made


@pytest.fixture
async def memory_rig(root: Path) -> AsyncIterator[Rig]:
    """For what needs the memory plane's steps, or need not be repeated on the real one."""
    harness = MemoryHarness()
    await harness.start()
    async with rig_on(root, harness) as made:
        yield made
