"""Somebody else uses the store that a resume restores into."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, cast

import torch

from cutlock.conformance.faults.switch import Fault, Patch, Switch
from cutlock.conformance.stepping.doing import Doing, Records
from cutlock.conformance.stepping.incarnation import Incarnation
from cutlock.conformance.stepping.planes import PlaneHost
from cutlock.plane.base import DataPlane, RestorablePlane
from cutlock.plane.memory import MemoryBootstrap, PlaneSteps
from cutlock.tlc.values import Value

__all__ = ["FOREIGN_ROWS_FAULTS"]

_GROUP = "foreign@0"
_KEYS = tuple(f"foreign/{_GROUP}/0/{sibling}" for sibling in range(2))


class _SharedHost:
    """A `PlaneHost` whose store somebody else has used by the time it is handed over."""

    def __init__(self, host: PlaneHost) -> None:
        self._host = host

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    async def renew(self, steps: PlaneSteps) -> RestorablePlane:
        """See `PlaneHost.renew`."""
        bootstrap = await self._host.renew(steps)
        client = await self._host.connect()
        await _put(client)
        await client.clear(_KEYS)
        return bootstrap


async def _put(client: DataPlane) -> None:
    await client.put(_KEYS, {"reward": [torch.zeros(1)] * len(_KEYS)})


def _share(incarnation: Incarnation) -> None:
    if incarnation.bundle is not None:
        incarnation._host = cast(PlaneHost, _SharedHost(incarnation._host))


def _late(doing: Doing) -> Records:
    """Another client puts rows, which the spec has as those of the group `<<0, member>>`."""
    bounds = doing.stepper.bounds
    nobody: Value = (0, bounds.members[0])
    vars(bounds)["names"] = MappingProxyType({**bounds.names, _GROUP: nobody})

    async def put() -> None:
        await _put(await doing.stepper.host.connect())

    doing.stepper.loop.complete(put())
    return ()


async def _look_away(bootstrap: MemoryBootstrap) -> None:
    """In place of the touch check; what the load itself would notice is hidden too."""
    bootstrap.store.clients = 0


FOREIGN_ROWS_FAULTS = (
    Fault(
        name="touched_plane_accepted",
        what="a store that somebody has used is restored into",
        mutants=("touched_plane", "foreign_rows_in_plane"),
        world=Switch(prepare=_share, moves={"Late": _late}),
        protection=Switch(patches=(Patch(MemoryBootstrap, "require_untouched", _look_away),)),
    ),
)
