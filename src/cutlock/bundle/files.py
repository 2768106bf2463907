"""The file-system seam: every operation that the bundle needs, and no other.

All bundle code goes through a `FileSystem`, so that a test can put one in its place that
forgets what was not synced, or fails at a chosen operation.
"""

from __future__ import annotations

import ctypes
import enum
import errno
import hashlib
import os
import stat
import sys
import threading
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from cutlock.errors import SaveError

__all__ = [
    "CHUNK",
    "REAL",
    "Entry",
    "FileSystem",
    "Kind",
    "Mark",
    "RealFileSystem",
    "Tree",
    "bounded",
    "digest_file",
    "digest_files",
    "make_durable_directory",
    "remove_tree",
    "saving",
    "walk",
]

Mark: TypeAlias = tuple[int, ...]
"""See `FileSystem.mark`."""

CHUNK = 1024 * 1024
"""Bytes read at once while hashing."""

_HASHERS = min(8, os.cpu_count() or 1)
"""Files that are hashed at the same time: hashing keeps a core busy, and holds no lock."""
_NICENESS = 10
"""Of those that hash: a run goes on meanwhile, and its commits would wait for a core."""

_SYNC_FILE_RANGE = getattr(ctypes.CDLL(None), "sync_file_range", None)
_WRITE = 2
"""SYNC_FILE_RANGE_WRITE of Linux: write back what is dirty, wait for nothing."""


class Kind(enum.Enum):
    """What a directory entry is; a link is never followed."""

    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "link or special file"


class Entry(NamedTuple):
    """One name in a directory."""

    name: str
    kind: Kind


class FileSystem(Protocol):
    """Blocking file operations; each raises OSError as the operating system does.

    Nothing is durable by itself: bytes need `sync_file`, and a name that was made, renamed
    or removed needs `sync_directory` of the directory that holds it.
    """

    def kind(self, path: Path) -> Kind | None:
        """What is at `path`; None if nothing is."""
        ...

    def list_directory(self, path: Path) -> list[Entry]:
        """The entries of a directory, by name."""
        ...

    def make_directory(self, path: Path) -> None:
        """Make one directory; it must not exist, its parent must."""
        ...

    def write_file(self, path: Path, data: bytes) -> None:
        """Write a new file; it must not exist."""
        ...

    def read_chunks(self, path: Path) -> Iterator[bytes]:
        """The content of a file in pieces of `CHUNK` bytes; refuses a link or special file."""
        ...

    def mark(self, path: Path) -> Mark:
        """What changes when the file is replaced, or anything is written into it.

        As far as the clock of the file system tells: it goes in steps of milliseconds.
        """
        ...

    def begin_sync(self, path: Path) -> None:
        """Have the file's bytes written in the background, if the system can; promises nothing.

        A `sync_file` that follows waits for less.
        """
        ...

    def sync_file(self, path: Path) -> None:
        """Return when the file's bytes are durable."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Return when the directory's names are durable."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file or directory in one step; fails if `new` is a directory with content."""
        ...

    def remove_file(self, path: Path) -> None:
        """Remove a file or a link."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        ...


class RealFileSystem:
    """The operating system's."""

    def kind(self, path: Path) -> Kind | None:
        """What is at `path`, without following a link."""
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISREG(mode):
            return Kind.FILE
        return Kind.DIRECTORY if stat.S_ISDIR(mode) else Kind.OTHER

    def list_directory(self, path: Path) -> list[Entry]:
        """The entries by name, without following a link."""
        with os.scandir(path) as entries:
            return sorted(Entry(entry.name, _kind_of(entry)) for entry in entries)

    def make_directory(self, path: Path) -> None:
        """`mkdir`."""
        path.mkdir()

    def write_file(self, path: Path, data: bytes) -> None:
        """Write with exclusive creation."""
        with path.open("xb") as file:
            file.write(data)

    def read_chunks(self, path: Path) -> Iterator[bytes]:
        """Read in pieces."""
        # Without O_NONBLOCK the opening of a pipe would wait for a writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(path))
            while chunk := file.read(CHUNK):
                yield chunk

    def mark(self, path: Path) -> Mark:
        """Number, size and times of the file, without following a link."""
        found = path.lstat()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def begin_sync(self, path: Path) -> None:
        """`sync_file_range` of Linux; nothing elsewhere."""
        if _SYNC_FILE_RANGE is None:
            return
        # What comes of it does not matter: whoever needs the bytes on disk syncs them.
        with suppress(OSError), _opened(path, os.O_RDONLY | os.O_NOFOLLOW) as descriptor:
            _SYNC_FILE_RANGE(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), _WRITE)

    def sync_file(self, path: Path) -> None:
        """`fsync` of the file, whoever wrote it."""
        _sync(path, os.O_RDONLY | os.O_NOFOLLOW)

    def sync_directory(self, path: Path) -> None:
        """`fsync` of the directory."""
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def rename(self, old: Path, new: Path) -> None:
        """`rename`, which replaces a file or an empty directory at most."""
        os.rename(old, new)

    def remove_file(self, path: Path) -> None:
        """`unlink`."""
        path.unlink()

    def remove_directory(self, path: Path) -> None:
        """`rmdir`."""
        path.rmdir()


REAL = RealFileSystem()


def _kind_of(entry: os.DirEntry[str]) -> Kind:
    if entry.is_file(follow_symlinks=False):
        return Kind.FILE
    return Kind.DIRECTORY if entry.is_dir(follow_symlinks=False) else Kind.OTHER


def _sync(path: Path, flags: int) -> None:
    with _opened(path, flags) as descriptor:
        os.fsync(descriptor)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Tree:
    """Everything below a directory, as posix paths relative to it, sorted."""

    files: list[str]
    directories: list[str]
    """Without the directory itself."""
    others: list[str]


def walk(fs: FileSystem, root: Path) -> Tree:
    """List everything below `root` without following a link."""
    tree = Tree([], [], [])
    lists = {Kind.FILE: tree.files, Kind.DIRECTORY: tree.directories, Kind.OTHER: tree.others}
    pending = [""]
    while pending:
        prefix = pending.pop()
        for entry in fs.list_directory(root / prefix):
            name = f"{prefix}{entry.name}"
            lists[entry.kind].append(name)
            if entry.kind is Kind.DIRECTORY:
                pending.append(f"{name}/")
    for names in lists.values():
        names.sort()
    return tree


def bounded(chunks: Iterator[bytes], limit: int) -> Iterator[bytes]:
    """The pieces of a file up to the one that goes past `limit` bytes, which is the last.

    A file that should be small may be a terabyte; it shows when it is longer than it should.
    """
    size = 0
    for chunk in chunks:
        yield chunk
        size += len(chunk)
        if size > limit:
            return


def digest_file(fs: FileSystem, path: Path, limit: int | None = None) -> tuple[int, str]:
    """Size in bytes and sha256 hex of a file, read in pieces; of its start if it is `bounded`."""
    size, digest = 0, hashlib.sha256()
    chunks = fs.read_chunks(path)
    for chunk in chunks if limit is None else bounded(chunks, limit):
        size += len(chunk)
        digest.update(chunk)
    return size, digest.hexdigest()


def digest_files(
    fs: FileSystem, files: Iterable[tuple[Path, int | None]]
) -> Generator[tuple[int, str], None, None]:
    """`digest_file` of each path with its limit, in their order, several at the same time.

    What a file raises is raised when its turn comes. Context variables are those of the caller,
    as in `asyncio.to_thread`. On Linux they take a core only as far as nobody else wants it.
    """
    pool = ThreadPoolExecutor(_HASHERS, thread_name_prefix="digest", initializer=_yield_to_others)
    try:
        hashed = [
            pool.submit(copy_context().run, digest_file, fs, path, limit) for path, limit in files
        ]
        for each in hashed:
            yield each.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _yield_to_others() -> None:
    """Lower the priority of this thread; only Linux has one for each thread."""
    if sys.platform == "linux":
        thread = os.PRIO_PROCESS, threading.get_native_id()
        with suppress(OSError):
            os.setpriority(*thread, max(_NICENESS, os.getpriority(*thread)))


def make_durable_directory(fs: FileSystem, path: Path) -> None:
    """Make a directory, and those above it, unless they are there; all their names last."""
    if fs.kind(path.parent) is None:
        make_durable_directory(fs, path.parent)
    if fs.kind(path) is None:
        fs.make_directory(path)
    # Even if somebody else made it: a file is no more durable than the names above it.
    fs.sync_directory(path.parent)


def remove_tree(fs: FileSystem, path: Path) -> None:
    """Remove whatever is at `path`; what is absent already is no error."""
    if fs.kind(path) is not Kind.DIRECTORY:
        with suppress(FileNotFoundError):
            fs.remove_file(path)
        return
    with suppress(FileNotFoundError):
        for entry in fs.list_directory(path):
            remove_tree(fs, path / entry.name)
        fs.remove_directory(path)


@contextmanager
def saving(what: str) -> Iterator[None]:
    """Turn an OSError into a SaveError that says what was being done.

    Raises:
        SaveError: the operating system refused.
    """
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise SaveError(
            f"{what} failed: {error}; bundles published before are untouched, so free the disk "
            "or mend its access and save again"
        ) from error
