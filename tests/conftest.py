from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from cutlock.plane.loopback import keep_ray_on_loopback

if TYPE_CHECKING:
    from tests.support.real_plane import RealCluster

# Before any test module imports ray.
keep_ray_on_loopback()


@pytest.fixture(scope="session")
def real_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """One Ray for the whole session; its TransferQueue starts when a test needs it."""
    from tests.support.real_plane import RealCluster

    cluster = RealCluster(tmp_path_factory.mktemp("untouched"))
    try:
        yield cluster
    finally:
        cluster.shut_down()
