"""A client in front of another one, for those that add something to a few of its calls."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import torch

from cutlock.plane.base import DataPlane, Fields, PlaneInfo, PlaneStamp

__all__ = ["PassingPlane"]


class PassingPlane:
    """A `DataPlane` that passes every call on.

    Args:
        plane: the client that it stands in front of.
    """

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane

    @property
    def info(self) -> PlaneInfo:
        """See `DataPlane.info`."""
        return self._plane.info

    @property
    def splits_snapshot(self) -> bool:
        """See `DataPlane.splits_snapshot`."""
        return self._plane.splits_snapshot

    async def put(self, keys: Sequence[str], fields: Fields) -> None:
        """See `DataPlane.put`."""
        await self._plane.put(keys, fields)

    async def get(
        self, keys: Sequence[str], fields: Sequence[str]
    ) -> dict[str, list[torch.Tensor]]:
        """See `DataPlane.get`."""
        return await self._plane.get(keys, fields)

    def clear(self, keys: Sequence[str]) -> Coroutine[Any, Any, None]:
        """See `DataPlane.clear`."""
        return self._plane.clear(keys)

    async def list_keys(self) -> list[str]:
        """See `DataPlane.list_keys`."""
        return await self._plane.list_keys()

    async def snapshot_index(self, directory: Path) -> None:
        """See `DataPlane.snapshot_index`."""
        await self._plane.snapshot_index(directory)

    async def snapshot_rows(self, directory: Path, stamp: PlaneStamp) -> None:
        """See `DataPlane.snapshot_rows`."""
        await self._plane.snapshot_rows(directory, stamp)

    async def close(self) -> None:
        """See `DataPlane.close`."""
        await self._plane.close()
