"""Every point at which a process may die: its file calls and its awaits, and the disk at each.

One run is recorded; it is not disturbed. Its calls, applied one after the other to a model
of the disk, give what a kill or a power loss at any point would have left.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import functools
import inspect
from collections.abc import Callable, Coroutine, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.file_calls import Call, watching
from tests.support.power_loss import Directory, File, Tree

PUMPS = "pumps"
"""The stage of everything that is neither a save nor a restore."""

_STAGE = contextvars.ContextVar("stage", default=PUMPS)


def stage() -> str:
    """What the running task is doing."""
    return _STAGE.get()


def enter(name: str) -> None:
    """Say what the running task does from now on."""
    _STAGE.set(name)


@contextlib.contextmanager
def during(name: str) -> Iterator[None]:
    """Say what the running task does inside the block."""
    token = _STAGE.set(name)
    try:
        yield
    finally:
        _STAGE.reset(token)


def staged(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a stage of that name."""

    @functools.wraps(function)
    async def suspending(*arguments: Any, **more: Any) -> Any:
        with during(name):
            return await function(*arguments, **more)

    @functools.wraps(function)
    def at_once(*arguments: Any, **more: Any) -> Any:
        with during(name):
            return function(*arguments, **more)

    return suspending if inspect.iscoroutinefunction(function) else at_once


@dataclass(frozen=True)
class Moment:
    """One point: something has just been done, and the process dies."""

    stage: str
    call: Call | None
    """None for an await that suspends."""

    @property
    def kind(self) -> str:
        """`call`, `look` or `await`."""
        if self.call is None:
            return "await"
        return "look" if self.call.verb == "look" else "call"


class Disk:
    """A model of what is below a directory."""

    def __init__(self, root: Directory) -> None:
        self.root = root

    @classmethod
    def settled(cls, base: Path) -> Disk:
        """What is there now, all of it durable."""
        return cls(_settled(base))

    def apply(self, call: Call) -> None:
        """Do what the call has done."""
        if call.verb == "look":
            return
        parent, name = self._parent(call.path)
        match call.verb:
            case "make":
                parent.now[name] = Directory()
            case "create":
                parent.now[name] = File()
            case "write":
                self._file(call.path).now += call.data
            case "cut":
                file = self._file(call.path)
                file.now = file.now[: call.length]
            case "rename":
                target, new = self._parent(call.new)
                target.now[new] = parent.now.pop(name)
            case "remove":
                del parent.now[name]
            case "sync":
                node = self.find(call.path)
                if isinstance(node, File):
                    node.durable = node.now
                else:
                    node.durable = dict(node.now)

    def find(self, path: str) -> File | Directory:
        """What a running process sees there."""
        node: File | Directory = self.root
        for name in Path(path).parts:
            assert isinstance(node, Directory)
            node = node.now[name]
        return node

    def now(self) -> Tree:
        """Everything that a running process sees."""
        tree: Tree = {}

        def look_at(directory: Directory, prefix: str) -> None:
            for name, child in sorted(directory.now.items()):
                if isinstance(child, Directory):
                    tree[prefix + name] = None
                    look_at(child, f"{prefix}{name}/")
                else:
                    tree[prefix + name] = child.now

        look_at(self.root, "")
        return tree

    def _parent(self, path: str) -> tuple[Directory, str]:
        node = self.find(str(Path(path).parent))
        assert isinstance(node, Directory)
        return node, Path(path).name

    def _file(self, path: str) -> File:
        node = self.find(path)
        assert isinstance(node, File)
        return node


def _settled(path: Path) -> Directory:
    found = Directory()
    for child in path.iterdir():
        if child.is_dir():
            found.now[child.name] = _settled(child)
        else:
            content = child.read_bytes()
            found.now[child.name] = File(content, content)
    found.durable = dict(found.now)
    return found


def read_tree(base: Path) -> Tree:
    """Everything below a directory."""
    return {
        str(path.relative_to(base)): None if path.is_dir() else path.read_bytes()
        for path in sorted(base.rglob("*"), key=lambda path: path.parts)
    }


@dataclass
class Recorder:
    """Notes every call below a directory, and every await of the tasks of one loop."""

    base: Path
    moments: list[Moment] = field(default_factory=list)
    refused: tuple[str, str] | None = None
    """Stage and text of the one call that fails."""

    def before(self, call: Call) -> None:
        if (stage(), str(call)) == self.refused:
            self.refused = None
            # Of what is refused, all may have been done.
            self.after(call)
            raise OSError(errno.EIO, "refused by the disk", call.path)

    def after(self, call: Call) -> None:
        self.moments.append(Moment(stage(), call))

    def suspended(self) -> None:
        self.moments.append(Moment(stage(), None))

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Note the calls; at the end the model must have come to what is there."""
        disk = Disk.settled(self.base)
        with watching(self.base, self):
            yield
        for moment in self.moments:
            if moment.call is not None:
                disk.apply(moment.call)
        assert sorted(disk.now().items()) == sorted(read_tree(self.base).items()), "calls escaped"

    def make_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **more: Any
    ) -> asyncio.Task[Any]:
        """A task factory of a loop."""
        return asyncio.Task(_Watched(work, self.suspended), loop=loop, **more)


class _Watched(Coroutine[Any, Any, Any]):
    """A coroutine that tells when it suspends."""

    def __init__(self, work: Coroutine[Any, Any, Any], suspended: Callable[[], None]) -> None:
        self._work = work
        self._suspended = suspended

    def send(self, value: Any) -> Any:
        awaited = self._work.send(value)
        self._suspended()
        return awaited

    def throw(self, *error: Any) -> Any:
        awaited = self._work.throw(*error)
        self._suspended()
        return awaited

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()
