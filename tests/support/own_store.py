"""The store of `examples/own_store.py` behind the face of the others."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cutlock.plane.base import DataPlane

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_store.py"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("own_store", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


own_store = _load()


class OwnHarness:
    """`PlaneHarness` of a `DictStore`."""

    short_limit_s = 0.01

    def __init__(self) -> None:
        self.bootstrap = own_store.DictStore()

    async def start(self) -> None:
        self.bootstrap = own_store.DictStore()

    async def connect(self, *, limit_s: float = 60.0) -> DataPlane:
        plane: DataPlane = await self.bootstrap.connect(limit_s=limit_s)
        return plane

    def stored(self) -> int:
        return len(self.bootstrap.rows)

    def spoil(self, snapshot: Path) -> None:
        (snapshot / own_store.ROWS).write_bytes(b"")

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        with contextlib.suppress(StopIteration):
            # Nobody holds the lock, so that this takes it without suspending.
            self.bootstrap.lock.acquire().send(None)
        try:
            yield
        finally:
            self.bootstrap.lock.release()

    async def close(self) -> None:
        pass
