from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from tests.support.planes import PlaneHarness, harness_of

if TYPE_CHECKING:
    from tests.support.real_plane import RealCluster


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.real)])
def cluster(request: pytest.FixtureRequest) -> RealCluster | None:
    return request.getfixturevalue("real_cluster") if request.param == "real" else None


@pytest.fixture
async def harness(cluster: RealCluster | None) -> AsyncIterator[PlaneHarness]:
    async with harness_of(cluster) as started:
        yield started
