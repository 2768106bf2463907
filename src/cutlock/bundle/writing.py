"""Writing a bundle: into a directory that nobody resolves, then synced, sealed, renamed.

All of it blocks; a caller with an event loop runs it in a thread and awaits its end.

Source: spec actions `WriteSidecars`, `WriteManifest`, `PublishBundle`; design, section 9.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from cutlock.bundle.artifacts import DATA_PLANE, MANIFEST, POLICY, SIDECARS, TRAINING_INFO, required
from cutlock.bundle.files import REAL, FileSystem, Kind, digest_file, remove_tree, saving, walk
from cutlock.bundle.manifest import FileRecord, Manifest, encode_manifest
from cutlock.bundle.names import Place, directory_name
from cutlock.bundle.publication import abandon_name, scan
from cutlock.bundle.verification import read_manifest
from cutlock.errors import (
    BundleCorruptError,
    BundleExistsError,
    BundleNotFoundError,
    MisuseError,
    SaveError,
)

__all__ = ["BundleWriter"]


class _State(enum.Enum):
    OPEN = "open"
    SEALED = "sealed"
    PUBLISHED = "published"
    FAILED = "failed"
    ABANDONED = "abandoned"


class BundleWriter:
    """One save: `begin`, then `write` and `directory`, then `seal`, then `publish`.

    After any failure only `abandon` is left. One writer at a time in one run directory.
    """

    def __init__(self, root: Path, run_id: str, step: int, fs: FileSystem) -> None:
        """Called by `begin` only; touches nothing."""
        self._fs = fs
        self._root = root
        self._run_id = run_id
        self._step = step
        self._state = _State.OPEN
        self._sealed = b""
        self._sequence = 0
        self.path = root / directory_name(Place.TEMPORARY, step)
        """Where the parts are written until the bundle is published."""
        self.reclaimed: tuple[Path, ...] = ()
        """What was in the way: a dead save's directory (removed), a broken bundle (renamed)."""

    @classmethod
    def begin(cls, root: Path, run_id: str, step: int, fs: FileSystem = REAL) -> BundleWriter:
        """Make an empty `tmp_step_N/`, and `root` too if it is missing.

        What a dead save of the same step left is removed first. A `step_N/` without a valid
        manifest, which nobody can resume from, is renamed to `abandoned_step_N/`.

        Raises:
            BundleExistsError: that step is published.
            SaveError: the operating system refused.
        """
        writer = cls(root, run_id, step, fs)
        with saving(f"beginning {writer.path}"):
            _make_durable_directory(root, fs)
            writer.reclaimed = writer._clear_the_way()
            fs.make_directory(writer.path)
        return writer

    def write(self, name: str, data: bytes) -> None:
        """Write one of the bundle's own files: a sidecar or `training_info.json`, once.

        Raises:
            MisuseError: `name` is none of them, or the bundle is sealed.
            SaveError: the operating system refused, or the file is there already.
        """
        if name not in (*SIDECARS, TRAINING_INFO):
            known = ", ".join((*SIDECARS, TRAINING_INFO))
            raise MisuseError(f"{name!r} is no file that the save writes; it writes {known}")
        with self._stage("write", _State.OPEN, _State.OPEN):
            self._fs.write_file(self.path / name, data)

    def directory(self, name: str) -> Path:
        """Make the directory of a part that somebody else writes: `policy` or `data_plane`.

        Raises:
            MisuseError: `name` is neither, or the bundle is sealed.
            SaveError: the operating system refused.
        """
        if name not in {POLICY, DATA_PLANE}:
            raise MisuseError(
                f"{name!r} is no directory of a bundle; it has {POLICY} and {DATA_PLANE}"
            )
        path = self.path / name
        with self._stage("directory", _State.OPEN, _State.OPEN):
            if self._fs.kind(path) is not Kind.DIRECTORY:
                self._fs.make_directory(path)
        return path

    def seal(self, cut_id: str, *, rows: bool, parts: Iterable[str] = ()) -> Manifest:
        """Check that all is there, make it durable, and write the manifest last.

        Args:
            rows: whether the save keeps the rows of the plane.
            parts: further files or directories that must be there and not be empty, such as
                one per storage unit or per rank.

        Raises:
            SaveError: a part is missing or empty, something is there that no bundle has, or
                the operating system refused.
        """
        with self._stage("seal", _State.OPEN, _State.SEALED):
            files = self._harden(rows, parts)
            self._sequence = scan(self._root, None, self._fs).sequence + 1
            manifest = Manifest(
                run_id=self._run_id,
                sequence=self._sequence,
                step=self._step,
                cut_id=cut_id,
                files=files,
            ).sealed()
            self._sealed = encode_manifest(manifest)
            self._fs.write_file(self.path / MANIFEST, self._sealed)
            self._fs.sync_file(self.path / MANIFEST)
            self._fs.sync_directory(self.path)
        return manifest

    def publish(self) -> Path:
        """Rename to `step_N/`; when this returns, the bundle survives a power loss.

        Raises:
            BundleExistsError: that step was published meanwhile.
            SaveError: another save has taken the directory or has published since the seal,
                or the operating system refused; the bundle is not resolvable then.
        """
        final = self._root / directory_name(Place.PUBLISHED, self._step)
        with self._stage("publish", _State.SEALED, _State.PUBLISHED):
            if self._fs.kind(final) is not None:
                raise _exists(final)
            self._require_unrivalled()
            self._fs.rename(self.path, final)
            try:
                self._fs.sync_directory(self._root)
            except OSError:
                # A failed save must not be found by the next start as if it had succeeded.
                with suppress(OSError):
                    self._fs.rename(final, self.path)
                raise
        return final

    def abandon(self) -> None:
        """Remove what was written; the second call does nothing.

        Raises:
            MisuseError: the bundle is published.
            SaveError: the operating system refused.
        """
        if self._state is _State.PUBLISHED:
            raise MisuseError(f"{self.path.name} is published; prune removes published bundles")
        if self._state is not _State.ABANDONED:
            self._state = _State.ABANDONED
            with saving(f"abandoning {self.path}"):
                remove_tree(self._fs, self.path)

    @contextmanager
    def _stage(self, call: str, needed: _State, then: _State) -> Iterator[None]:
        if self._state is not needed:
            raise MisuseError(
                f"{call}() of {self.path} came when it was {self._state.value}, not "
                f"{needed.value}; the order is begin, write, seal, publish, once each, and "
                "abandon after a failure"
            )
        self._state = _State.FAILED
        with saving(f"{call} of {self.path}"):
            yield
        self._state = then

    def _clear_the_way(self) -> tuple[Path, ...]:
        fs, moved = self._fs, []
        final = self._root / directory_name(Place.PUBLISHED, self._step)
        if fs.kind(final) is not None:
            try:
                read_manifest(final, fs)
            except (BundleCorruptError, BundleNotFoundError):
                moved.append(abandon_name(self._root, self._step, fs))
                fs.rename(final, moved[0])
            else:
                raise _exists(final)
        if fs.kind(self.path) is not None:
            moved.append(self.path)
            remove_tree(fs, self.path)
        return tuple(moved)

    def _harden(self, rows: bool, parts: Iterable[str]) -> tuple[FileRecord, ...]:
        fs, tree = self._fs, walk(self._fs, self.path)
        known = set(required(rows=rows))
        for name in (*tree.files, *tree.directories, *tree.others):
            if name in tree.others or PurePosixPath(name).parts[0] not in known:
                raise self._refuse(name, "is nothing that a bundle of this save has")
        for name in tree.directories:
            if not any(file.startswith(f"{name}/") for file in tree.files):
                raise self._refuse(name, "is an empty directory, which a manifest cannot list")
        records = []
        for name in tree.files:
            size, sha256 = digest_file(fs, self.path / name)
            fs.sync_file(self.path / name)
            records.append(FileRecord(name, size, sha256))
        for name in (*required(rows=rows), *parts):
            sizes = [r.size for r in records if r.name == name or r.name.startswith(f"{name}/")]
            if not sum(sizes):
                raise self._refuse(name, "is empty" if sizes else "is missing")
        for name in sorted(tree.directories, reverse=True):
            fs.sync_directory(self.path / name)
        fs.sync_directory(self.path)
        return tuple(records)

    def _require_unrivalled(self) -> None:
        try:
            sealed = b"".join(self._fs.read_chunks(self.path / MANIFEST))
        except FileNotFoundError:
            sealed = b""
        if sealed != self._sealed:
            raise self._refuse(MANIFEST, "is not the one sealed: another save took the directory")
        newest = scan(self._root, None, self._fs).sequence
        if newest >= self._sequence:
            raise self._refuse(
                MANIFEST, f"has sequence {self._sequence}, and {newest} was published meanwhile"
            )

    def _refuse(self, name: str, what: str) -> SaveError:
        return SaveError(
            f"{self.path}: {name} {what}; nothing was published, abandon this save and save again"
        )


def _exists(path: Path) -> BundleExistsError:
    return BundleExistsError(
        f"{path} is already there; resume from it, set it aside to train that step again, or "
        "give the run a directory of its own"
    )


def _make_durable_directory(path: Path, fs: FileSystem) -> None:
    if fs.kind(path.parent) is None:
        _make_durable_directory(path.parent, fs)
    if fs.kind(path) is None:
        fs.make_directory(path)
    # Even if somebody else made it: a bundle is no more durable than the names above it.
    fs.sync_directory(path.parent)
