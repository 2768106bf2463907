"""Small cuts and bundles for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from cutlock.bundle.contents import (
    TrainingInfo,
    encode_sidecars,
    encode_training_info,
    plane_stamp,
)
from cutlock.bundle.files import REAL, FileSystem, digest_file, walk
from cutlock.bundle.layout import DATA_PLANE, MANIFEST, POLICY, TRAINING_INFO, is_part
from cutlock.bundle.manifest import FileRecord, decode_manifest, encode_manifest
from cutlock.bundle.writing import BundleWriter
from cutlock.plane.base import PlaneInfo, write_stamp
from cutlock.records import (
    IndexEntry,
    LedgerRecord,
    LoaderState,
    Occurrence,
    Phase,
    Snapshot,
    digest_of,
)

PLANE = PlaneInfo(kind="memory", version="1", units=2)

PARTS = {
    f"{POLICY}/weights.safetensors": b"weights of step %d",
    f"{POLICY}/optimizer.pt": b"optimizer of step %d",
    f"{POLICY}/trainer.json": b'{"step": %d}',
    f"{DATA_PLANE}/units/unit_0": b"rows of step %d in unit 0",
    f"{DATA_PLANE}/units/unit_1": b"rows of step %d in unit 1",
}
"""Files that the trainer and the plane write, by name."""


def prompt(number: int, epoch: int = 0) -> Occurrence:
    return Occurrence(epoch, number, f"p{number}", f"digest-{number}")


def finished(number: int, **changes: Any) -> IndexEntry:
    entry = IndexEntry(
        group_id=f"p{number}@0",
        admission_id=0,
        occurrence=prompt(number),
        dispatch_index=7,
        stamp=7,
        start_weight=6,
        end_weight=7,
        row_keys=(f"p{number}@0/0", f"p{number}@0/1"),
    )
    return msgspec.structs.replace(entry, **changes)


def admitted(number: int, **changes: Any) -> LedgerRecord:
    record = LedgerRecord(f"p{number}@0", 1, prompt(number), Phase.ADMITTED, 8, 8, 7)
    return msgspec.structs.replace(record, **changes)


def reserved(number: int, **changes: Any) -> LedgerRecord:
    return msgspec.structs.replace(LedgerRecord(f"p{number}@0", 2, prompt(number)), **changes)


def sample_cut(step: int = 7, **changes: Any) -> Snapshot:
    cut = Snapshot(
        step=step,
        version=step,
        cursor=step + 1,
        next_admission=3,
        loader=LoaderState(0, 7, False, {"offset": 7, "seeds": [1, 2], "nested": {"a": None}}),
        spare_pool=(prompt(5), prompt(6)),
        index=(finished(0), finished(1)),
        ledger=(admitted(2), admitted(3), reserved(4)),
        shortfall=((8, 1),),
        dropped=1,
    )
    return msgspec.structs.replace(cut, **changes)


def sample_info(cut: Snapshot, run_id: str = "run", **changes: Any) -> TrainingInfo:
    config = {"prompts_per_step": 4, "sampler": {"name": "in_order", "window": 1}}
    info = TrainingInfo(
        run_id=run_id,
        cut_id=cut.cut_id,
        step=cut.step,
        version=cut.version,
        epoch=cut.loader.epoch,
        cursor=cut.cursor,
        sampler="in_order",
        incarnation=1,
        log_records=120,
        trained_groups=28,
        trained_chain="chain",
        rows=True,
        plane=PLANE,
        parts={},
        config=config,
        config_digest=digest_of(config),
        data_set="sample",
        data_set_digest="d" * 64,
        packages={"torch": "2.13"},
    )
    return msgspec.structs.replace(info, **changes)


def fill(writer: BundleWriter, cut: Snapshot, info: TrainingInfo) -> None:
    """Write every part of a bundle; the trainer's and the plane's behind the writer's back."""
    sidecars = encode_sidecars(cut)
    writer.directory(POLICY)
    if info.rows:
        (writer.directory(DATA_PLANE) / "units").mkdir()
        write_stamp(writer.directory(DATA_PLANE), plane_stamp(cut, sidecars, PLANE))
    for name, content in PARTS.items():
        if info.rows or not name.startswith(DATA_PLANE):
            (writer.path / name).write_bytes(content % cut.step)
    for name, data in sidecars.items():
        writer.write(name, data)
    info = msgspec.structs.replace(info, parts=writer.digest_parts())
    writer.write(TRAINING_INFO, encode_training_info(info))


def save(
    root: Path,
    step: int = 7,
    *,
    run_id: str = "run",
    cut: Snapshot | None = None,
    fs: FileSystem = REAL,
    **changes: Any,
) -> Path:
    """Write and publish a whole bundle; `changes` go into its training info."""
    cut = cut or sample_cut(step)
    info = sample_info(cut, run_id, **changes)
    writer = BundleWriter.begin(root, run_id, step, fs)
    fill(writer, cut, info)
    writer.seal(cut.cut_id, rows=info.rows)
    return writer.publish()


def reseal(bundle: Path) -> None:
    """Give a tampered bundle a manifest that fits its files, so that only meaning is checked."""
    path = bundle / MANIFEST
    manifest = decode_manifest(path.read_bytes(), bundle)
    names = [name for name in walk(REAL, bundle).files if name != MANIFEST]
    files = tuple(FileRecord(name, *digest_file(REAL, bundle / name)) for name in names)
    sealed = msgspec.structs.replace(manifest, files=files).sealed()
    path.write_bytes(encode_manifest(sealed))


def reseal_all(bundle: Path) -> None:
    """As `reseal`, with the digests of trainer's and plane's files too: nothing notices."""
    info = msgspec.json.decode((bundle / TRAINING_INFO).read_bytes(), type=TrainingInfo)
    parts = {n: digest_file(REAL, bundle / n)[1] for n in walk(REAL, bundle).files if is_part(n)}
    info = msgspec.structs.replace(info, parts=parts)
    (bundle / TRAINING_INFO).write_bytes(encode_training_info(info))
    reseal(bundle)
