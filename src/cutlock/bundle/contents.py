"""What the files of a bundle hold, and the way from a `Snapshot` to them and back.

The four sidecars are msgpack: a header with schema, artifact and cut_id, and one payload.
`training_info.json` holds the rest of the cut and what a person wants to read. Nothing here
unpickles anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from cutlock.buffer import index_digest
from cutlock.bundle.consistency import problems
from cutlock.bundle.layout import (
    DATA_PLANE,
    INDEX,
    LEDGER,
    LOADER,
    MANIFEST,
    RESERVE,
    STAMP,
    TRAINING_INFO,
    is_part,
)
from cutlock.bundle.strict import corrupt, decode_json, decode_msgpack
from cutlock.bundle.verification import VerifiedBundle
from cutlock.errors import SaveError
from cutlock.plane.base import PlaneInfo, PlaneStamp, StampFile
from cutlock.records import IndexEntry, LedgerRecord, LoaderState, Occurrence, Snapshot, digest_of

__all__ = [
    "SCHEMA",
    "Recovery",
    "Sidecar",
    "TrainingInfo",
    "decode_cut",
    "encode_sidecars",
    "encode_training_info",
    "plane_stamp",
    "read_training_info",
]

SCHEMA = 1
"""Of the sidecars and of `training_info.json`; raised with every change of their content."""

T = TypeVar("T")
_Count = Annotated[int, msgspec.Meta(ge=0)]


class Sidecar(msgspec.Struct, Generic[T], frozen=True, forbid_unknown_fields=True):
    """One sidecar file: header and payload."""

    schema: int
    artifact: str
    """Name of the file, so that one cannot stand in for another."""
    cut_id: str
    payload: T


class Recovery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Payload of `rollout_recovery.pt`."""

    groups: tuple[LedgerRecord, ...]
    """The ledger without the groups that the index owns."""
    shortfall: tuple[tuple[int, int], ...]
    next_admission: int
    dropped: int


class TrainingInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Content of `training_info.json`: the cut's counters, and the run around them."""

    schema: int = SCHEMA
    run_id: str
    cut_id: str
    step: int
    version: int
    epoch: int
    """Of the loader; equal to the one in `train_dataloader.pt`."""
    cursor: int
    sampler: str
    """Name of the sampler, which gives the cursor its meaning."""
    incarnation: _Count
    """Start number of the controller that saved."""
    log_records: _Count
    """Records of that incarnation's event log that belong to this cut's past."""
    trained_groups: _Count
    """Groups trained in the surviving history."""
    trained_chain: str
    """Digest over those groups in the order of their training."""
    rows: bool
    """Whether `data_plane/` holds the rows of the index."""
    plane: PlaneInfo | None
    """The store of the rows; None without rows."""
    parts: dict[str, str]
    """sha256 by name of the files of trainer and plane: they carry no cut_id of their own."""
    config: dict[str, Any]
    config_digest: str
    """`digest_of(config)`."""
    data_set: str
    """The data set in words: name and number of prompts."""
    data_set_digest: str
    """Over all its prompts in order: the loader's position means nothing in another one."""
    packages: dict[str, str]
    """Package name to version."""


def encode_sidecars(cut: Snapshot) -> dict[str, bytes]:
    """The four sidecars by file name; equal cuts give equal bytes.

    Raises:
        SaveError: the loader's inner state is not plain data, so a restore would not get
            back what was saved.
    """
    _require_plain(cut.loader)
    recovery = Recovery(cut.ledger, cut.shortfall, cut.next_admission, cut.dropped)
    payloads: dict[str, object] = {
        LOADER: cut.loader,
        RESERVE: cut.spare_pool,
        INDEX: cut.index,
        LEDGER: recovery,
    }
    cut_id = cut.cut_id
    encoder = msgspec.msgpack.Encoder(order="deterministic")
    return {
        name: encoder.encode(Sidecar(SCHEMA, name, cut_id, payload))
        for name, payload in payloads.items()
    }


def encode_training_info(info: TrainingInfo) -> bytes:
    """The bytes of `training_info.json`."""
    return msgspec.json.format(msgspec.json.encode(info, order="sorted")) + b"\n"


def plane_stamp(cut: Snapshot, sidecars: Mapping[str, bytes], plane: PlaneInfo) -> PlaneStamp:
    """The stamp that binds a snapshot of the plane to `cut` and to its encoded sidecars."""
    return PlaneStamp(
        cut_id=cut.cut_id,
        step=cut.step,
        version=cut.version,
        index_digest=index_digest(cut.index),
        index_groups=len(cut.index),
        ledger_sha256=hashlib.sha256(sidecars[LEDGER]).hexdigest(),
        ledger_groups=len(cut.ledger),
        plane=plane,
    )


def read_training_info(bundle: VerifiedBundle) -> TrainingInfo:
    """Read `training_info.json` and compare it with the manifest.

    Raises:
        BundleCorruptError: it cannot be read as one, or is of another save.
    """
    data = bundle.read(TRAINING_INFO)
    info = decode_json(data, TrainingInfo, SCHEMA, bundle.path, TRAINING_INFO)
    _compare(
        bundle,
        TRAINING_INFO,
        run_id=(bundle.manifest.run_id, info.run_id),
        cut_id=(bundle.manifest.cut_id, info.cut_id),
        step=(bundle.manifest.step, info.step),
        config_digest=(digest_of(info.config), info.config_digest),
        rows=(DATA_PLANE in bundle, info.rows),
    )
    parts = {f.name: f.sha256 for f in bundle.manifest.files if is_part(f.name)}
    for name in sorted(parts.keys() | info.parts.keys()):
        if (saved := info.parts.get(name)) != (found := parts.get(name)):
            raise corrupt(
                bundle.path, name, f"sha256 {saved} in {TRAINING_INFO}, {found} in {MANIFEST}"
            )
    return info


def decode_cut(bundle: VerifiedBundle) -> Snapshot:
    """Read the cut back, and show that all artifacts are of this one cut.

    Source: spec action `VerifyBundle`; design, sections 9 and 10.

    Raises:
        BundleCorruptError: a file cannot be read as what it is, is of another save, or the
            cut is one that the protocol forbids.
    """
    info = read_training_info(bundle)
    loader = _unpack(bundle, LOADER, Sidecar[LoaderState])
    spare_pool = _unpack(bundle, RESERVE, Sidecar[tuple[Occurrence, ...]])
    index = _unpack(bundle, INDEX, Sidecar[tuple[IndexEntry, ...]])
    recovery = _unpack(bundle, LEDGER, Sidecar[Recovery])
    cut = Snapshot(
        step=info.step,
        version=info.version,
        cursor=info.cursor,
        next_admission=recovery.next_admission,
        loader=loader,
        spare_pool=spare_pool,
        index=index,
        ledger=recovery.groups,
        shortfall=recovery.shortfall,
        dropped=recovery.dropped,
    )
    _compare(
        bundle,
        TRAINING_INFO,
        epoch=(loader.epoch, info.epoch),
        cut_id=(cut.cut_id, info.cut_id),
    )
    if info.rows:
        _check_stamp(bundle, cut, info)
    for problem in problems(cut):
        raise corrupt(bundle.path, problem.file, problem.what)
    return cut


def _require_plain(state: LoaderState) -> None:
    try:
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(state.inner))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SaveError(
            f"the loader's state cannot be saved: {error}; give it a state of dicts, lists, "
            "strings and numbers of 64 bits"
        ) from error
    if again != state.inner:
        raise SaveError(
            f"the loader's state {state.inner!r} would come back as {again!r}; give it a state "
            "of dicts, lists, strings and numbers"
        )


def _unpack(bundle: VerifiedBundle, name: str, kind: type[Sidecar[T]]) -> T:
    sidecar = decode_msgpack(bundle.read(name), kind, SCHEMA, bundle.path, name)
    _compare(
        bundle,
        name,
        artifact=(name, sidecar.artifact),
        cut_id=(bundle.manifest.cut_id, sidecar.cut_id),
    )
    return sidecar.payload


def _check_stamp(bundle: VerifiedBundle, cut: Snapshot, info: TrainingInfo) -> None:
    if info.plane is None:
        raise corrupt(bundle.path, TRAINING_INFO, "rows is true, and plane is null")
    expected = plane_stamp(cut, {LEDGER: bundle.read(LEDGER)}, info.plane)
    found = _read_stamp(bundle)
    _compare(
        bundle,
        STAMP,
        **{
            name: (getattr(expected, name), getattr(found, name))
            for name in expected.__struct_fields__
        },
    )


def _read_stamp(bundle: VerifiedBundle) -> PlaneStamp:
    snapshot = decode_json(bundle.read(STAMP), StampFile, None, bundle.path, STAMP)
    _compare(bundle, STAMP, storage_saved=(True, snapshot.storage_saved))
    return snapshot.user_metadata


def _compare(bundle: VerifiedBundle, file: str, /, **values: tuple[object, object]) -> None:
    for name, (expected, found) in values.items():
        if found != expected:
            raise corrupt(bundle.path, file, f"{name} {expected!r} expected, {found!r} found")
