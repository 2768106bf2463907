"""Writing a bundle: into a directory that nobody resolves, then synced, sealed, renamed.

All of it blocks; a caller with an event loop runs it in a thread and awaits its end.

Source: spec actions `WriteSidecars`, `WriteManifest`, `PublishBundle`; design, section 9.
"""

from __future__ import annotations

import enum
import hashlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from cutlock.bundle.files import (
    REAL,
    FileSystem,
    Kind,
    Mark,
    digest_files,
    make_durable_directory,
    remove_tree,
    saving,
    walk,
)
from cutlock.bundle.layout import (
    DATA_PLANE,
    MANIFEST,
    POLICY,
    SIDECARS,
    TRAINING_INFO,
    Place,
    directory_name,
    is_part,
    required,
)
from cutlock.bundle.manifest import FileRecord, Manifest, encode_manifest
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

    def __init__(self, root: Path, run_id: str, step: int, fs: FileSystem, attempt: int) -> None:
        """Called by `begin` only; touches nothing."""
        self._fs = fs
        self._root = root
        self._run_id = run_id
        self._step = step
        self._state = _State.OPEN
        self._revoked = False
        self._named = False
        """Whether the bundle has its final name, published or not."""
        self._outcome = threading.Lock()
        """Held while it is settled whether the bundle is published or revoked."""
        self._sealed: bytes
        self._sequence: int
        self._parts: dict[str, FileRecord] = {}
        self.marks: dict[str, Mark] = {}
        """Of every file by its name, from before its digest was taken."""
        self._info_sha256 = ""
        """Of `training_info.json`, which is written last, and says which cut it is of."""
        self.path = root / directory_name(Place.TEMPORARY, step, attempt)
        """Where the parts are written until the bundle is published."""
        self.final = root / directory_name(Place.PUBLISHED, step)
        """Where the bundle is when it is published."""
        self.size = 0
        """Bytes of all files but the manifest, when it is sealed."""
        self.reclaimed: tuple[Path, ...]
        """What was in the way: a dead save's directory (removed), a broken bundle (renamed)."""

    @classmethod
    def begin(
        cls, root: Path, run_id: str, step: int, fs: FileSystem = REAL, *, attempt: int = 1
    ) -> BundleWriter:
        """Make an empty `tmp_step_N/`, and `root` too if it is missing.

        What a dead save of the same step left is removed first. A `step_N/` without a valid
        manifest, which nobody can resume from, is renamed to `abandoned_step_N/`.

        Args:
            attempt: number of the attempt of this process at this step. Each has a directory
                of its own: whoever was too late in an earlier one may still write there.

        Raises:
            BundleExistsError: that step is published.
            SaveError: the operating system refused.
        """
        writer = cls(root, run_id, step, fs, attempt)
        with saving(f"beginning {writer.path}"):
            make_durable_directory(fs, root)
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
            if name == TRAINING_INFO:
                self._info_sha256 = hashlib.sha256(data).hexdigest()

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

    def digest_parts(self) -> dict[str, str]:
        """sha256 by name of what trainer and plane have written, when both have ended.

        The files are read once: `seal` lists what was found here.

        Raises:
            SaveError: the operating system refused.
        """
        with self._stage("digest_parts", _State.OPEN, _State.OPEN):
            names = [name for name in walk(self._fs, self.path).files if is_part(name)]
            self._parts = {record.name: record for record in self._records(names)}
        return {name: record.sha256 for name, record in self._parts.items()}

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
            self.size = sum(file.size for file in files)
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
            self.marks[MANIFEST] = self._fs.mark(self.path / MANIFEST)
        return manifest

    def publish(self) -> Path:
        """Rename to `step_N/`; when this returns, the bundle survives a power loss.

        Raises:
            BundleExistsError: that step was published meanwhile.
            SaveError: another save has taken the directory or has published since the seal,
                or the operating system refused; the bundle is not resolvable then.
        """
        final = self.final
        with self._stage("publish", _State.SEALED, _State.PUBLISHED):
            if self._fs.kind(final) is not None:
                raise _exists(final)
            self._require_unrivalled()
            self._fs.rename(self.path, final)
            self._named = True
            try:
                self._fs.sync_directory(self._root)
                with self._outcome:
                    self._require_wanted("publish")
                    self._state = _State.PUBLISHED
            except (OSError, SaveError):
                with suppress(OSError):
                    self._take_back()
                    if self._revoked:
                        # Whoever gave it up has removed all there was, and looks no more.
                        remove_tree(self._fs, self.path)
                raise
        return final

    def revoke(self) -> bool:
        """Give up a save that another thread may still be at; False if it is published already.

        Returns at once. After True nothing is begun any more, and what is under way publishes
        nothing: `abandon` is left.
        """
        with self._outcome:
            self._revoked = self._state is not _State.PUBLISHED
            return self._revoked

    def abandon(self) -> None:
        """Remove what was written; a second call does nothing, or tries again what failed.

        Raises:
            MisuseError: the bundle is published.
            SaveError: the operating system refused.
        """
        if self._state is _State.PUBLISHED:
            raise MisuseError(f"{self.path.name} is published; prune removes published bundles")
        if self._state is not _State.ABANDONED:
            self._state = _State.FAILED
            with saving(f"abandoning {self.path}"):
                self._take_back()
                remove_tree(self._fs, self.path)
            self._state = _State.ABANDONED

    def _take_back(self) -> None:
        """Of a save that failed: it must not be found by the next start as if it had succeeded."""
        if self._named:
            self._fs.rename(self.final, self.path)
            self._named = False
            # Else a power loss could bring back the published name with files missing.
            self._fs.sync_directory(self._root)

    @contextmanager
    def _stage(self, call: str, needed: _State, then: _State) -> Iterator[None]:
        if self._state is not needed:
            raise MisuseError(
                f"{call}() of {self.path} came when it was {self._state.value}, not "
                f"{needed.value}; the order is begin, write, seal, publish, once each, and "
                "abandon after a failure"
            )
        self._require_wanted(call)
        self._state = _State.FAILED
        with saving(f"{call} of {self.path}"):
            yield
        self._state = then

    def _require_wanted(self, call: str) -> None:
        if self._revoked:
            raise SaveError(
                f"{call} of {self.path} came too late: the save was given up; save again"
            )

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
        read = self._records(name for name in tree.files if name not in self._parts)
        found = self._parts | {record.name: record for record in read}
        records = [found[name] for name in tree.files]
        for name in tree.files:
            fs.sync_file(self.path / name)
        for name in (*required(rows=rows), *parts):
            sizes = [r.size for r in records if r.name == name or r.name.startswith(f"{name}/")]
            if not sum(sizes):
                raise self._refuse(name, "is empty" if sizes else "is missing")
        info = next(record for record in records if record.name == TRAINING_INFO)
        if info.sha256 != self._info_sha256:
            raise self._refuse(info.name, "is not the one written: another save took the directory")
        for name in tree.directories:
            fs.sync_directory(self.path / name)
        fs.sync_directory(self.path)
        return tuple(records)

    def _records(self, names: Iterable[str]) -> list[FileRecord]:
        """Size and digest of files, which are on their way to the disk meanwhile."""
        names = list(names)
        for name in names:
            self._fs.begin_sync(self.path / name)
            self.marks[name] = self._fs.mark(self.path / name)
        digests = digest_files(self._fs, ((self.path / name, None) for name in names))
        return [FileRecord(name, *digest) for name, digest in zip(names, digests, strict=True)]

    def _require_unrivalled(self) -> None:
        if not self._holds_what_was_sealed():
            raise self._refuse(MANIFEST, "is not the one sealed: another save took the directory")
        newest = scan(self._root, None, self._fs).sequence
        if newest >= self._sequence:
            raise self._refuse(
                MANIFEST, f"has sequence {self._sequence}, and {newest} was published meanwhile"
            )

    def _holds_what_was_sealed(self) -> bool:
        try:
            return b"".join(self._fs.read_chunks(self.path / MANIFEST)) == self._sealed
        except FileNotFoundError:
            return False

    def _refuse(self, name: str, what: str) -> SaveError:
        return SaveError(
            f"{self.path}: {name} {what}; nothing was published, abandon this save and save again"
        )


def _exists(path: Path) -> BundleExistsError:
    return BundleExistsError(
        f"{path} is already there; resume from it, set it aside to train that step again, or "
        "give the run a directory of its own"
    )
