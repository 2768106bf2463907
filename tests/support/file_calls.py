"""Every call of this process that changes the files below a directory, seen as it is made.

The functions of `os` and `io` that Python code writes files with are replaced while a
`watching` block lasts, so nothing that is written in Python escapes, whoever writes it. What
writes files in another language is not seen. Looks are seen where a file is opened, and in
the bundle's `FileSystem`.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol
from unittest import mock

from cutlock.bundle.files import RealFileSystem

Verb = Literal["make", "create", "write", "cut", "sync", "rename", "remove", "look"]


@dataclass(frozen=True)
class Call:
    """One call; paths are relative to the directory that is watched.

    A write is two calls, each with half of its bytes, because it can be cut short.
    """

    verb: Verb
    path: str
    new: str = ""
    """Of a rename."""
    data: bytes = b""
    """Of a write; it comes after what the file holds."""
    length: int = 0
    """Of a file that is cut."""

    def __str__(self) -> str:
        return f"{self.verb} {self.path}" + (f" -> {self.new}" if self.new else "")


class Watcher(Protocol):
    """Sees the calls."""

    def before(self, call: Call) -> None:
        """The call is about to be made."""
        ...

    def after(self, call: Call) -> None:
        """The call has succeeded."""
        ...


@contextlib.contextmanager
def watching(base: Path, watcher: Watcher) -> Iterator[None]:
    """Have the calls below `base` watched, of all threads."""
    calls = _Calls(base, watcher)
    with contextlib.ExitStack() as patches:
        for module, name, replacement in calls.replacements():
            patches.enter_context(mock.patch.object(module, name, replacement))
        yield


class _Calls:
    def __init__(self, base: Path, watcher: Watcher) -> None:
        self._base = str(base)
        self._watcher = watcher
        self._real = {name: getattr(os, name) for name in _OS}
        self._open = io.open
        self._files: dict[int, str] = {}
        """Open descriptors."""

    def replacements(self) -> Iterator[tuple[Any, str, Any]]:
        for name in _OS:
            yield os, name, getattr(self, name)
        yield io, "open", self.open_file
        yield builtins, "open", self.open_file
        for name in _LOOKS:
            yield RealFileSystem, name, self._looking(getattr(RealFileSystem, name))

    def _relative(self, path: object) -> str | None:
        if not isinstance(path, str | os.PathLike):
            return None
        text = os.path.abspath(os.fspath(path))
        if text == self._base:
            return "."
        inside = text.startswith(f"{self._base}{os.sep}")
        return text[len(self._base) + 1 :] if inside else None

    def _look(self, where: str) -> None:
        self._watcher.before(Call("look", where))
        self._watcher.after(Call("look", where))

    def _looking(self, method: Callable[[Any, Path], Any]) -> Callable[[Any, Path], Any]:
        def look(fs: Any, path: Path) -> Any:
            if (where := self._relative(path)) is not None:
                self._look(where)
            return method(fs, path)

        return look

    def _do(self, call: Call | None, name: str, *arguments: Any, **more: Any) -> Any:
        if call is None:
            return self._real[name](*arguments, **more)
        self._watcher.before(call)
        result = self._real[name](*arguments, **more)
        self._watcher.after(call)
        return result

    def _on_path(self, verb: Verb, name: str, path: Any, *arguments: Any, **more: Any) -> Any:
        where = self._relative(path)
        call = None if where is None else Call(verb, where)
        return self._do(call, name, path, *arguments, **more)

    def mkdir(self, path: Any, *arguments: Any, **more: Any) -> None:
        self._on_path("make", "mkdir", path, *arguments, **more)

    def unlink(self, path: Any, **more: Any) -> None:
        self._on_path("remove", "unlink", path, **more)

    remove = unlink

    def rmdir(self, path: Any, **more: Any) -> None:
        self._on_path("remove", "rmdir", path, **more)

    def rename(self, old: Any, new: Any, **more: Any) -> None:
        where, to = self._relative(old), self._relative(new)
        assert (where is None) is (to is None), f"{old} is renamed to {new}"
        call = None if where is None or to is None else Call("rename", where, to)
        self._do(call, "rename", old, new, **more)

    replace = rename

    def open(self, path: Any, flags: int, *arguments: Any, **more: Any) -> int:
        where = self._relative(path)
        if where is None:
            descriptor = int(self._real["open"](path, flags, *arguments, **more))
            self._files.pop(descriptor, None)
            return descriptor
        made = flags & os.O_CREAT and not os.path.lexists(path)
        call = Call("create" if made else "look", where)
        descriptor = int(self._do(call, "open", path, flags, *arguments, **more))
        if flags & os.O_TRUNC and not made:
            self._watcher.after(Call("cut", where))
        self._files[descriptor] = where
        return descriptor

    def write(self, descriptor: int, data: Any) -> int:
        where = self._files.get(descriptor)
        if where is None:
            return int(self._real["write"](descriptor, data))
        write = functools.partial(self._real["write"], descriptor)
        return self.write_halves(where, bytes(data), write)

    def write_halves(self, where: str, data: bytes, write: Callable[[bytes], int]) -> int:
        for half in (data[: len(data) // 2], data[len(data) // 2 :]):
            if half:
                call = Call("write", where, data=half)
                self._watcher.before(call)
                assert write(half) == len(half)
                self._watcher.after(call)
        return len(data)

    def ftruncate(self, descriptor: int, length: int) -> None:
        where = self._files.get(descriptor)
        call = None if where is None else Call("cut", where, length=length)
        self._do(call, "ftruncate", descriptor, length)

    def fsync(self, descriptor: int) -> None:
        where = self._files.get(descriptor)
        self._do(None if where is None else Call("sync", where), "fsync", descriptor)

    def close(self, descriptor: int) -> None:
        self._files.pop(descriptor, None)
        self._real["close"](descriptor)

    def open_file(self, file: Any, mode: str = "r", *arguments: Any, **more: Any) -> Any:
        where = self._relative(file)
        if where is None:
            return self._open(file, mode, *arguments, **more)
        if not set(mode) & set("wxa"):
            self._look(where)
            return self._open(file, mode, *arguments, **more)
        assert "+" not in mode, f"{where} is opened to read and write"
        flags = os.O_WRONLY | os.O_CREAT
        flags |= {"x": os.O_EXCL, "w": os.O_TRUNC, "a": os.O_APPEND}[(set(mode) & set("wxa")).pop()]
        raw = _Raw(self.open(file, flags, 0o666), "a" if "a" in mode else "w", self, where)
        if 0 in (*arguments, more.get("buffering")):
            return raw
        buffered = io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, "utf-8")


_OS = (
    "mkdir",
    "unlink",
    "remove",
    "rmdir",
    "rename",
    "replace",
    "open",
    "write",
    "ftruncate",
    "fsync",
    "close",
)
_LOOKS = ("kind", "list_directory")


class _Raw(io.FileIO):
    """A file that is written through the watched calls."""

    def __init__(self, descriptor: int, mode: str, calls: _Calls, where: str) -> None:
        super().__init__(descriptor, mode)
        self._calls = calls
        self._where = where

    def write(self, data: Any) -> int:
        return self._calls.write_halves(self._where, bytes(data), super().write)
