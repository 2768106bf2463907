"""The run directory: which bundle is the latest, what is debris, and what may go.

Only `step_N/` with a valid manifest can be resolved. Order is that of the manifests'
sequence numbers, never of step numbers or clocks.

Source: spec actions `PublishBundle`, `PruneBundles`; design, section 9, promise P8.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cutlock.bundle.files import REAL, FileSystem, Mark, remove_tree, saving, walk
from cutlock.bundle.layout import Place, directory_name, parse_name
from cutlock.bundle.manifest import Manifest
from cutlock.bundle.verification import read_manifest, verify
from cutlock.errors import BundleCorruptError, BundleNotFoundError, ConfigError, MisuseError

__all__ = [
    "Bundle",
    "Debris",
    "DebrisKind",
    "Scan",
    "abandon_name",
    "latest",
    "prune",
    "reclaim",
    "scan",
    "set_aside",
    "settle",
]


class DebrisKind(enum.StrEnum):
    """Why a directory with one of our names is not resolvable."""

    UNPUBLISHED = "unpublished"
    """Of a save that died, or of one in progress; `reclaim` removes it."""
    TRASH = "trash"
    """Of a removal that died; `reclaim` removes it."""
    BROKEN = "broken"
    """Named as published, without a valid manifest; never removed by itself."""
    FOREIGN = "foreign"
    """A whole bundle of another run; never removed by itself."""
    ABANDONED = "abandoned"
    """Of a timeline that somebody went back from; never removed by itself."""


@dataclass(frozen=True)
class Bundle:
    """A resolvable bundle; its manifest holds, its files were not read."""

    path: Path
    manifest: Manifest


@dataclass(frozen=True)
class Debris:
    """A directory that is not resolvable."""

    path: Path
    kind: DebrisKind
    reason: str

    def __str__(self) -> str:
        """Name, kind and reason, for messages."""
        return f"{self.path.name} ({self.kind}: {self.reason})"


@dataclass(frozen=True)
class Scan:
    """What a run directory held at one look; names that are none of ours are left out."""

    root: Path
    bundles: tuple[Bundle, ...]
    """Resolvable ones, oldest first."""
    debris: tuple[Debris, ...]
    """By name."""
    sequence: int
    """Highest sequence number of any bundle, foreign and abandoned ones included; 0 if none."""


_UNRESOLVABLE = {
    Place.TEMPORARY: (DebrisKind.UNPUBLISHED, "a save that has not published"),
    Place.TRASH: (DebrisKind.TRASH, "a removal that has not ended"),
    Place.ABANDONED: (
        DebrisKind.ABANDONED,
        "set aside by a resume from an older bundle, or broken and in the way of a new save",
    ),
}


def scan(root: Path, run_id: str | None = None, fs: FileSystem = REAL) -> Scan:
    """Look through a run directory; an absent one holds nothing.

    Args:
        run_id: bundles of other runs are debris; None takes those of every run.
    """
    bundles: list[Bundle] = []
    debris: list[Debris] = []
    sequence = 0
    for name, place in _ours(root, fs):
        path = root / name
        manifest = broken = None
        if place in {Place.PUBLISHED, Place.ABANDONED}:
            try:
                manifest = read_manifest(path, fs)
                sequence = max(sequence, manifest.sequence)
            except (BundleCorruptError, BundleNotFoundError) as error:
                broken = str(error)
        if place is not Place.PUBLISHED:
            debris.append(Debris(path, *_UNRESOLVABLE[place]))
        elif manifest is None:
            debris.append(Debris(path, DebrisKind.BROKEN, broken or ""))
        elif run_id is None or manifest.run_id == run_id:
            bundles.append(Bundle(path, manifest))
        else:
            reason = f"of run {manifest.run_id!r}, not of {run_id!r}"
            debris.append(Debris(path, DebrisKind.FOREIGN, reason))
    bundles.sort(key=lambda bundle: (bundle.manifest.sequence, bundle.manifest.step))
    return Scan(root, tuple(bundles), tuple(debris), sequence)


def latest(root: Path, run_id: str | None = None, fs: FileSystem = REAL) -> Path:
    """The newest resolvable bundle; `verify` it before use.

    Raises:
        BundleNotFoundError: there is none; the message names the debris that was found.
    """
    found = scan(root, run_id, fs)
    if found.bundles:
        return found.bundles[-1].path
    whose = "any run" if run_id is None else f"run {run_id!r}"
    debris = "; ".join(map(str, found.debris)) or "nothing"
    raise BundleNotFoundError(
        f"{root} holds no step_N/ with a valid manifest of {whose}, only {debris}; start a new "
        "run, or give the run directory or the bundle that you mean"
    )


def settle(root: Path, fs: FileSystem = REAL) -> None:
    """Make the names in a run directory durable, before anything relies on them.

    A process that was killed may have renamed a bundle and not synced the name any more: it
    is there for the next process, and gone after a power loss.

    Raises:
        SaveError: the operating system refused.
    """
    with saving(f"syncing {root}"):
        fs.sync_directory(root)


def reclaim(found: Scan, fs: FileSystem = REAL) -> tuple[Path, ...]:
    """Remove what dead saves and dead removals left; return the removed paths.

    Call it while no save is in progress: a live save looks like a dead one.

    Raises:
        SaveError: the operating system refused.
    """
    removable = {DebrisKind.UNPUBLISHED, DebrisKind.TRASH}
    paths = tuple(debris.path for debris in found.debris if debris.kind in removable)
    if paths:
        # Their names may not be durable yet; see `_remove_bundle`.
        settle(found.root, fs)
    with saving(f"reclaiming debris in {found.root}"):
        for path in paths:
            remove_tree(fs, path)
        if paths:
            fs.sync_directory(found.root)
    return paths


def prune(
    root: Path,
    keep: int,
    just_published: Path,
    fs: FileSystem = REAL,
    *,
    marks: Mapping[str, Mark] | None = None,
) -> tuple[Path, ...]:
    """Remove all but the `keep` newest bundles of a run; return the removed paths.

    What was just published stays, and so does the newest bundle that verifies: bundles are
    re-read, newest first, until one does. Bundles of other runs neither count nor go.

    Args:
        marks: `BundleWriter.marks` of what was just published. While its files still have
            them, they are those that the digests were taken of, and are not read once more.

    Raises:
        ConfigError: `keep` is below 1.
        MisuseError: `just_published` is no resolvable bundle in `root`.
        SaveError: the operating system refused.
    """
    if keep < 1:
        raise ConfigError(f"keep is {keep}, which leaves no bundle to resume from; give 1 or more")
    bundles = scan(root, None, fs).bundles
    names = {bundle.path.name: bundle.manifest.run_id for bundle in bundles}
    if just_published.name not in names:
        raise MisuseError(f"{just_published} is no published bundle in {root}; publish, then prune")
    own = [b for b in bundles if b.manifest.run_id == names[just_published.name]]
    superfluous = [b for b in own[:-keep] if b.path.name != just_published.name]
    if not superfluous:
        return ()
    unchanged = marks is not None and _marks(just_published, fs) == marks
    good = just_published if unchanged else _newest_verified(own, fs)
    removed = [bundle for bundle in superfluous if bundle.path != good]
    with saving(f"pruning {root}"):
        for bundle in removed:
            _remove_bundle(root, bundle, fs)
    return tuple(bundle.path for bundle in removed)


def set_aside(
    root: Path, newer_than: int, run_id: str | None = None, fs: FileSystem = REAL
) -> tuple[Path, ...]:
    """Rename the bundles of a timeline that is given up; return the new paths.

    For a resume from an older bundle: the newer ones would otherwise stay the latest, and
    hold the names of the steps that are trained again.

    Args:
        newer_than: sequence number of the bundle that is resumed from.

    Raises:
        SaveError: the operating system refused.
    """
    newer = [b for b in scan(root, run_id, fs).bundles if b.manifest.sequence > newer_than]
    with saving(f"setting bundles of {root} aside"):
        moves = {b.path: abandon_name(root, b.manifest.step, fs) for b in newer}
        for old, new in moves.items():
            fs.rename(old, new)
        if moves:
            fs.sync_directory(root)
    return tuple(moves.values())


def abandon_name(root: Path, step: int, fs: FileSystem) -> Path:
    """The first free name for an abandoned directory of that step."""
    copy = 1
    while fs.kind(path := root / directory_name(Place.ABANDONED, step, copy)) is not None:
        copy += 1
    return path


def _ours(root: Path, fs: FileSystem) -> list[tuple[str, Place]]:
    try:
        entries = fs.list_directory(root)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(entry.name, parsed[0]) for entry in entries if (parsed := parse_name(entry.name))]


def _marks(bundle: Path, fs: FileSystem) -> dict[str, Mark] | None:
    try:
        return {name: fs.mark(bundle / name) for name in walk(fs, bundle).files}
    except OSError:
        return None


def _newest_verified(bundles: list[Bundle], fs: FileSystem) -> Path | None:
    for bundle in reversed(bundles):
        try:
            return verify(bundle.path, fs).path
        except BundleCorruptError:
            continue
    return None


def _remove_bundle(root: Path, bundle: Bundle, fs: FileSystem) -> None:
    trash = root / directory_name(Place.TRASH, bundle.manifest.step)
    remove_tree(fs, trash)
    with suppress(FileNotFoundError):
        fs.rename(bundle.path, trash)
    # Without this a power loss could bring back the published name with files missing.
    fs.sync_directory(root)
    remove_tree(fs, trash)
