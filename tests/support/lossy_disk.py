"""A disk that forgets what was not synced, dies at a chosen operation, or refuses one.

It is a `FileSystem` over a real directory, and knows of every file and directory what would
still be there after a power loss:

- a file's bytes are durable as of its last `sync_file`;
- a directory's names (made, renamed, removed) are durable as of its last `sync_directory`.

What is not durable may be on the disk or not, each piece by itself, as POSIX allows; a
rename inside one directory is one piece. Files that others write into the directory count
as never synced. They may add files, but must not remove or replace any.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cutlock.bundle.files import REAL, Entry, Kind

Fate = Literal["lost", "torn", "kept"]

Tree = dict[str, bytes | None]
"""Relative path to content; None for a directory, which comes before what is in it."""


class PowerLoss(BaseException):
    """The machine is gone; no handler may go on."""


@dataclass(eq=False)
class File:
    """What is durable of a file; None while its bytes were never synced."""

    durable: bytes | None = None


@dataclass(eq=False)
class Directory:
    """What is durable of a directory's names."""

    durable: dict[str, File | Directory] = field(default_factory=dict)


@dataclass(frozen=True)
class Loss:
    """What becomes of that which is not durable.

    Args:
        names: whether names that changed since the last sync are as before or as now; None
            draws it for each by `seed`.
        contents: what is left of unsynced bytes; None draws it for each file by `seed`.
    """

    names: Literal["before", "now"] | None = None
    contents: Fate | None = None
    seed: int = 0


LOSSES = tuple(
    Loss(names, contents) for names in ("before", "now") for contents in ("lost", "torn", "kept")
) + tuple(Loss(seed=seed) for seed in range(4))
"""The corners, and some draws between them; names now with contents kept is a killed process."""


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
        paths = {id(self._node(path)): path for path in self.base.rglob("*")}
        root = self._node(self.base)
        paths[id(root)] = self.base
        assert isinstance(root, Directory)
        image = _Image(self, paths, loss)
        image.directory(root, "")
        return image.tree

    def now(self, path: Path | None) -> dict[str, File | Directory]:
        """The names in a directory as a running process sees them; none if it is removed."""
        return {} if path is None else self._now(path)

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
        self._nodes.pop(path.lstat().st_ino)
        if path.is_dir():
            REAL.remove_directory(path)
        else:
            REAL.remove_file(path)

    def _settle(self, path: Path) -> None:
        node = self._node(path)
        if isinstance(node, File):
            node.durable = path.read_bytes()
            return
        for child in path.iterdir():
            self._settle(child)
        node.durable = self._now(path)


def materialise(tree: Tree, target: Path) -> None:
    """Make the files and directories of `tree` in a new directory `target`."""
    target.mkdir()
    for name, content in tree.items():
        if content is None:
            (target / name).mkdir()
        else:
            (target / name).write_bytes(content)


class _Image:
    def __init__(self, disk: LossyDisk, paths: dict[int, Path], loss: Loss) -> None:
        self.tree: Tree = {}
        self._disk = disk
        self._paths = paths
        self._loss = loss
        self._draw = random.Random(loss.seed)

    def directory(self, node: Directory, prefix: str) -> None:
        now = self._disk.now(self._paths.get(id(node)))
        for name, child in sorted(self._names(node.durable, now).items()):
            if isinstance(child, Directory):
                self.tree[prefix + name] = None
                self.directory(child, f"{prefix}{name}/")
            else:
                self.tree[prefix + name] = self._bytes(child)

    def _names(
        self, before: dict[str, File | Directory], now: dict[str, File | Directory]
    ) -> dict[str, File | Directory]:
        result: dict[str, File | Directory] = {}
        newer: dict[str, File | Directory] = {}
        for child in {id(c): c for _, c in sorted(before.items()) + sorted(now.items())}.values():
            old = {name: child for name, c in before.items() if c is child}
            new = {name: child for name, c in now.items() if c is child}
            if old == new or (self._loss.names or self._draw.choice(("before", "now"))) == "now":
                newer |= new
            else:
                result |= old
        return result | newer

    def _bytes(self, node: File) -> bytes:
        path = self._paths.get(id(node))
        now = node.durable if path is None else path.read_bytes()
        if now is None or now == node.durable:
            return now or b""
        match self._loss.contents or self._draw.choice(("lost", "torn", "kept")):
            case "lost":
                return node.durable or b""
            case "torn":
                return now[: len(now) // 2]
            case _:
                return now
