"""Digests, and whole saves and restores beside TransferQueue's own, by megabytes of rows.

Ours is everything that a restart needs: rows, policy, sidecars, digests, manifest, all synced
to disk and renamed into place, the bundle before it pruned; and on the way back every digest
verified before the rows are loaded. Beside it stand three things that a user of TransferQueue
alone might call: `tq.save_checkpoint`, which replaces its predecessor too, and neither syncs nor
knows digests; the same with an `fsync` of all it wrote; the same with a sha256 of every file as
well, several files at a time, as here. Files are read back from the page cache in all of them, and
nothing is left for the disk to write when one of them begins.

What ours costs above the first is sha256, once on the way out and once on the way in, and the
wait for the disk: some 1.7 GB/s on each core that is free, where TransferQueue writes large rows
into the page cache at 1 GB/s a unit. So with two units on two cores a save of large rows cannot
come below one and a half times the first, whoever makes it. What it gains is that a unit writes a
row as its bytes, where torch would make a file of its own of each: twice as fast for rows of
1 MB, eight times for rows of 1 KB; and they are read back as fast. The bundle that is published is
not read a second time before the one before it is removed, as long as its files are those whose
digests were taken, by their number, size and times.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.cluster import MEGABYTE, Cluster, Filled, cluster
from bench.harness import Goal, Measurement, Session, compare, interleave, timed
from bench.scratch import scratch
from cutlock.bundle.artifacts import DATA_PLANE, POLICY, SIDECARS, TRAINING_INFO
from cutlock.bundle.files import REAL, digest_file, digest_files, walk
from cutlock.bundle.writing import BundleWriter
from cutlock.controller.assembly import build_prompts
from cutlock.run.config import CheckpointConfig
from cutlock.run.restore import load_plane, verify_for_resume

BARE = Goal(1.15)
SAVE_NOTE = (
    "ours takes a sha256 of every file, and syncs: on two cores that alone is half as much again "
    "as large rows cost bare"
)
RESTORE_NOTE = (
    "ours verifies every sha256 before the first byte is unpickled: on two cores that alone "
    "takes as long as large rows take to load"
)


def measure(session: Session) -> Iterator[Measurement]:
    with scratch() as root:
        yield from digests(session, root)
    sizes = session.pick(full=[10, 50, 500], quick=[10, 50], tiny=[1])
    with cluster() as running:
        for megabytes in sizes:
            yield from whole(session, running, megabytes)
        yield from whole(session, running, min(50, sizes[-1]), row_bytes=16 << 10)


def digests(session: Session, root: Path) -> Iterator[Measurement]:
    """The parts that need no store: hashing, and a bundle of plain files."""
    session.say("digests")
    megabytes = session.pick(full=256, quick=32, tiny=1)
    file = root / "rows"
    file.write_bytes(os.urandom(MEGABYTE) * megabytes)
    samples = interleave(
        {
            "ours": timed(lambda: digest_file(REAL, file)),
            "hashlib": timed(lambda: bare_digest(file)),
        },
        session.repetitions(9),
    )
    yield compare(
        "digest",
        samples,
        "ours",
        "hashlib",
        what="size and sha256 of one file, read in pieces",
        beside="`hashlib.file_digest` of it",
        unit="ms",
        scale=1e3,
        at={"megabytes": megabytes},
        goal=Goal(1.05),
    )
    files = session.pick(full=[4, 64, 1024], quick=[4, 64], tiny=[4])
    for count in files:
        session.say(f"manifest of {count} files")
        source = plain_files(root / f"source-{count}", count, megabytes)
        samples = interleave(
            {
                "ours": timed(partial(seal_copy, source, root / "bundles")),
                "copy": timed(partial(durable_copy, source, root / "copy")),
            },
            session.repetitions(7),
        )
        yield compare(
            "write",
            samples,
            "ours",
            "copy",
            what=f"{megabytes} MB copied into a bundle: digests, manifest, sync, rename",
            beside="the same files copied and synced",
            unit="ms",
            scale=1e3,
            at={"files": count},
        )


def bare_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def plain_files(source: Path, count: int, megabytes: int) -> Path:
    """So many files of equal size with so many megabytes together."""
    source.mkdir()
    size = megabytes * MEGABYTE // count
    for number in range(count):
        (source / f"unit_{number}").write_bytes(os.urandom(size))
    return source


def seal_copy(source: Path, root: Path) -> None:
    writer = BundleWriter.begin(root, "bench", 0)
    writer.directory(POLICY).joinpath("weights").write_bytes(b"weights")
    data_plane = writer.directory(DATA_PLANE)
    for file in source.iterdir():
        shutil.copyfile(file, data_plane / file.name)
    data_plane.joinpath("metadata.json").write_bytes(b"{}")
    for name in SIDECARS:
        writer.write(name, b"sidecar")
    writer.digest_parts()
    writer.write(TRAINING_INFO, b"{}")
    writer.seal("0" * 64, rows=True)
    shutil.rmtree(writer.publish())


def durable_copy(source: Path, target: Path) -> None:
    target.mkdir()
    for file in source.iterdir():
        shutil.copyfile(file, target / file.name)
    sync(target)
    shutil.rmtree(target)


def digest(root: Path) -> None:
    """sha256 of every file, several at a time."""
    for _ in digest_files(REAL, ((root / name, None) for name in walk(REAL, root).files)):
        pass


def sync(root: Path) -> None:
    """`fsync` every file and directory, one after the other."""
    tree = walk(REAL, root)
    for name in tree.files:
        REAL.sync_file(root / name)
    for name in (*tree.directories, "."):
        REAL.sync_directory(root / name)


def whole(
    session: Session, running: Cluster, megabytes: int, row_bytes: int = MEGABYTE
) -> Iterator[Measurement]:
    """Save and restore of `megabytes` of rows, of so many bytes each."""
    name = f"{megabytes} MB in rows of {row_bytes >> 10} KB"
    at: dict[str, int | str] = {"megabytes": megabytes}
    if row_bytes != MEGABYTE:
        at["rows"] = f"{row_bytes >> 10} KB"
    turns = session.repetitions(9 if megabytes <= 100 else 5)
    session.say(f"filling {name}")
    running.empty()
    plane = running.connect()
    filled = Filled(plane, running.runner, megabytes, CheckpointConfig(keep=1), row_bytes=row_bytes)
    bundles, files = running.root / "bundles", running.root / "files"

    def save() -> None:
        running.runner.run(filled.save(bundles))

    def save_bare(*more: Callable[[Path], None]) -> None:
        running.bare_save(files)
        for work in more:
            work(files)

    session.say(f"saves of {name}")
    saves: dict[str, Callable[[], None]] = {
        "ours": save,
        "bare": save_bare,
        "synced": partial(save_bare, sync),
        "digested": partial(save_bare, digest, sync),
    }
    samples = interleave({who: calm(work) for who, work in saves.items()}, turns)
    for beside, words in (
        ("bare", "`tq.save_checkpoint`: no digests, not synced"),
        ("synced", "`tq.save_checkpoint`, and `fsync` of all it wrote"),
        ("digested", "`tq.save_checkpoint`, and sha256 and `fsync` of all it wrote"),
    ):
        yield compare(
            "save" if beside == "bare" else f"save_{beside}",
            samples,
            "ours",
            beside,
            what="a save, from its directory to the pruned predecessor",
            beside=words,
            unit="ms",
            scale=1e3,
            at=at,
            goal=BARE,
            note="" if beside == "digested" else SAVE_NOTE,
        )
    running.runner.run(plane.close())
    bundle = bundles / f"step_{filled.state.step}"

    def restore() -> float:
        bootstrap = running.empty()

        def work() -> None:
            plan = verify_for_resume(bundle, build_prompts)
            running.runner.run(load_plane(plan, bootstrap))

        return timed(work)()

    def load(*before: Callable[[Path], None]) -> float:
        running.empty()

        def work() -> None:
            for each in before:
                each(files)
            running.bare_load(files)

        return timed(work)()

    session.say(f"restores of {name}")
    samples = interleave({"ours": restore, "bare": load, "digested": partial(load, digest)}, turns)
    for beside, words in (
        ("bare", "`tq.load_checkpoint`"),
        ("digested", "sha256 of all its files, and `tq.load_checkpoint`"),
    ):
        yield compare(
            "restore" if beside == "bare" else f"restore_{beside}",
            samples,
            "ours",
            beside,
            what="a bundle verified file by file, decoded, and its rows loaded",
            beside=words,
            unit="ms",
            scale=1e3,
            at=at,
            goal=BARE,
            note="" if beside == "digested" else RESTORE_NOTE,
        )
    for path in (bundles, files):
        shutil.rmtree(path)


def calm(work: Callable[[], None]) -> Callable[[], float]:
    """A candidate that does not wait for what the one before has left for the disk to write."""

    def measure() -> float:
        os.sync()
        return timed(work)()

    return measure
