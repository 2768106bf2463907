"""The table of everything that a bundle holds: one row per artifact.

The suffix `.pt` of the sidecars is kept for the sake of their known names only: they hold
msgpack, and nothing in them is ever unpickled.
"""

from __future__ import annotations

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
    "is_part",
    "required",
]

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
