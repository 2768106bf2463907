"""A disk that forgets what was not synced, dies at a chosen operation, or refuses one.

It is a `FileSystem` over a real directory. Files that others write into the directory count
as never synced. They may add files, but must not remove or replace any.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

from cutlock.bundle.files import REAL, Entry, Kind, Mark
from tests.support.power_loss import Directory, File, Loss, Tree, image


class PowerLoss(BaseException):
    """The machine is gone; no handler may go on."""


class LossyDisk:
    """A file system over `base`, whose present content counts as durable.

    Args:
        dies_at: number of the operation, from 1, before which the power goes; a write is two
            operations, and dies with half of its bytes.
        refuses_at: number of the operation that raises OSError.
    """

    def __init__(
        self, base: Path, *, dies_at: int | None = None, refuses_at: int | None = None
    ) -> None:
        self.base = base
        self.operations: list[str] = []
        self._dies_at = dies_at
        self._refuses_at = refuses_at
        self._nodes: dict[int, File | Directory] = {}
        self._settle(base)

    def kind(self, path: Path) -> Kind | None:
        return REAL.kind(path)

    def list_directory(self, path: Path) -> list[Entry]:
        return REAL.list_directory(path)

    def read_chunks(self, path: Path) -> Iterator[bytes]:
        return REAL.read_chunks(path)

    def mark(self, path: Path) -> Mark:
        return REAL.mark(path)

    def make_directory(self, path: Path) -> None:
        self._operation("make", path)
        REAL.make_directory(path)

    def write_file(self, path: Path, data: bytes) -> None:
        self._operation("create", path)
        REAL.write_file(path, b"")
        try:
            self._operation("write", path)
        except (PowerLoss, OSError):
            path.write_bytes(data[: len(data) // 2])
            raise
        path.write_bytes(data)

    def begin_sync(self, path: Path) -> None:
        """Promises nothing, so it does nothing."""

    def sync_file(self, path: Path) -> None:
        self._operation("sync", path)
        node = self._node(path)
        assert isinstance(node, File)
        node.durable = path.read_bytes()

    def sync_directory(self, path: Path) -> None:
        self._operation("sync", path)
        node = self._node(path)
        assert isinstance(node, Directory)
        node.durable = self._now(path)

    def rename(self, old: Path, new: Path) -> None:
        self._operation("rename", old, new)
        REAL.rename(old, new)

    def remove_file(self, path: Path) -> None:
        self._operation("remove", path)
        self._remove(path)

    def remove_directory(self, path: Path) -> None:
        self._operation("remove", path)
        self._remove(path)

    def crash_tree(self, loss: Loss) -> Tree:
        """What a restarted machine would find of `base`."""
        for path in (self.base, *self.base.rglob("*")):
            node = self._node(path)
            if isinstance(node, File):
                node.now = path.read_bytes()
            else:
                node.now = self._now(path)
        root = self._node(self.base)
        assert isinstance(root, Directory)
        return image(root, loss)

    def _operation(self, verb: str, *paths: Path) -> None:
        names = " -> ".join(str(path.relative_to(self.base)) for path in paths)
        self.operations.append(f"{verb} {names}")
        if len(self.operations) == self._dies_at:
            raise PowerLoss(self.operations[-1])
        if len(self.operations) == self._refuses_at:
            raise OSError(errno.EIO, "refused by the lossy disk", names)

    def _now(self, path: Path) -> dict[str, File | Directory]:
        return {child.name: self._node(child) for child in path.iterdir()}

    def _node(self, path: Path) -> File | Directory:
        kind = Directory if path.is_dir() else File
        number = path.lstat().st_ino
        node = self._nodes.get(number)
        if not isinstance(node, kind):
            node = self._nodes[number] = kind()
        return node

    def _remove(self, path: Path) -> None:
        # The number of a removed file may be given to the next new one.
        node = self._nodes.pop(path.lstat().st_ino)
        if isinstance(node, Directory):
            node.now = {}
            REAL.remove_directory(path)
        else:
            node.now = path.read_bytes()
            REAL.remove_file(path)

    def _settle(self, path: Path) -> None:
        node = self._node(path)
        if isinstance(node, File):
            node.durable = path.read_bytes()
            return
        for child in path.iterdir():
            self._settle(child)
        node.durable = self._now(path)
