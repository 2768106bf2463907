"""Keeping a Ray that this process starts, and its TransferQueue, off the network.

Both decode pickles from whoever connects, without asking who it is, so a single machine has
no reason to listen on anything but 127.0.0.1.
"""

from __future__ import annotations

import os
import sys

from cutlock.errors import MisuseError

__all__ = ["keep_ray_on_loopback"]

# Despite its name the variable makes Ray report 127.0.0.1 as the address of any node, and
# TransferQueue binds to the address that Ray reports. Ray reads it when it is imported.
_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


def keep_ray_on_loopback() -> None:
    """Make Ray and TransferQueue listen on 127.0.0.1 only; for runs on one machine.

    A process calls it before anything imports ray, and before `cutlock.plane.transfer_queue`.

    Raises:
        MisuseError: ray is imported already and would not notice.
    """
    if os.environ.get(_VARIABLE) == "0":
        return
    if "ray" in sys.modules:
        raise MisuseError(
            f"ray is imported already and has read {_VARIABLE}; "
            "call keep_ray_on_loopback() first, or set it to 0 in the environment"
        )
    os.environ[_VARIABLE] = "0"
