"""Proof that a bundle is whole; nothing of a bundle is parsed before it.

Source: spec action `VerifyBundle`; design, sections 9 and 10, promise P6.
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path

from cutlock.bundle.files import REAL, FileSystem, Kind, bounded, digest_files, walk
from cutlock.bundle.layout import DATA_PLANE, MANIFEST, Place, parse_name, required
from cutlock.bundle.manifest import LONGEST, FileRecord, Manifest, decode_manifest
from cutlock.bundle.strict import corrupt
from cutlock.errors import BundleNotFoundError, MisuseError

__all__ = ["VerifiedBundle", "read_manifest", "verify"]

_TOKEN = object()


class VerifiedBundle:
    """A bundle whose every file was read and found as its manifest says.

    Only `verify` makes one, so whatever takes one cannot be given an unchecked directory.
    """

    def __init__(self, token: object, path: Path, manifest: Manifest, fs: FileSystem) -> None:
        """Called by `verify` only."""
        if token is not _TOKEN:
            raise MisuseError("a VerifiedBundle cannot be made by hand; call verify(path)")
        self._fs = fs
        self._files = {file.name: file for file in manifest.files}
        self.path = path
        self.manifest = manifest

    def __contains__(self, name: str) -> bool:
        """Whether the bundle holds that file, or files in that directory."""
        return name in self._files or any(file.startswith(f"{name}/") for file in self._files)

    def read(self, name: str) -> bytes:
        """The bytes of a file, hashed again: what changed since `verify` is refused.

        Raises:
            BundleCorruptError: the bundle has no such file, or it has changed.
        """
        record = self._files.get(name)
        if record is None:
            raise corrupt(self.path, name, "is no file of this bundle's manifest")
        try:
            data = b"".join(bounded(self._fs.read_chunks(self.path / name), record.size))
        except OSError as error:
            raise corrupt(self.path, name, f"cannot be read any more: {error}") from error
        _compare(self.path, record, len(data), hashlib.sha256(data).hexdigest())
        return data

    def directory(self, name: str) -> Path:
        """The path of a directory whose files were verified, for a reader of its own.

        Raises:
            BundleCorruptError: the bundle has no such directory, or it is gone.
        """
        path = self.path / name
        if name in self._files or name not in self or self._fs.kind(path) is not Kind.DIRECTORY:
            raise corrupt(self.path, name, "is no directory of this bundle")
        return path


def read_manifest(path: Path, fs: FileSystem = REAL) -> Manifest:
    """Read and check the manifest of the bundle at `path`, and no other file.

    Raises:
        BundleNotFoundError: there is nothing at `path`.
        BundleCorruptError: `path` is no directory, or its manifest is absent, altered, or
            of another step than the directory's name.
    """
    try:
        if (kind := fs.kind(path)) is None:
            raise BundleNotFoundError(f"{path} does not exist; give the path of a step_N directory")
        if kind is not Kind.DIRECTORY:
            raise corrupt(path, ".", f"a directory was expected, a {kind.value} was found")
        if (kind := fs.kind(path / MANIFEST)) is not Kind.FILE:
            found = "nothing" if kind is None else f"a {kind.value}"
            raise corrupt(path, MANIFEST, f"a file was expected, {found} was found")
        data = b"".join(bounded(fs.read_chunks(path / MANIFEST), LONGEST))
    except OSError as error:
        raise corrupt(path, MANIFEST, f"cannot be read: {error}") from error
    if len(data) > LONGEST:
        raise corrupt(path, MANIFEST, f"at most {LONGEST} bytes expected, more found")
    manifest = decode_manifest(data, path)
    parsed = parse_name(path.name)
    if parsed is not None and parsed[1] != manifest.step:
        raise corrupt(
            path, MANIFEST, f"step {parsed[1]} expected by the name, step {manifest.step} found"
        )
    return manifest


def verify(path: Path, fs: FileSystem = REAL) -> VerifiedBundle:
    """Read every file of the bundle at `path` and compare it with the manifest.

    Raises:
        BundleNotFoundError: there is nothing at `path`, or it is of a save that was never
            published or has been given up.
        BundleCorruptError: naming the bundle, the file, what was expected and what found.
    """
    parsed = parse_name(path.name)
    if parsed is not None and parsed[0] is not Place.PUBLISHED:
        raise BundleNotFoundError(
            f"{path} is {parsed[0].name.lower()} and no published bundle; resume from a step_N"
        )
    manifest = read_manifest(path, fs)
    try:
        tree = walk(fs, path)
    except OSError as error:
        raise corrupt(path, ".", f"cannot be listed: {error}") from error
    listed = {file.name for file in manifest.files}
    if tree.others:
        raise corrupt(path, tree.others[0], "a link or special file, of which a bundle has none")
    for name in sorted(listed.difference(tree.files)):
        found = "a directory" if name in tree.directories else "missing"
        raise corrupt(path, name, f"is a file in the manifest, and {found} on disk")
    for name in sorted(set(tree.files) - listed - {MANIFEST}):
        raise corrupt(path, name, "is on disk, and not in the manifest")
    for name in sorted(set(tree.directories) - _parents(listed)):
        raise corrupt(path, name, "is a directory on disk with no file in the manifest")
    bundle = VerifiedBundle(_TOKEN, path, manifest, fs)
    for name in required(rows=DATA_PLANE in bundle):
        if name not in bundle:
            raise corrupt(path, name, "is required, and not in the manifest")
    digests = digest_files(fs, ((path / file.name, file.size) for file in manifest.files))
    with closing(digests):
        for record in manifest.files:
            try:
                size, sha256 = next(digests)
            except OSError as error:
                raise corrupt(path, record.name, f"cannot be read: {error}") from error
            _compare(path, record, size, sha256)
    return bundle


def _compare(path: Path, record: FileRecord, size: int, sha256: str) -> None:
    if size != record.size:
        found = size if size < record.size else "more"
        raise corrupt(path, record.name, f"{record.size} bytes expected, {found} found")
    if sha256 != record.sha256:
        raise corrupt(path, record.name, f"sha256 {record.sha256} expected, {sha256} found")


def _parents(names: set[str]) -> set[str]:
    return {name[:end] for name in names for end, char in enumerate(name) if char == "/"}
