"""Runs with a bundle of everything, and what may happen to the files of a bundle.

A corruption is done to a copy of a whole run, so that the run's other bundles are there as
the way out. All of it is plain file work: nothing here knows what a file means.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import cutlock.bundle.contents
import cutlock.plane.memory
import cutlock.workers.torch_trainer
from cutlock.alphabet import Action
from cutlock.bundle.contents import decode_cut
from cutlock.bundle.files import REAL, walk
from cutlock.bundle.layout import MANIFEST
from cutlock.bundle.verification import verify
from cutlock.events import EventLog
from cutlock.plane.memory import MemoryStore
from cutlock.records import Phase, Snapshot
from cutlock.workers.torch_trainer import TorchTrainer
from tests.support.mutations import SPARES
from tests.support.planes import PlaneHarness
from tests.support.rig import rig_on

NEWEST, WAY_OUT, FIRST = "step_2", "step_1", "step_0"
"""The bundles of a saved run: the one that is corrupted, and the older ones."""


@dataclass(frozen=True)
class Saved:
    """What a run left on disk, and what a run of another seed left."""

    run: Path
    other: Path

    @property
    def files(self) -> list[str]:
        """Names in the newest bundle, the manifest included."""
        return walk(REAL, self.run / NEWEST).files

    def copy(self, root: Path) -> Path:
        """A copy of the run, to be spoiled; returns its newest bundle."""
        shutil.copytree(self.run, root)
        return root / NEWEST


async def save_run(root: Path, harness: PlaneHarness, seed: int = 0) -> Path:
    """A run of two steps, killed when its newest bundle has groups in every place."""
    await harness.start()
    async with rig_on(root, harness) as rig:
        rig.configure(
            seed=seed,
            task={"prompts": 16},
            sampler={"window": 2},
            buffer=SPARES,
            checkpoint={"every": 1, "keep": 100},
        )
        run = await rig.run_to(1)
        await run.quiet()
        launched = [
            str(r.args["group"]) for r in run.log.records if r.action == Action.LAUNCH_GROUP
        ]
        ready = launched[2:6]
        run.generator.finish(*ready)
        for group in ready:
            await run.logged(Action.COMMIT_GROUP, group=group)
        run.cut.release()
        await run.published(2)
        await run.crash()
        assert everywhere(decode_cut(verify(root / NEWEST)))
    return root


def everywhere(cut: Snapshot) -> bool:
    """Whether groups are unread, spare, reserved, admitted and in the buffer."""
    phases = {record.phase for record in cut.ledger}
    return bool(cut.index and cut.spare_pool and phases == {*Phase} and cut.loader.position < 16)


# What may happen to a file.

Change = Callable[[bytes], bytes]


def _noise(data: bytes) -> bytes:
    return random.Random(len(data)).randbytes(len(data))


CONTENT: dict[str, Change] = {
    "empty": lambda data: b"",
    "one byte": lambda data: data[:1],
    "first quarter": lambda data: data[: len(data) // 4],
    "first half": lambda data: data[: len(data) // 2],
    "three quarters": lambda data: data[: len(data) * 3 // 4],
    "all but the last byte": lambda data: data[:-1],
    "all but the first byte": lambda data: data[1:],
    "one byte more": lambda data: data + b"\0",
    "a line more": lambda data: data + b"\n",
    "twice": lambda data: data * 2,
    "zeros": lambda data: bytes(len(data)),
    "zeros from the middle on": lambda data: data[: len(data) // 2].ljust(len(data), b"\0"),
    "noise": _noise,
    "backwards": lambda data: data[::-1],
}
"""Other bytes in its place."""


def _outside(path: Path, name: str) -> Path:
    """A place in the run directory, next to the bundles."""
    return next(parent for parent in path.parents if parent.name == NEWEST).with_name(name)


def _replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def do(path: Path) -> None:
        path.unlink()
        make(path)

    return do


def _socket(path: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as bound:
        # The path of a socket has a short limit; through the descriptor it is short.
        bound.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


def _directory_with_it(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.mkdir()
    (path / path.name).write_bytes(data)


def _link_to_the_same_bytes(path: Path) -> None:
    path.symlink_to(path.rename(_outside(path, "kept")))


PLACE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "renamed": lambda path: path.rename(path.with_name(f"{path.name}.bak")),
    "renamed to capitals": lambda path: path.rename(path.with_name(path.name.upper())),
    "moved out of the bundle": lambda path: path.rename(_outside(path, "moved")),
    "an empty directory": _replaced(Path.mkdir),
    "a directory with the file in it": _directory_with_it,
    "a pipe": _replaced(os.mkfifo),
    "a socket": _replaced(_socket),
    "a link to the same bytes": _link_to_the_same_bytes,
    "a link to nothing": _replaced(lambda path: path.symlink_to("nothing")),
    "a link to itself": _replaced(lambda path: path.symlink_to(path.name)),
    "a link to a device": _replaced(lambda path: path.symlink_to("/dev/zero")),
}
"""Something else in its place, or nothing."""


SOURCES: dict[str, Callable[[Saved], Path]] = {
    "of the save before": lambda saved: saved.run / WAY_OUT,
    "of the first save": lambda saved: saved.run / FIRST,
    "of another run": lambda saved: saved.other / NEWEST,
}
"""Bundles that have a file of the same name."""

EXTRA: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a file": ("extra", lambda path: path.write_bytes(b"x")),
    "an empty file": ("extra", lambda path: path.touch()),
    "a hidden file": (".extra", lambda path: path.write_bytes(b"x")),
    "what an editor leaves": ("manifest.json~", lambda path: path.write_bytes(b"{}")),
    "a name that is no text": (os.fsdecode(b"\xff\xfe"), lambda path: path.write_bytes(b"x")),
    "a name of two lines": ("two\nlines", lambda path: path.write_bytes(b"x")),
    "a name that clears the screen": ("\x1b[2Jx", lambda path: path.write_bytes(b"x")),
    "an empty directory": ("extra", Path.mkdir),
    "a directory with a file": ("extra", lambda path: (path.mkdir(), (path / "x").touch())),
    "a pipe": ("extra", os.mkfifo),
    "a link to a directory": ("extra", lambda path: path.symlink_to("..")),
}
"""Something that no manifest lists: its name, and how it is made."""


def take_over(bundle: Path, other: Path) -> None:
    """Put another bundle in the place of this one, under the manifest of this one."""
    manifest = (bundle / MANIFEST).read_bytes()
    shutil.rmtree(bundle)
    shutil.copytree(other, bundle)
    (bundle / MANIFEST).write_bytes(manifest)


def flip(data: bytes, offset: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[offset] ^= 1 << bit
    return bytes(changed)


# Who must not notice.


class Executed(BaseException):
    """Something ran that must not; no handler may take it for a refusal."""


@contextmanager
def canaries(bundle: Path) -> Iterator[None]:
    """Nothing is unpickled or built, and nothing of `bundle` but its manifest is parsed."""

    def exploding(what: str) -> Callable[..., Any]:
        def explode(*args: object, **kwargs: object) -> None:
            raise Executed(what)

        return explode

    def unless_of_others(decode: Callable[..., Any]) -> Callable[..., Any]:
        def decode_others(*args: Any) -> Any:
            if bundle in args:
                raise Executed(f"{args[-1]} was parsed")
            return decode(*args)

        return decode_others

    contents = cutlock.bundle.contents
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            ("pickle", "load"),
            ("pickle", "loads"),
            ("pickle", "Unpickler"),
            ("torch", "load"),
        ):
            patch.setattr(f"{module}.{name}", exploding(f"{module}.{name}"))
        patch.setattr(cutlock.workers.torch_trainer, "load_file", exploding("the weights"))
        patch.setattr(cutlock.plane.memory, "load_tensors", exploding("the rows"))
        for kind in (MemoryStore, TorchTrainer, EventLog):
            patch.setattr(kind, "__init__", exploding(f"{kind.__name__} was made"))
        for name in ("decode_json", "decode_msgpack"):
            patch.setattr(contents, name, unless_of_others(getattr(contents, name)))
        yield


Look = dict[str, tuple[int, int, int, bytes | str | None]]


def look_at(root: Path) -> Look:
    """Every name below a directory, with mode, inode, time of change, and content."""
    seen: Look = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content: bytes | str | None = None
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = path.read_bytes()
        seen[str(path.relative_to(root))] = (
            status.st_mode,
            status.st_ino,
            status.st_mtime_ns,
            content,
        )
    return seen
