"""Plain records that the parts of the runtime exchange and that a bundle holds on disk.

All are immutable, strict on reading, and made of strings, numbers and other records, so
that a bundle needs no unpickling. Those of which there are many hold nothing that could lead
back to them (`gc=False`), so that the garbage collector need not look at them.
"""

from __future__ import annotations

import enum
import functools
import hashlib
from typing import Any

import msgspec

__all__ = [
    "IndexEntry",
    "LedgerRecord",
    "LoaderState",
    "Occurrence",
    "Phase",
    "Snapshot",
    "canonical_json",
    "digest_of",
]


class Occurrence(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True, gc=False):
    """One prompt in one epoch: the unit that has exactly one owner (promise P2)."""

    epoch: int
    position: int
    """Index in the data set; informative, the prompt is found by `prompt_id`."""
    prompt_id: str
    """Stable across runs and independent of the position."""
    digest: str
    """Digest of the prompt's content, to notice a data set that was edited."""

    @property
    def key(self) -> str:
        """The group id of this occurrence: stable over retries and restarts."""
        return f"{self.prompt_id}@{self.epoch}"


class Phase(enum.StrEnum):
    """How far the ledger's owner has come; a group leaves the ledger by commit or drop."""

    RESERVED = "RESERVED"
    ADMITTED = "ADMITTED"


class LedgerRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Owner of one occurrence between the loader (or the spare pool) and the buffer."""

    group_id: str
    admission_id: int
    """Shared by the batch that is admitted together, and never used twice."""
    occurrence: Occurrence
    phase: Phase = Phase.RESERVED
    dispatch_index: int | None = None
    """The sampler's cursor right after this batch was admitted."""
    stamp: int | None = None
    """The trainer step that the group is meant for; None under samplers that do not stamp."""
    start_weight: int | None = None
    """Trainer version at admission."""


class IndexEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One finished group: which rows of the plane belong to it."""

    group_id: str
    admission_id: int
    occurrence: Occurrence
    dispatch_index: int
    stamp: int | None
    start_weight: int
    end_weight: int
    """Trainer version at commit."""
    row_keys: tuple[str, ...]


class LoaderState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the dataloader stands; epoch and position belong together (promise P3)."""

    epoch: int
    position: int
    """Prompts handed out in this epoch."""
    exhausted: bool
    """No epoch is left: the loader hands out nothing more, after a restore neither."""
    inner: dict[str, Any] | None
    """State of the wrapped loader within the epoch; None at the start of an epoch."""


class Snapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """Everything that a checkpoint reads inside its exclusive window, of one instant."""

    step: int
    """Training steps finished; equal to `version` as long as every step syncs."""
    version: int
    cursor: int
    next_admission: int
    loader: LoaderState
    spare_pool: tuple[Occurrence, ...]
    index: tuple[IndexEntry, ...]
    ledger: tuple[LedgerRecord, ...]
    """Without the groups that the index owns."""
    shortfall: tuple[tuple[int, int], ...]
    """(step, number of groups that it goes without), sorted."""
    dropped: int
    """Occurrences dropped for good so far."""

    @functools.cached_property
    def cut_id(self) -> str:
        """sha256 over all of it; carried by every artifact of the bundle."""
        return digest_of(self)


def canonical_json(value: object) -> bytes:
    """Encode plain data or records so that equal values give equal bytes."""
    return msgspec.json.encode(value, order="sorted")


def digest_of(value: object) -> str:
    """sha256 hex of the canonical encoding."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
