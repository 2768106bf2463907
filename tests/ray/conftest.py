from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.real_plane import RealCluster


@pytest.fixture
def stopped_afterwards(real_cluster: RealCluster) -> Iterator[None]:
    """For a test that breaks the store: the next one gets a new one."""
    yield
    real_cluster.stop_store()


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """All of this folder is real, and to import Ray takes seconds."""
    return True if "not real" in config.option.markexpr else None
