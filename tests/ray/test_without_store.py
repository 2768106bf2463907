"""Ray runs and no TransferQueue does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cutlock.errors import ConnectError, PlaneError, PlaneTimeoutError

if TYPE_CHECKING:
    from tests.support.real_plane import RealCluster

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def no_store(real_cluster: RealCluster) -> None:
    real_cluster.stop_store()


async def test_connecting_says_what_to_start_and_starts_nothing() -> None:
    import ray

    from cutlock.plane.transfer_queue import TransferQueuePlane

    with pytest.raises(ConnectError, match=r"TransferQueueBootstrap\.start"):
        await TransferQueuePlane.connect("rollouts")
    with pytest.raises(ValueError, match="TransferQueueController"):
        ray.get_actor("TransferQueueController", namespace="transfer_queue")


async def test_a_store_with_more_units_than_ray_has_processors_is_refused() -> None:
    from cutlock.plane.transfer_queue import TransferQueueBootstrap

    with pytest.raises(PlaneError, match="need 17 CPUs of Ray, which has 16"):
        await TransferQueueBootstrap.start(16)


async def test_a_store_that_comes_after_its_start_was_given_up_is_in_nobodys_way(
    real_cluster: RealCluster,
) -> None:
    from cutlock.plane.transfer_queue import TransferQueueBootstrap

    with pytest.raises(PlaneTimeoutError, match="start did not end within"):
        await TransferQueueBootstrap.start(2, limit_s=0.001)
    await (await real_cluster.untouched_store()).require_untouched()
