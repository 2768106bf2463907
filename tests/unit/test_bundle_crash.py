"""Promise P8 at every operation of a save, on a disk that forgets what was not synced."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from cutlock.bundle.contents import decode_cut
from cutlock.bundle.layout import MANIFEST
from cutlock.bundle.publication import latest, prune, reclaim, scan
from cutlock.bundle.verification import read_manifest, verify
from cutlock.bundle.writing import BundleWriter
from cutlock.errors import BundleCorruptError, BundleNotFoundError, SaveError
from tests.support.bundles import fill, sample_cut, sample_info, save
from tests.support.lossy_disk import LossyDisk, PowerLoss
from tests.support.power_loss import LOSSES, Tree, materialise

NEW = 9

POINTS_OF_A_SAVE = {
    "begin": 18,
    "write": 12,
    "seal": 19,
    "publish": 2,
    "prune": 20,
    "reclaim": 4,
}
"""Operations of one save that prunes the bundle before it: every one is a crash point."""

POINTS_OF_A_FIRST_SAVE = {**POINTS_OF_A_SAVE, "begin": 5, "prune": 0, "reclaim": 0}


class Deaf(LossyDisk):
    """A disk whose `sync_directory` does nothing."""

    def sync_directory(self, path: Path) -> None:
        self._operation("sync", path)


class Forgetful(LossyDisk):
    """A disk whose `sync_file` does nothing."""

    def sync_file(self, path: Path) -> None:
        self._operation("sync", path)


class HalfForgetful(LossyDisk):
    """A disk whose `sync_file` does nothing but for the manifest."""

    def sync_file(self, path: Path) -> None:
        if path.name == MANIFEST:
            super().sync_file(path)
        else:
            self._operation("sync", path)


class HastyRemoval(LossyDisk):
    """A disk that removes a pruned bundle's files before its new name is durable."""

    def sync_directory(self, path: Path) -> None:
        if any(" -> run/trash_step_" in operation for operation in self.operations):
            self._operation("sync", path)
        else:
            super().sync_directory(path)


class ManifestFirst(LossyDisk):
    """A disk on which the manifest is durable before everything that it lists."""

    def __init__(self, base: Path, *, dies_at: int | None = None) -> None:
        super().__init__(base, dies_at=dies_at)
        self._held: list[Path] = []

    def sync_file(self, path: Path) -> None:
        self._hold(path)

    def sync_directory(self, path: Path) -> None:
        self._hold(path)

    def _hold(self, path: Path) -> None:
        self._held.append(path)
        if path.name == MANIFEST:
            for held in sorted(self._held, key=lambda p: (p.name != MANIFEST, -len(p.parts))):
                sync = super().sync_directory if held.is_dir() else super().sync_file
                sync(held)
            self._held.clear()


@dataclass
class World:
    """A run directory before the save that is watched."""

    template: Path
    root: str
    """Of the run directory, relative to the template."""
    old: int | None
    """Step of the bundle that a restart finds before the save."""


@dataclass
class Progress:
    phase: str = ""
    published: bool = False
    phases: Counter[str] = field(default_factory=Counter)


@pytest.fixture
def used(tmp_path: Path) -> World:
    """One bundle, what a save of the same step left when it died, and dead removals."""
    root = tmp_path / "template" / "run"
    save(root, 8)
    cut = sample_cut(NEW, dropped=9)
    dead = BundleWriter.begin(root, "run", NEW)
    fill(dead, cut, sample_info(cut))
    dead.seal(cut.cut_id, rows=True)
    for trash in ("trash_step_7", "trash_step_8"):
        (root / trash).mkdir()
        (root / trash / MANIFEST).write_bytes(b"{}")
    return World(root.parent, "run", 8)


@pytest.fixture
def fresh(tmp_path: Path) -> World:
    """No run directory, and no directory to make it in."""
    (tmp_path / "template").mkdir()
    return World(tmp_path / "template", "runs/run", None)


def one_save(root: Path, disk: LossyDisk, progress: Progress) -> None:
    cut = sample_cut(NEW)
    for phase, work in _stages(root, disk, progress, cut):
        progress.phase = phase
        before = len(disk.operations)
        work()
        progress.phases[phase] = len(disk.operations) - before


def _stages(root, disk, progress, cut):  # type: ignore[no-untyped-def]
    made: list[BundleWriter] = []
    final = root / f"step_{NEW}"

    def publish() -> None:
        made[0].publish()
        progress.published = True

    yield "begin", lambda: made.append(BundleWriter.begin(root, "run", NEW, disk))
    yield "write", lambda: fill(made[0], cut, sample_info(cut))
    yield "seal", lambda: made[0].seal(cut.cut_id, rows=True)
    yield "publish", publish
    yield "prune", lambda: prune(root, 1, final, disk, marks=made[0].marks)
    yield "reclaim", lambda: reclaim(scan(root, "run", disk), disk)


def crashes(
    world: World, work: Path, disk_type: type[LossyDisk], first: int = 1
) -> Iterator[tuple[str, Progress, Tree]]:
    """Every operation of the save, and every image that a power loss before it may leave."""
    for point in count(first):
        base = work / f"{disk_type.__name__}-{point}"
        shutil.copytree(world.template, base)
        disk = disk_type(base, dies_at=point)
        progress = Progress()
        died = False
        try:
            one_save(base / world.root, disk, progress)
        except PowerLoss:
            died = True
        for loss in LOSSES:
            where = f"{progress.phase}: {disk.operations[-1]}, {loss}"
            yield where, progress, disk.crash_tree(loss)
        shutil.rmtree(base)
        if not died:
            return


@dataclass
class Restarts:
    """Restarts from images; the same image at the same stage is looked at once."""

    world: World
    work: Path
    seen: dict[object, tuple[str | None, int | None]] = field(default_factory=dict)

    def look(self, progress: Progress, tree: Tree) -> tuple[str | None, int | None]:
        """What is wrong, if anything, and the step that is resumed from."""
        key = (progress.phase, progress.published, tuple(tree.items()))
        if key not in self.seen:
            image = self.work / f"image-{len(self.seen)}"
            materialise(tree, image)
            root = image / self.world.root
            wrong = violation(self.world, progress, root)
            bundles = scan(root, "run").bundles
            self.seen[key] = wrong, bundles[-1].manifest.step if bundles else None
            shutil.rmtree(image)
        return self.seen[key]


def violation(world: World, progress: Progress, root: Path) -> str | None:
    """What a restart would find wrong, if anything."""
    for bundle in scan(root, "run").bundles:
        try:
            verify(bundle.path)
        except BundleCorruptError as error:
            return f"resolvable and not whole: {error}"
    try:
        found = verify(latest(root, "run"))
    except BundleNotFoundError as error:
        return str(error) if progress.published or world.old is not None else None
    step = found.manifest.step
    if step not in ({NEW} if progress.published else {world.old, NEW}):
        return f"step {step} is the latest, published is {progress.published}"
    if decode_cut(found) != sample_cut(step):
        return f"step {step} holds another cut"
    return sealed_and_not_whole(root) if progress.phase in {"seal", "publish"} else None


def sealed_and_not_whole(root: Path) -> str | None:
    """Whatever its name, a directory with this save's manifest has all that it lists."""
    path = root / f"tmp_step_{NEW}"
    try:
        if read_manifest(path).cut_id != sample_cut(NEW).cut_id:
            return None
    except (BundleCorruptError, BundleNotFoundError):
        return None
    try:
        verify(path.rename(root / "probe"))
    except BundleCorruptError as error:
        return f"sealed and not whole: {error}"
    return None


@pytest.mark.slow
def test_a_power_loss_at_any_operation_leaves_the_old_bundle_or_the_new(
    used: World, tmp_path: Path
) -> None:
    restarts = Restarts(used, tmp_path)
    outcomes: Counter[tuple[bool, int | None]] = Counter()
    for where, progress, tree in crashes(used, tmp_path, LossyDisk):
        wrong, step = restarts.look(progress, tree)
        assert wrong is None, where
        outcomes[progress.published, step] += 1
    assert progress.phases == POINTS_OF_A_SAVE
    assert outcomes.total() == (sum(POINTS_OF_A_SAVE.values()) + 1) * len(LOSSES)
    assert outcomes.keys() == {(False, 8), (False, NEW), (True, NEW)}


@pytest.mark.slow
def test_a_power_loss_in_the_first_save_leaves_nothing_or_the_whole_bundle(
    fresh: World, tmp_path: Path
) -> None:
    restarts = Restarts(fresh, tmp_path)
    outcomes: Counter[tuple[bool, int | None]] = Counter()
    for where, progress, tree in crashes(fresh, tmp_path, LossyDisk):
        wrong, step = restarts.look(progress, tree)
        assert wrong is None, where
        outcomes[progress.published, step] += 1
    assert progress.phases == POINTS_OF_A_FIRST_SAVE
    assert outcomes.total() == (sum(POINTS_OF_A_FIRST_SAVE.values()) + 1) * len(LOSSES)
    assert outcomes.keys() == {(False, None), (False, NEW), (True, NEW)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("disk_type", "phase", "what"),
    [
        (Deaf, "seal", "sealed and not whole"),
        (Deaf, "prune", "step 8 is the latest, published is True"),
        (Forgetful, "prune", "step 8 is the latest, published is True"),
        (HalfForgetful, "seal", "sealed and not whole"),
        (HalfForgetful, "prune", "resolvable and not whole"),
        (ManifestFirst, "seal", "sealed and not whole"),
        (HastyRemoval, "prune", "resolvable and not whole"),
    ],
)
def test_a_save_without_one_of_its_precautions_is_caught(
    used: World, tmp_path: Path, disk_type: type[LossyDisk], phase: str, what: str
) -> None:
    restarts = Restarts(used, tmp_path)
    phases = list(POINTS_OF_A_SAVE)
    before = sum(POINTS_OF_A_SAVE[earlier] for earlier in phases[: phases.index(phase)])
    found = (
        restarts.look(progress, tree)[0]
        for _, progress, tree in crashes(used, tmp_path, disk_type, before + 1)
        if progress.phase == phase
    )
    assert any(what in wrong for wrong in found if wrong)


def test_the_manifest_is_written_after_everything_else_is_durable(
    used: World,
) -> None:
    disk = LossyDisk(used.template)
    one_save(used.template / used.root, disk, Progress())
    created = disk.operations.index(f"create run/tmp_step_{NEW}/{MANIFEST}")
    later = [op for op in disk.operations[created:] if op.startswith(("create", "sync"))]
    assert later[:4] == [
        f"create run/tmp_step_{NEW}/{MANIFEST}",
        f"sync run/tmp_step_{NEW}/{MANIFEST}",
        f"sync run/tmp_step_{NEW}",
        "sync run",
    ]


@pytest.mark.slow
def test_a_refused_operation_fails_the_save_and_the_next_one_succeeds(
    used: World, tmp_path: Path
) -> None:
    points = sum(POINTS_OF_A_SAVE[phase] for phase in ("begin", "write", "seal", "publish"))
    for point in range(1, points + 1):
        base = tmp_path / f"refused-{point}"
        shutil.copytree(used.template, base)
        root = base / used.root
        with pytest.raises(SaveError, match="refused by the lossy disk"):
            one_save(root, LossyDisk(base, refuses_at=point), Progress())
        assert latest(root, "run") == root / "step_8"
        one_save(root, LossyDisk(base), Progress())
        assert decode_cut(verify(latest(root, "run"))) == sample_cut(NEW)


def test_a_refused_removal_keeps_the_new_bundle_and_the_next_prune_ends_it(
    used: World, tmp_path: Path
) -> None:
    first = sum(POINTS_OF_A_SAVE[phase] for phase in ("begin", "write", "seal", "publish")) + 1
    for point in range(first, first + POINTS_OF_A_SAVE["prune"]):
        base = tmp_path / f"refused-{point}"
        shutil.copytree(used.template, base)
        root = base / used.root
        with pytest.raises(SaveError, match="pruning"):
            one_save(root, LossyDisk(base, refuses_at=point), Progress())
        assert latest(root, "run") == root / f"step_{NEW}"
        prune(root, 1, root / f"step_{NEW}")
        reclaim(scan(root, "run"))
        assert [path.name for path in root.iterdir()] == [f"step_{NEW}"]
