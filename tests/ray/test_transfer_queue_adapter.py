"""What only the real store can show, on a whole store."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from cutlock.errors import (
    ConnectError,
    PlaneError,
    PlaneTimeoutError,
    PlaneTouchedError,
    RowsMissingError,
)
from cutlock.plane.base import DataPlane
from tests.support.planes import harness_of, stamp_for, take_snapshot

if TYPE_CHECKING:
    from tests.support.planes import PlaneHarness
    from tests.support.real_plane import RealCluster

pytestmark = pytest.mark.real

KEYS = ["g1:0", "g1:1", "g1:2"]
ROWS = {"tokens": [torch.arange(3), torch.arange(5), torch.arange(2)]}


@pytest.fixture
async def store(real_cluster: RealCluster) -> AsyncIterator[PlaneHarness]:
    async with harness_of(real_cluster) as started:
        yield started


async def test_everything_listens_on_loopback_only(
    store: PlaneHarness, real_cluster: RealCluster
) -> None:
    addresses = real_cluster.in_controller(
        lambda controller: [
            controller.zmq_server_info.ip,
            *(unit.ip for unit in controller.tq_config.backend.SimpleStorage.zmq_info.values()),
        ]
    )
    assert addresses == ["127.0.0.1"] * 3


async def test_a_second_store_in_one_ray_is_refused(store: PlaneHarness) -> None:
    from cutlock.plane.transfer_queue import TransferQueueBootstrap

    with pytest.raises(PlaneError, match="runs in this Ray cluster already"):
        await TransferQueueBootstrap.start()


async def cancelled_put(plane: DataPlane) -> None:
    put = asyncio.create_task(plane.put(KEYS, ROWS))
    await asyncio.sleep(0)
    put.cancel()
    await asyncio.wait([put])
    assert put.cancelled()


async def test_a_put_whose_caller_was_cancelled_goes_on_and_a_clear_waits_for_it(
    store: PlaneHarness, real_cluster: RealCluster
) -> None:
    plane, other = await store.connect(), await store.connect()
    with real_cluster.frozen_controller():
        await cancelled_put(plane)
        clear = asyncio.create_task(plane.clear(KEYS))
        await asyncio.wait([clear], timeout=0)
    await clear
    await plane.close()
    assert await other.list_keys() == []


async def test_closing_waits_for_a_put_whose_caller_was_cancelled(store: PlaneHarness) -> None:
    plane, other = await store.connect(), await store.connect()
    await cancelled_put(plane)
    await plane.close()
    assert (await other.get(KEYS, ["tokens"]))["tokens"][1].tolist() == [0, 1, 2, 3, 4]


async def test_closing_the_client_of_a_lost_store_waits_for_nothing(
    store: PlaneHarness, real_cluster: RealCluster
) -> None:
    plane = await store.connect(limit_s=store.short_limit_s)
    with real_cluster.frozen_controller():
        with pytest.raises(PlaneTimeoutError):
            await plane.put(KEYS, ROWS)
        await plane.close()


async def test_closing_gives_up_a_put_that_never_ends(
    store: PlaneHarness, real_cluster: RealCluster
) -> None:
    from cutlock.plane.transfer_queue import TransferQueuePlane

    plane = await TransferQueuePlane.connect("rollouts", limit_s=store.short_limit_s)
    with real_cluster.frozen_controller():
        await cancelled_put(plane)
        with pytest.raises(PlaneTimeoutError, match="close: 1 puts or clears"):
            await plane.close()
    assert await (await store.connect()).list_keys() in ([], KEYS)


async def test_a_notice_that_was_given_up_ends_before_its_client_is_closed(
    store: PlaneHarness, real_cluster: RealCluster
) -> None:
    from cutlock.plane.transfer_queue import TransferQueuePlane

    plane = await TransferQueuePlane.connect("rollouts")
    manager = plane._client.storage_manager
    loop = manager._notify_loop
    with real_cluster.frozen_controller():
        waiting = asyncio.create_task(manager.notify_data_update("rollouts", [0], {}))
        await asyncio.sleep(0)
        # What was handed to the loop of the notices before this has begun after it.
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop))
        notices = asyncio.all_tasks(loop)
        waiting.cancel()
        await plane.close()
    assert notices
    assert all(notice.done() for notice in notices)


def test_a_client_that_is_forgotten_with_its_loop_does_not_hang_the_collector(
    real_cluster: RealCluster,
) -> None:
    from cutlock.plane.transfer_queue import TransferQueuePlane

    async def put_and_forget() -> None:
        await real_cluster.untouched_store()
        plane = await TransferQueuePlane.connect("rollouts")
        await plane.put(KEYS, ROWS)
        circle: list[object] = [plane]
        circle.append(circle)

    asyncio.run(put_and_forget())
    gc.collect()


async def test_connecting_to_a_store_that_does_not_answer_is_bounded(
    store: PlaneHarness, real_cluster: RealCluster
) -> None:
    with (
        real_cluster.frozen_controller(),
        pytest.raises(ConnectError, match=r"did not answer within 0\.05 s"),
    ):
        await store.connect(limit_s=0.05)


async def test_connecting_to_a_store_that_is_still_starting_waits(
    store: PlaneHarness, real_cluster: RealCluster
) -> None:
    config = real_cluster.in_controller(lambda controller: controller.tq_config)
    real_cluster.in_controller(lambda controller: controller.store_config(None))
    connecting = asyncio.create_task(store.connect())
    await asyncio.wait([connecting], timeout=0.2)
    started = not connecting.done()
    real_cluster.in_controller(lambda controller: controller.store_config(config))
    assert started
    assert await (await connecting).list_keys() == []


async def test_connecting_to_a_store_with_another_back_end_is_refused(
    store: PlaneHarness, real_cluster: RealCluster
) -> None:
    real_cluster.in_controller(
        lambda controller: controller.tq_config.backend.update(storage_backend="MooncakeStore")
    )
    try:
        with pytest.raises(ConnectError, match="keeps its rows in MooncakeStore"):
            await store.connect()
    finally:
        real_cluster.in_controller(
            lambda controller: controller.tq_config.backend.update(storage_backend="SimpleStorage")
        )


async def test_a_put_whose_notice_was_lost_is_an_error(
    store: PlaneHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transfer_queue.storage.managers import AsyncSimpleStorageManager

    async def lose(*notice: object) -> None:
        pass

    plane = await store.connect()
    monkeypatch.setattr(AsyncSimpleStorageManager, "notify_data_update", lose)
    with pytest.raises(PlaneError, match="does not list it as produced"):
        await plane.put(KEYS, ROWS)


async def test_a_row_that_is_listed_without_its_data_is_an_error(store: PlaneHarness) -> None:
    import transfer_queue as tq

    plane = await store.connect()
    await plane.put(KEYS, ROWS)
    client = tq.get_client()
    found = await asyncio.to_thread(client.kv_retrieve_meta, KEYS[:1], "rollouts")
    await client.storage_manager.clear_data(found)
    with pytest.raises(RowsMissingError, match="no data for one of 'g1:0', 'g1:1', 'g1:2'"):
        await plane.get(KEYS, ["tokens"])


async def test_a_snapshot_without_its_index_part_is_refused_before_anything_changes(
    store: PlaneHarness, tmp_path: Path
) -> None:
    from cutlock.plane.transfer_queue import INDEX_FILE

    await take_snapshot(await store.connect(), tmp_path / "data_plane")
    (tmp_path / "data_plane" / INDEX_FILE).unlink()
    await store.start()
    with pytest.raises(PlaneError, match=INDEX_FILE):
        await store.bootstrap.load(tmp_path / "data_plane")
    await store.bootstrap.require_untouched()


async def test_partitions_do_not_see_each_other(store: PlaneHarness) -> None:
    from cutlock.plane.transfer_queue import TransferQueuePlane

    plane = await store.connect()
    await plane.put(KEYS, ROWS)
    neighbour = await TransferQueuePlane.connect("validation")
    try:
        assert await neighbour.list_keys() == []
    finally:
        await neighbour.close()


async def test_a_relative_snapshot_directory_is_this_process_s(
    store: PlaneHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plane = await store.connect()
    await plane.put(KEYS, ROWS)
    Path("data_plane").mkdir()
    await plane.snapshot_index(Path("data_plane"))
    await plane.snapshot_rows(Path("data_plane"), stamp_for(plane.info))
    assert len(list((tmp_path / "data_plane" / "simple_storage").glob("su_*.pkl"))) == 2


async def test_a_put_by_another_client_during_a_load_is_found_out(
    store: PlaneHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transfer_queue as tq

    await take_snapshot(await store.connect(), tmp_path / "data_plane")
    await store.start()
    loop = asyncio.get_running_loop()
    load_checkpoint = tq.load_checkpoint

    async def touch() -> None:
        await (await store.connect()).put(KEYS, ROWS)

    def load_and_be_touched(directory: Path) -> None:
        load_checkpoint(directory)
        asyncio.run_coroutine_threadsafe(touch(), loop).result()

    monkeypatch.setattr(tq, "load_checkpoint", load_and_be_touched)
    with pytest.raises(PlaneTouchedError, match="index counter at 3 instead of 0"):
        await store.bootstrap.load(tmp_path / "data_plane")
    with pytest.raises(PlaneError, match="was used while it was loaded"):
        await store.bootstrap.load(tmp_path / "data_plane")


async def test_an_asynchronous_ray_actor_is_a_client_like_any_other(store: PlaneHarness) -> None:
    import ray

    class Actor:
        async def work(self, keys: list[str], rows: dict[str, list[torch.Tensor]]) -> list[str]:
            from cutlock.plane.transfer_queue import TransferQueuePlane

            plane = await TransferQueuePlane.connect("rollouts")
            await plane.put(keys, rows)
            listed = await plane.list_keys()
            await plane.close()
            return listed

    actor = ray.remote(num_cpus=0)(Actor).remote()
    try:
        assert await actor.work.remote(KEYS, ROWS) == KEYS
    finally:
        ray.kill(actor)
    rows = await (await store.connect()).get(KEYS, ["tokens"])
    assert rows["tokens"][1].tolist() == [0, 1, 2, 3, 4]
