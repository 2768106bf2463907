"""Where the rows of a stepped run live, by the name of the plane."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.planes import PlaneHost
from cutlock.plane.loopback import keep_ray_on_loopback

__all__ = ["plane_host"]


@contextmanager
def plane_host(plane: str, bounds: Bounds) -> Iterator[PlaneHost | None]:
    """Stores of that kind within this block; None for those in memory.

    Real TransferQueues take seconds to start, in a Ray that is started too unless there is one.
    """
    if plane == "memory":
        yield None
        return
    keep_ray_on_loopback()
    os.environ.setdefault("TQ_LOGGING_LEVEL", "ERROR")
    from cutlock.conformance.paths.transfer_queue import TransferQueueHost

    with TransferQueueHost(len(bounds.units)) as host:
        yield host
