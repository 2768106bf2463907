"""Digests, and whole saves and restores beside TransferQueue's own, by megabytes of rows.

A cutlock save writes everything that a restart needs: rows, policy, sidecars, digests and a
manifest. It syncs all of it, renames it into place and prunes the previous bundle. A restore
verifies every digest before it loads the rows. Three alternatives stand for what a user of
TransferQueue alone could call. The first is `tq.save_checkpoint`, which also replaces its
predecessor but neither syncs nor computes digests. The second adds an `fsync` of everything it
wrote. The third also adds a sha256 of every file, several files at a time, as cutlock does. In
all of them files are read back from the page cache, and no write-back is pending when one starts.

Above the first alternative, cutlock pays for sha256, once when saving and once when restoring, and
for waiting until the disk has synced. A free core hashes about 1.7 GB/s, and a TransferQueue unit
writes large rows into the page cache at 1 GB/s. With two units on two cores, no save of large rows
that hashes its files can cost less than one and a half times the first alternative. cutlock gains
time because a unit writes a row as raw bytes, where torch would write a separate file for each
row: twice as fast for rows of 1 MB and eight times as fast for rows of 1 KB. Reading them back is
just as fast. Before the previous bundle is pruned, the new bundle is not read a second time,
provided that the number, sizes and times of its files have not changed since they were hashed.
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
from cutlock.bundle.files import REAL, digest_file, digest_files, walk
from cutlock.bundle.layout import DATA_PLANE, POLICY, SIDECARS, TRAINING_INFO
from cutlock.bundle.writing import BundleWriter
from cutlock.controller.assembly import build_prompts
from cutlock.run.config import CheckpointConfig
from cutlock.run.restore import load_plane, verify_for_resume

BARE = Goal(1.15)
SAVE_NOTE = (
    "cutlock hashes and syncs every file; for large rows on two cores the hashing alone adds half "
    "the cost of the bare save"
)
RESTORE_NOTE = (
    "cutlock verifies every sha256 before it unpickles the first byte; on two cores that takes as "
    "long as loading large rows"
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
        what="size and sha256 of one file, read in chunks",
        beside="`hashlib.file_digest` on the same file",
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
            beside="the same files, copied and synced",
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
        ("bare", "`tq.save_checkpoint`: no digests, no sync"),
        ("synced", "`tq.save_checkpoint`, then `fsync` of everything it wrote"),
        ("digested", "`tq.save_checkpoint`, then sha256 and `fsync` of everything it wrote"),
    ):
        yield compare(
            "save" if beside == "bare" else f"save_{beside}",
            samples,
            "ours",
            beside,
            what="a whole save, from creating its directory to pruning the previous bundle",
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
        ("digested", "sha256 of all files, then `tq.load_checkpoint`"),
    ):
        yield compare(
            "restore" if beside == "bare" else f"restore_{beside}",
            samples,
            "ours",
            beside,
            what="verify a bundle file by file, decode it, load its rows",
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
