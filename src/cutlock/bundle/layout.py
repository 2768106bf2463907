"""What lies where: the directories of a run, and the table of everything that a bundle holds.

The name of a directory says how far its save has come. The suffix `.pt` of the sidecars is kept
for the sake of their known names only: they hold msgpack, and nothing in them is ever unpickled.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from cutlock.plane.base import STAMP_FILE

__all__ = [
    "ARTIFACTS",
    "DATA_PLANE",
    "INDEX",
    "LEDGER",
    "LOADER",
    "MANIFEST",
    "POLICY",
    "RESERVE",
    "SIDECARS",
    "STAMP",
    "TRAINING_INFO",
    "Artifact",
    "Place",
    "directory_name",
    "is_part",
    "parse_name",
    "required",
]


class Place(enum.StrEnum):
    """Where a save stands; the value is the prefix of its directory's name."""

    PUBLISHED = ""
    """`step_N`: the only resolvable name."""
    TEMPORARY = "tmp_"
    """`tmp_step_N`: being written, or left by a save that died; `tmp_step_N.2` the second try."""
    TRASH = "trash_"
    """`trash_step_N`: being removed."""
    ABANDONED = "abandoned_"
    """`abandoned_step_N`: of a timeline that somebody went back from."""


_NAME = re.compile(r"(tmp_|trash_|abandoned_|)step_(0|[1-9][0-9]*)(?:\.[0-9]+)?")


def directory_name(place: Place, step: int, copy: int = 1) -> str:
    """Name of a step's directory; `copy` tells later ones with the same step apart."""
    name = f"{place}step_{step}"
    return name if copy == 1 else f"{name}.{copy}"


def parse_name(name: str) -> tuple[Place, int] | None:
    """Place and step of a directory's name; None if it is none of ours."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    place, step = Place(match[1]), int(match[2])
    if "." in name and place not in {Place.ABANDONED, Place.TEMPORARY}:
        return None
    return place, step


POLICY = "policy"
LOADER = "train_dataloader.pt"
RESERVE = "replacement_reserve.pt"
INDEX = "replay_buffer_metadata.pt"
LEDGER = "rollout_recovery.pt"
DATA_PLANE = "data_plane"
STAMP = f"{DATA_PLANE}/{STAMP_FILE}"
TRAINING_INFO = "training_info.json"
MANIFEST = "manifest.json"

SIDECARS = (LOADER, RESERVE, INDEX, LEDGER)
"""The files that hold the cut, together with step, version and cursor in `TRAINING_INFO`."""


@dataclass(frozen=True)
class Artifact:
    """One row of the table."""

    name: str
    """Path inside the bundle; a directory's ends in a slash."""
    content: str
    writer: str
    reader: str
    bound_by: str
    """What shows that it belongs to this save, beside its size and sha256 in the manifest."""


_CUT_ID = "cut_id in its header"
_PART = "its sha256 in training_info.json"

ARTIFACTS = (
    Artifact(
        f"{POLICY}/",
        "trainer state, in files of the trainer's choice",
        "trainer",
        "trainer",
        _PART,
    ),
    Artifact(
        f"{POLICY}/weights.safetensors",
        "weights of the shipped trainer, of the cut's version",
        "trainer",
        "trainer",
        _PART,
    ),
    Artifact(
        f"{POLICY}/optimizer.pt",
        "optimizer state of the shipped trainer, tensors and numbers only",
        "trainer",
        "trainer",
        _PART,
    ),
    Artifact(
        f"{POLICY}/trainer.json",
        "counters of the shipped trainer",
        "trainer",
        "trainer",
        _PART,
    ),
    Artifact(LOADER, "LoaderState: epoch, position, inner state", "save", "restore", _CUT_ID),
    Artifact(RESERVE, "spare pool: occurrences in order", "save", "restore", _CUT_ID),
    Artifact(
        INDEX,
        "index: which rows of the plane form which group, no tensors",
        "save",
        "restore",
        f"{_CUT_ID}; its digest and count in the plane's stamp",
    ),
    Artifact(
        LEDGER,
        "ledger without the index's groups, shortfall, next admission id, drop count",
        "save",
        "restore",
        f"{_CUT_ID}; its sha256 and count in the plane's stamp",
    ),
    Artifact(
        f"{DATA_PLANE}/",
        "rows, in the store's own files; absent when a save leaves the rows out",
        "data plane",
        "data plane",
        f"{_PART}; the stamp inside it",
    ),
    Artifact(
        STAMP,
        "PlaneStamp: cut_id, step, version, index and ledger digests and counts, plane",
        "data plane",
        "restore",
        "itself",
    ),
    Artifact(
        TRAINING_INFO,
        "TrainingInfo: step, version, epoch, cursor, counters, configuration, packages",
        "save",
        "restore",
        "cut_id and run_id",
    ),
    Artifact(
        MANIFEST,
        "Manifest: name, size and sha256 of every other file, sequence; written last",
        "bundle writer",
        "verification",
        "its own digest",
    ),
)


def is_part(name: str) -> bool:
    """Whether trainer or plane write that file: its sha256 in `TRAINING_INFO` binds it to the cut.

    The stamp aside, which carries the cut_id and is written when nothing else is missing.
    """
    return name != STAMP and name.startswith((f"{POLICY}/", f"{DATA_PLANE}/"))


def required(*, rows: bool) -> tuple[str, ...]:
    """Artifacts without which a bundle is not complete, the manifest aside.

    Args:
        rows: whether the save keeps the rows of the plane.
    """
    plane = (DATA_PLANE, STAMP) if rows else ()
    return (POLICY, *SIDECARS, TRAINING_INFO, *plane)
