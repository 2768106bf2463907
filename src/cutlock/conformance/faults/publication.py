"""Bundles that are published too early, or are of two saves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from safetensors.torch import save as save_tensors

from cutlock.alphabet import Action
from cutlock.buffer import ReplayBuffer
from cutlock.bundle import contents, publication
from cutlock.bundle.contents import Recovery, Sidecar, TrainingInfo, encode_training_info
from cutlock.bundle.files import REAL, digest_file, walk
from cutlock.bundle.layout import (
    DATA_PLANE,
    INDEX,
    LEDGER,
    LOADER,
    MANIFEST,
    RESERVE,
    TRAINING_INFO,
    Place,
    directory_name,
    parse_name,
)
from cutlock.bundle.manifest import FileRecord, Manifest, decode_manifest, encode_manifest
from cutlock.bundle.verification import read_manifest
from cutlock.bundle.writing import BundleWriter
from cutlock.conformance.faults.switch import Fault, Patch, Switch, nothing
from cutlock.conformance.stepping.doing import Doing, Move, Records
from cutlock.errors import BundleCorruptError, BundleNotFoundError
from cutlock.records import IndexEntry, LedgerRecord, LoaderState, Occurrence
from cutlock.run import open_save
from cutlock.run.directory import RunDirectory

__all__ = ["PUBLICATION_FAULTS", "Change", "of_before", "renamed"]

# Too early.


def _published_without(*skipped: Action) -> Mapping[str, Move]:
    """The rename is made although what these actions write is not there."""

    def publish(doing: Doing) -> Records:
        for action in skipped:
            doing.release(action)
            doing.quiesce()
        doing.release(Action.PUBLISH_BUNDLE)
        return (*skipped, Action.PUBLISH_BUNDLE)

    return {Action.PUBLISH_BUNDLE: publish}


def _rename(writer: BundleWriter) -> Path:
    final = writer._root / directory_name(Place.PUBLISHED, writer._step)
    writer._fs.rename(writer.path, final)
    return final


_UNSEALED = (Patch(BundleWriter, "seal", nothing), Patch(BundleWriter, "publish", _rename))


def _resolved(path: Path, *more: Any) -> Manifest:
    """Whatever has the name of a bundle is taken for one."""
    try:
        return read_manifest(path, *more)
    except (BundleCorruptError, BundleNotFoundError):
        parsed = parse_name(path.name)
        assert parsed is not None
        run_id = RunDirectory(path.parent).facts().run_id
        return Manifest(run_id=run_id, sequence=parsed[1], step=parsed[1], cut_id="", files=())


_RESOLVES_WITHOUT_MANIFEST = Switch(patches=(Patch(publication, "read_manifest", _resolved),))


# Of two saves.

Change = Callable[[Path, Path | None], None]
"""Alters an unpublished bundle; the second is the bundle before it, if there is one."""


def renamed(*changes: Change) -> Switch:
    """What the rename makes resolvable is altered, under a manifest that fits it."""
    original = BundleWriter.publish

    def publish(writer: BundleWriter) -> Path:
        found = publication.scan(writer._root, writer._run_id).bundles
        for change in changes:
            change(writer.path, found[-1].path if found else None)
        writer._sealed = _reseal(writer.path)
        return original(writer)

    return Switch(patches=(Patch(BundleWriter, "publish", publish),))


def _reseal(bundle: Path) -> bytes:
    path = bundle / MANIFEST
    manifest = decode_manifest(path.read_bytes(), bundle)
    names = [name for name in walk(REAL, bundle).files if name != MANIFEST]
    files = tuple(FileRecord(name, *digest_file(REAL, bundle / name)) for name in names)
    sealed = encode_manifest(msgspec.structs.replace(manifest, files=files).sealed())
    path.write_bytes(sealed)
    return sealed


_SIDECARS: Mapping[str, tuple[Any, Any]] = {
    LOADER: (Sidecar[LoaderState], LoaderState(0, 0, False, None)),
    RESERVE: (Sidecar[tuple[Occurrence, ...]], ()),
    INDEX: (Sidecar[tuple[IndexEntry, ...]], ()),
    LEDGER: (Sidecar[Recovery], Recovery((), (), 0, 0)),
}
"""Per sidecar: what it is, and the payload of a run that has not begun."""


def _sidecar(bundle: Path, name: str) -> Sidecar[Any]:
    found: Sidecar[Any] = msgspec.msgpack.decode(
        (bundle / name).read_bytes(), type=_SIDECARS[name][0]
    )
    return found


def of_before(name: str, *, header: bool = False) -> Change:
    """A sidecar has the content of the save before; the ledger's, its groups.

    Args:
        header: its cut_id as well; if not, it says that it is of this save.
    """

    def change(bundle: Path, before: Path | None) -> None:
        new = _sidecar(bundle, name)
        old = Sidecar(new.schema, name, "nothing", _SIDECARS[name][1])
        if before is not None:
            old = _sidecar(before, name)
        payload = old.payload
        if name == LEDGER:
            payload = msgspec.structs.replace(new.payload, groups=payload.groups)
        cut_id = old.cut_id if header else new.cut_id
        stale = msgspec.structs.replace(new, payload=payload, cut_id=cut_id)
        (bundle / name).write_bytes(msgspec.msgpack.encode(stale))

    return change


def _cursor_of_before(bundle: Path, before: Path | None) -> None:
    cursor = -1 if before is None else _info(before).cursor
    stale = msgspec.structs.replace(_info(bundle), cursor=cursor)
    (bundle / TRAINING_INFO).write_bytes(encode_training_info(stale))


def _info(bundle: Path) -> TrainingInfo:
    return msgspec.json.decode((bundle / TRAINING_INFO).read_bytes(), type=TrainingInfo)


def _rows_of_before(bundle: Path, before: Path | None) -> None:
    for unit in (bundle / DATA_PLANE).glob("unit_*"):
        old = None if before is None else before / DATA_PLANE / unit.name
        unit.write_bytes(save_tensors({}) if old is None else old.read_bytes())


def _reserves_what_is_finished() -> Switch:
    original = ReplayBuffer.reserve

    def reserve(buffer: ReplayBuffer, record: LedgerRecord) -> int:
        ready, claimed = buffer._ready, buffer._claimed
        buffer._ready, buffer._claimed = {}, {}
        try:
            return original(buffer, record)
        finally:
            buffer._ready, buffer._claimed = ready, claimed

    return Switch(patches=(Patch(ReplayBuffer, "reserve", reserve),))


def _stale(mutant: str, what: str, change: Change, blind: Mapping[str, str] | None = None) -> Fault:
    return Fault(
        name=f"{mutant}_published",
        what=f"a bundle is published with {what} of the save before",
        mutants=(mutant,),
        protection=renamed(change),
        blind=blind or {},
    )


PUBLICATION_FAULTS = (
    Fault(
        name="rename_before_manifest",
        what="a bundle is renamed before its manifest is written",
        mutants=("rename_before_manifest", "never_resumed"),
        protection=Switch(patches=_UNSEALED, moves=_published_without(Action.WRITE_MANIFEST)),
        second_lines=_RESOLVES_WITHOUT_MANIFEST,
    ),
    Fault(
        name="rename_before_sidecars",
        what="a bundle is renamed before its sidecars are written",
        mutants=("rename_before_sidecars",),
        protection=Switch(
            patches=(*_UNSEALED, Patch(open_save, "_write_all", nothing)),
            moves=_published_without(Action.WRITE_SIDECARS, Action.WRITE_MANIFEST),
        ),
        second_lines=_RESOLVES_WITHOUT_MANIFEST,
        blind={"disk.of": "there is no sidecar to read a cut_id from"},
    ),
    _stale("stale_loader", "the loader", of_before(LOADER)),
    _stale("stale_cursor", "the cursor", _cursor_of_before),
    _stale(
        "stale_index",
        "the index",
        of_before(INDEX),
        {"disk.idx": "a finished group's stamp is in the index, and goes with it"},
    ),
    _stale("stale_ledger", "the ledger", of_before(LEDGER)),
    _stale("stale_rows", "the rows", _rows_of_before),
    _stale("stale_pool", "the spare pool", of_before(RESERVE)),
    Fault(
        name="mixed_bundle_accepted",
        what="a resume takes artifacts of two saves, and a cursor below a stamp",
        mutants=("digest_binds_too_little", "mixed_bundle_restored"),
        world=renamed(
            of_before(LOADER, header=True), of_before(RESERVE, header=True), _cursor_of_before
        ),
        protection=Switch(
            patches=(
                Patch(contents, "_compare", nothing),
                Patch(contents, "problems", lambda cut: ()),
            )
        ),
        second_lines=_reserves_what_is_finished(),
        blind={
            "disk.of.cursor": "the cursor is in the file of the version, under the same cut_id",
            "rows": "the spec has one row per group and unit, the code one per attempt",
        },
    ),
)
