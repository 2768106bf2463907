"""What is left on a disk when the machine dies.

Of every file and directory the model knows what a running process sees and what is durable:

- a file's bytes are durable as of its last sync;
- a directory's names (made, renamed, removed) are durable as of its last sync.

What is not durable may be on the disk or not, each piece by itself, as POSIX allows; a
rename inside one directory is one piece. Durable bytes that were only appended to stay.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Fate = Literal["lost", "torn", "zeroed", "kept"]
FATES: tuple[Fate, ...] = ("lost", "torn", "zeroed", "kept")
"""Of unsynced bytes: none are there, the first half, the first half and then zeros, all."""

Tree = dict[str, bytes | None]
"""Relative path to content; None for a directory, which comes before what is in it."""


@dataclass(eq=False)
class File:
    """The bytes of a file; `durable` is None while they were never synced."""

    now: bytes = b""
    durable: bytes | None = None


@dataclass(eq=False)
class Directory:
    """The names in a directory."""

    now: dict[str, File | Directory] = field(default_factory=dict)
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


KILL = Loss("now", "kept")
"""A killed process on a machine that goes on: everything is as it was seen."""

LOSSES = tuple(Loss(names, contents) for names in ("before", "now") for contents in FATES) + tuple(
    Loss(seed=seed) for seed in range(4)
)
"""The corners, `KILL` among them, and some draws between them."""


def image(root: Directory, loss: Loss) -> Tree:
    """What a restarted machine finds below `root`."""
    draw = random.Random(loss.seed)
    tree: Tree = {}

    def look_at(directory: Directory, prefix: str) -> None:
        for name, child in sorted(_names(directory, loss, draw).items()):
            if isinstance(child, Directory):
                tree[prefix + name] = None
                look_at(child, f"{prefix}{name}/")
            else:
                tree[prefix + name] = _content(child, loss, draw)

    look_at(root, "")
    return tree


def _names(directory: Directory, loss: Loss, draw: random.Random) -> dict[str, File | Directory]:
    before, now = directory.durable, directory.now
    older: dict[str, File | Directory] = {}
    newer: dict[str, File | Directory] = {}
    for child in {id(c): c for _, c in sorted(before.items()) + sorted(now.items())}.values():
        old = {name: child for name, c in before.items() if c is child}
        new = {name: child for name, c in now.items() if c is child}
        if old == new or (loss.names or draw.choice(("before", "now"))) == "now":
            newer |= new
        else:
            older |= old
    return older | newer


def _content(file: File, loss: Loss, draw: random.Random) -> bytes:
    now, durable = file.now, file.durable or b""
    if now == file.durable:
        return now
    safe = len(durable) if now.startswith(durable) else 0
    half = safe + (len(now) - safe) // 2
    match loss.contents or draw.choice(FATES):
        case "lost":
            return durable
        case "torn":
            return now[:half]
        case "zeroed":
            return now[:half] + bytes(len(now) - half)
        case "kept":
            return now


def materialise(tree: Tree, target: Path) -> None:
    """Make the files and directories of `tree` in a new directory `target`."""
    target.mkdir()
    for name, content in tree.items():
        if content is None:
            (target / name).mkdir()
        else:
            (target / name).write_bytes(content)
