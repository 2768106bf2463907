"""A real Ray with a real TransferQueue, shared by all tests of a session.

Starting both takes some 12 s, so tests share one and put it back instead: a snapshot of the
untouched store is loaded over whatever the last test left, which takes milliseconds and gives
exactly the state of a new store. What a snapshot does not hold, the list of clients that have
ever connected, is put back in the controller itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import ray
import transfer_queue as tq

from cutlock.plane.transfer_queue import TransferQueueBootstrap
from tests.support.processes import frozen

UNITS = 2
GIVEN_UP_S = 30.0
"""Seconds that calls which an earlier test has given up get to end."""


class RealCluster:
    """Ray on loopback, and at most one TransferQueue in it.

    Args:
        untouched: an empty directory for the snapshot of the untouched store.
    """

    def __init__(self, untouched: Path) -> None:
        self._untouched = untouched / "store"
        self._running: TransferQueueBootstrap | None = None
        ray.init(
            address="local",
            num_cpus=16,  # logical: the actors of the tests hardly compute
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
        )

    async def untouched_store(self) -> TransferQueueBootstrap:
        """The bootstrap client of a store that is as good as new; no client may be at work."""
        for thread in threading.enumerate():
            if thread.name == "transfer_queue":
                # Of a connect that was given up: when it ends, it is one client more.
                await asyncio.to_thread(thread.join, GIVEN_UP_S)
                assert not thread.is_alive(), "a call that was given up has not ended"
        if self._running is None:
            await self._stop_a_late_one()
            self._running = await TransferQueueBootstrap.start(UNITS)
            await asyncio.to_thread(tq.save_checkpoint, self._untouched)
        else:
            await asyncio.to_thread(tq.load_checkpoint, self._untouched)
        own = tq.get_client().storage_manager.storage_manager_id
        self.in_controller(
            lambda store: store._connected_storage_managers.intersection_update({own})
        )
        # A new client object: an earlier test may have made the old one unusable.
        return TransferQueueBootstrap(self.controller, UNITS, 60.0)

    async def _stop_a_late_one(self) -> None:
        """A start that has passed its limit goes on, and there is one store in a Ray cluster."""
        try:
            late = self.controller
        except ValueError:
            return
        await TransferQueueBootstrap(late, UNITS, GIVEN_UP_S).stop()

    @property
    def controller(self) -> Any:
        return ray.get_actor("TransferQueueController", namespace="transfer_queue")

    def in_controller(self, question: Any) -> Any:
        return ray.get(self.controller.__ray_call__.remote(question))

    def frozen_controller(self) -> AbstractContextManager[None]:
        """The controller's process is stopped, and goes on at the end: nothing is answered."""
        return frozen(self.in_controller(lambda store: os.getpid()))

    def frozen_unit(self, unit: int) -> AbstractContextManager[None]:
        """As `frozen_controller`, of one storage unit."""
        return frozen(self.unit_process(unit))

    def kill_controller(self) -> None:
        """SIGKILL the controller; only `stop_store` makes the store whole again."""
        os.kill(self.in_controller(lambda store: os.getpid()), signal.SIGKILL)

    def kill_unit(self, unit: int) -> None:
        """SIGKILL one storage unit; only `stop_store` makes the store whole again."""
        os.kill(self.unit_process(unit), signal.SIGKILL)

    def unit_process(self, unit: int) -> int:
        """Process of a storage unit, which has to answer."""
        process: int = self.in_unit(unit, lambda store: os.getpid())
        return process

    def stored(self) -> int:
        """Rows of which some unit holds data."""
        return sum(
            self.in_unit(unit, lambda store: store.storage_data.active_key_count)
            for unit in range(UNITS)
        )

    def in_unit(self, unit: int, question: Any) -> Any:
        actor = ray.get_actor(f"TransferQueueStorageUnit#{unit}")
        return ray.get(actor.__ray_call__.remote(question))

    async def restart_store(self) -> None:
        """Stop the TransferQueue, whatever is left of it, and start another one."""
        running, self._running = self._running, None
        if running is not None:
            await running.stop()
        await self.untouched_store()

    def stop_store(self) -> None:
        """Stop the TransferQueue; the next test that needs one starts it."""
        if self._running is not None:
            asyncio.run(self._running.stop())
            self._running = None

    def shut_down(self) -> None:
        self.stop_store()
        ray.shutdown()
