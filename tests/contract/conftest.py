from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.own_store import OwnHarness
from tests.support.planes import MemoryHarness, PlaneHarness, RealHarness, started


@pytest.fixture(params=["memory", "own", pytest.param("real", marks=pytest.mark.real)])
def stopped_harness(request: pytest.FixtureRequest) -> PlaneHarness:
    """Of both shipped stores, and of the one that the examples bring."""
    if request.param == "real":
        return RealHarness(request.getfixturevalue("real_cluster"))
    return MemoryHarness() if request.param == "memory" else OwnHarness()


@pytest.fixture
async def harness(stopped_harness: PlaneHarness) -> AsyncIterator[PlaneHarness]:
    async with started(stopped_harness) as harness:
        yield harness
