"""Digests, and whole saves and restores beside TransferQueue's own, by megabytes of rows.

Ours is everything that a restart needs: rows, policy, sidecars, digests, manifest, all synced
to disk and renamed into place, the bundle before it pruned; and on the way back every digest
verified before the rows are loaded. TransferQueue's `save_checkpoint` writes its rows without
syncing and without digests; it is also given with the `fsync`s that would make it durable.
Files are read back from the page cache in all of them.

What ours costs above is mostly sha256, once on the way out and once on the way in: several files
are hashed at a time, each on a core of its own, and written back meanwhile. So the ratio depends
on how many cores are free; on a busy machine of two it is at its worst.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.cluster import MEGABYTE, Cluster, Filled, cluster
from bench.harness import Goal, Measurement, Session, compare, interleave, timed
from bench.scratch import scratch
from cutlock.bundle.artifacts import DATA_PLANE, POLICY, SIDECARS, TRAINING_INFO
from cutlock.bundle.files import REAL, digest_file, walk
from cutlock.bundle.writing import BundleWriter
from cutlock.controller.assembly import build_prompts
from cutlock.controller.config import CheckpointConfig
from cutlock.controller.restore import load_plane, verify_for_resume

BARE = Goal(1.15)


def measure(session: Session) -> Iterator[Measurement]:
    with scratch() as root:
        yield from digests(session, root)
    sizes = session.pick(full=[10, 100, 500], quick=[10, 50], tiny=[1])
    with cluster() as running:
        for megabytes in sizes:
            yield from whole(session, running, megabytes)


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


def sync(root: Path) -> None:
    """`fsync` every file and directory, one after the other."""
    tree = walk(REAL, root)
    for name in tree.files:
        REAL.sync_file(root / name)
    for name in (*tree.directories, "."):
        REAL.sync_directory(root / name)


def whole(session: Session, running: Cluster, megabytes: int) -> Iterator[Measurement]:
    """Save and restore of `megabytes` of rows."""
    session.say(f"filling {megabytes} MB")
    running.empty()
    plane = running.connect()
    filled = Filled(plane, running.runner, megabytes, CheckpointConfig(keep=1))
    bundles, bare, durable = (running.root / name for name in ("bundles", "bare", "durable"))

    def save() -> None:
        running.runner.run(filled.save(bundles))

    def save_durably() -> None:
        running.bare_save(durable)
        sync(durable)

    session.say(f"saves of {megabytes} MB")
    turns = session.repetitions(9 if megabytes <= 100 else 5)
    samples = interleave(
        {
            "ours": timed(save),
            "bare": timed(lambda: running.bare_save(bare)),
            "durable": timed(save_durably),
        },
        turns,
    )
    for beside, words in (
        ("bare", "`tq.save_checkpoint`: no digests, not synced"),
        ("durable", "`tq.save_checkpoint` and `fsync` of all it wrote"),
    ):
        yield compare(
            "save" if beside == "bare" else "save_durable",
            samples,
            "ours",
            beside,
            what="a save, from its directory to the pruned predecessor",
            beside=words,
            unit="ms",
            scale=1e3,
            at={"megabytes": megabytes},
            goal=BARE,
        )
    running.runner.run(plane.close())
    bundle = bundles / f"step_{filled.state.step}"

    def restore() -> float:
        bootstrap = running.empty()

        def work() -> None:
            plan = verify_for_resume(bundle, build_prompts)
            running.runner.run(load_plane(plan, bootstrap))

        return timed(work)()

    def load() -> float:
        running.empty()
        return timed(lambda: running.bare_load(bare))()

    session.say(f"restores of {megabytes} MB")
    samples = interleave({"ours": restore, "bare": load}, turns)
    yield compare(
        "restore",
        samples,
        "ours",
        "bare",
        what="a bundle verified file by file, decoded, and its rows loaded",
        beside="`tq.load_checkpoint`",
        unit="ms",
        scale=1e3,
        at={"megabytes": megabytes},
        goal=BARE,
    )
    for path in (bundles, bare, durable):
        shutil.rmtree(path)
