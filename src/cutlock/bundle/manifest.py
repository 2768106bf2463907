"""The manifest: the list of a bundle's files, written last, that makes it a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from cutlock.bundle.layout import MANIFEST
from cutlock.bundle.strict import corrupt, decode_json
from cutlock.records import digest_of

__all__ = [
    "LONGEST",
    "SCHEMA",
    "FileRecord",
    "Manifest",
    "decode_manifest",
    "encode_manifest",
]

SCHEMA = 1

LONGEST = 64 * 1024 * 1024
"""Bytes of the longest manifest that is read: some 400,000 files."""

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class FileRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a bundle."""

    name: str
    """Posix path relative to the bundle."""
    size: _Count
    """Bytes."""
    sha256: _Sha256


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every file of one bundle but the manifest itself."""

    schema: int = SCHEMA
    run_id: str
    sequence: _Count
    """Rises with every bundle that is published into one run directory, across runs."""
    step: _Count
    cut_id: str
    files: tuple[FileRecord, ...]
    """Sorted by name."""
    manifest_sha256: str = ""
    """sha256 over the rest: this record with the field left empty."""

    def sealed(self) -> Manifest:
        """The same manifest with its digest filled in."""
        return msgspec.structs.replace(self, manifest_sha256=self._digest())

    def holds(self) -> bool:
        """Whether the digest fits the rest."""
        return self.manifest_sha256 == self._digest()

    def _digest(self) -> str:
        return digest_of(msgspec.structs.replace(self, manifest_sha256=""))


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of the file."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode_manifest(data: bytes, bundle: Path) -> Manifest:
    """Read a manifest and check all that can be checked without the other files.

    Raises:
        BundleCorruptError: it was altered, or a file name would leave the bundle.
    """
    manifest = decode_json(data, Manifest, SCHEMA, bundle, MANIFEST)
    if not manifest.holds():
        raise corrupt(
            bundle,
            MANIFEST,
            f"its digest {manifest.manifest_sha256!r} is not that of the rest of it",
        )
    if encode_manifest(manifest) != data:
        raise corrupt(bundle, MANIFEST, "its bytes are not those that its content is written as")
    names = [file.name for file in manifest.files]
    if sorted(set(names)) != names:
        raise corrupt(bundle, MANIFEST, f"its {len(names)} files are not sorted and distinct")
    for name in names:
        if name == MANIFEST or any(part in {"", ".", ".."} for part in name.split("/")):
            raise corrupt(bundle, MANIFEST, f"{name!r} is no path of a file inside the bundle")
    return manifest
