from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.races.conftest import one_thread
from tests.support.corruption import Saved, save_run
from tests.support.planes import MemoryHarness

__all__ = ["one_thread", "saved"]


@pytest.fixture(scope="package")
def saved(one_thread: None) -> Iterator[Saved]:
    """Two runs that were killed in the middle, in memory if possible; not to be changed."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        root = Path(made)
        yield Saved(
            asyncio.run(save_run(root / "run", MemoryHarness())),
            asyncio.run(save_run(root / "other", MemoryHarness(), seed=1)),
        )
