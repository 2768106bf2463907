from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cutlock.bundle.files import REAL, RealFileSystem
from cutlock.bundle.layout import LOADER, MANIFEST, Place, directory_name, parse_name
from cutlock.bundle.publication import (
    DebrisKind,
    latest,
    prune,
    reclaim,
    scan,
    set_aside,
)
from cutlock.bundle.verification import verify
from cutlock.bundle.writing import BundleWriter
from cutlock.errors import BundleNotFoundError, ConfigError, MisuseError, SaveError
from tests.support.bundles import fill, sample_cut, sample_info, save
from tests.support.lossy_disk import LossyDisk
from tests.support.power_loss import LOSSES, materialise
from tests.support.refusing_disk import refusing


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def steps(root: Path, run_id: str | None = "run") -> list[int]:
    return [bundle.manifest.step for bundle in scan(root, run_id).bundles]


def kinds(root: Path, run_id: str | None = "run") -> dict[str, DebrisKind]:
    return {debris.path.name: debris.kind for debris in scan(root, run_id).debris}


@pytest.mark.parametrize("place", Place)
def test_every_name_is_read_back(place: Place) -> None:
    for step in (0, 7, 120):
        assert parse_name(directory_name(place, step)) == (place, step)


def test_a_second_abandoned_directory_of_a_step_has_a_name_of_its_own() -> None:
    assert parse_name(directory_name(Place.ABANDONED, 7, 2)) == (Place.ABANDONED, 7)
    assert directory_name(Place.ABANDONED, 7, 2) == "abandoned_step_7.2"


def test_a_second_attempt_at_a_step_has_a_directory_of_its_own() -> None:
    assert parse_name(directory_name(Place.TEMPORARY, 7, 2)) == (Place.TEMPORARY, 7)
    assert directory_name(Place.TEMPORARY, 7, 2) == "tmp_step_7.2"


@pytest.mark.parametrize(
    "name", ["step_", "step_07", "step_-1", "step_7.2", "trash_step_7.2", "xstep_7", "step_7 ", "7"]
)
def test_other_names_are_none_of_ours(name: str) -> None:
    assert parse_name(name) is None


def test_an_absent_run_directory_holds_nothing(tmp_path: Path) -> None:
    found = scan(tmp_path / "absent")
    assert (found.bundles, found.debris, found.sequence) == ((), (), 0)


def test_the_latest_is_the_last_published_and_not_the_highest_step(tmp_path: Path) -> None:
    save(tmp_path, 9)
    save(tmp_path, 7)
    assert steps(tmp_path) == [9, 7]
    assert latest(tmp_path, "run") == tmp_path / "step_7"


def test_a_run_directory_behind_a_link_is_looked_through(tmp_path: Path) -> None:
    save(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert latest(tmp_path / "link", "run") == tmp_path / "link" / "step_7"
    assert save(tmp_path / "link", 8) == tmp_path / "link" / "step_8"


def test_debris_is_named_with_its_kind_and_what_is_not_ours_is_left_out(tmp_path: Path) -> None:
    save(tmp_path, 7)
    save(tmp_path, 8, run_id="other")
    (save(tmp_path, 9) / MANIFEST).unlink()
    BundleWriter.begin(tmp_path, "run", 10)
    (tmp_path / "trash_step_6").mkdir()
    (tmp_path / "abandoned_step_5").mkdir()
    (tmp_path / "step_4").write_bytes(b"a file")
    (tmp_path / "step_3").symlink_to(tmp_path / "step_7")
    (tmp_path / "events.ndjson").write_bytes(b"")
    (tmp_path / "step_x").mkdir()
    assert steps(tmp_path) == [7]
    assert kinds(tmp_path) == {
        "step_8": DebrisKind.FOREIGN,
        "step_9": DebrisKind.BROKEN,
        "tmp_step_10": DebrisKind.UNPUBLISHED,
        "trash_step_6": DebrisKind.TRASH,
        "abandoned_step_5": DebrisKind.ABANDONED,
        "step_4": DebrisKind.BROKEN,
        "step_3": DebrisKind.BROKEN,
    }


def test_debris_says_why_it_is_debris(tmp_path: Path) -> None:
    save(tmp_path, 8, run_id="other")
    (save(tmp_path, 9) / MANIFEST).write_bytes(b"{")
    foreign, broken = scan(tmp_path, "run").debris
    assert "'other'" in str(foreign)
    assert "cannot be decoded" in str(broken)


def test_without_a_run_id_the_bundles_of_every_run_count(tmp_path: Path) -> None:
    save(tmp_path, 7)
    save(tmp_path, 8, run_id="other")
    assert steps(tmp_path, None) == [7, 8]
    assert latest(tmp_path) == tmp_path / "step_8"


def test_a_half_written_save_is_passed_over_on_every_start(tmp_path: Path) -> None:
    save(tmp_path, 7)
    cut = sample_cut(8)
    fill(BundleWriter.begin(tmp_path, "run", 8), cut, sample_info(cut))
    for _ in range(2):
        assert latest(tmp_path, "run") == tmp_path / "step_7"
        assert kinds(tmp_path) == {"tmp_step_8": DebrisKind.UNPUBLISHED}


def test_a_sealed_save_that_was_not_published_is_passed_over(tmp_path: Path) -> None:
    save(tmp_path, 7)
    cut = sample_cut(8)
    writer = BundleWriter.begin(tmp_path, "run", 8)
    fill(writer, cut, sample_info(cut))
    writer.seal(cut.cut_id, rows=True)
    assert latest(tmp_path, "run") == tmp_path / "step_7"


def test_a_bundle_whose_manifest_is_lost_is_passed_over(tmp_path: Path) -> None:
    save(tmp_path, 7)
    (save(tmp_path, 8) / MANIFEST).unlink()
    assert latest(tmp_path, "run") == tmp_path / "step_7"


def test_no_bundle_is_an_error_that_names_the_place_and_the_debris(tmp_path: Path) -> None:
    BundleWriter.begin(tmp_path, "run", 7)
    save(tmp_path, 8, run_id="other")
    with pytest.raises(BundleNotFoundError) as caught:
        latest(tmp_path, "run")
    for part in (str(tmp_path), "run 'run'", "tmp_step_7 (unpublished", "step_8 (foreign", "start"):
        assert part in str(caught.value)
    assert re.search(r"only step_8 \(.*'run'\); tmp_step_7 \(", str(caught.value))


def test_no_bundle_at_all_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(BundleNotFoundError, match="of any run, only nothing"):
        latest(tmp_path / "absent")


def test_reclaim_removes_dead_saves_and_dead_removals_only(tmp_path: Path) -> None:
    save(tmp_path, 7)
    save(tmp_path, 8, run_id="other")
    (save(tmp_path, 9) / MANIFEST).unlink()
    BundleWriter.begin(tmp_path, "run", 10)
    (tmp_path / "trash_step_6" / "policy").mkdir(parents=True)
    (tmp_path / "abandoned_step_5").mkdir()
    (tmp_path / "notes").mkdir()
    removed = reclaim(scan(tmp_path, "run"))
    assert removed == (tmp_path / "tmp_step_10", tmp_path / "trash_step_6")
    assert names(tmp_path) == ["abandoned_step_5", "notes", "step_7", "step_8", "step_9"]


def test_what_a_killed_removal_has_only_renamed_is_not_back_in_part_after_a_power_loss(
    tmp_path: Path,
) -> None:
    root = tmp_path / "run"
    save(root, 7)
    save(root, 8)
    disk = LossyDisk(root)
    disk.rename(root / "step_7", root / "trash_step_7")
    reclaim(scan(root, "run"), disk)
    for number, loss in enumerate(LOSSES):
        image = tmp_path / f"image-{number}"
        materialise(disk.crash_tree(loss), image)
        assert steps(image) == [8]


def test_reclaiming_what_is_gone_already_is_no_error(tmp_path: Path) -> None:
    BundleWriter.begin(tmp_path, "run", 10)
    found = scan(tmp_path, "run")
    reclaim(found)
    assert reclaim(found) == (tmp_path / "tmp_step_10",)


def test_the_newest_are_kept(tmp_path: Path) -> None:
    counts = []
    for step in range(7, 13):
        prune(tmp_path, 3, save(tmp_path, step))
        counts.append(len(steps(tmp_path)))
    assert counts == [1, 2, 3, 3, 3, 3]
    assert names(tmp_path) == ["step_10", "step_11", "step_12"]


def test_prune_returns_what_it_removed(tmp_path: Path) -> None:
    save(tmp_path, 7)
    save(tmp_path, 8)
    assert prune(tmp_path, 1, save(tmp_path, 9)) == (tmp_path / "step_7", tmp_path / "step_8")


def test_prune_goes_by_the_order_of_publication(tmp_path: Path) -> None:
    save(tmp_path, 20)
    save(tmp_path, 7)
    prune(tmp_path, 2, save(tmp_path, 8))
    assert names(tmp_path) == ["step_7", "step_8"]


def test_bundles_of_another_run_neither_count_nor_go(tmp_path: Path) -> None:
    save(tmp_path, 100, run_id="other")
    for step in (7, 8, 9, 10):
        prune(tmp_path, 3, save(tmp_path, step))
    assert names(tmp_path) == ["step_10", "step_100", "step_8", "step_9"]
    assert latest(tmp_path, "run") == tmp_path / "step_10"


@pytest.mark.parametrize("keep", [0, -1])
def test_keeping_none_is_refused_and_removes_nothing(tmp_path: Path, keep: int) -> None:
    save(tmp_path, 7)
    published = save(tmp_path, 8)
    with pytest.raises(ConfigError, match=f"keep is {keep}"):
        prune(tmp_path, keep, published)
    assert names(tmp_path) == ["step_7", "step_8"]


def test_prune_comes_after_publication(tmp_path: Path) -> None:
    save(tmp_path, 7)
    with pytest.raises(MisuseError, match="publish, then prune"):
        prune(tmp_path, 1, tmp_path / "step_8")
    assert names(tmp_path) == ["step_7"]


def test_what_was_just_published_stays_even_if_it_is_not_the_newest(tmp_path: Path) -> None:
    published = save(tmp_path, 7)
    save(tmp_path, 8)
    assert prune(tmp_path, 1, published) == ()
    assert names(tmp_path) == ["step_7", "step_8"]


def test_the_last_bundle_that_verifies_stays_while_newer_ones_do_not(tmp_path: Path) -> None:
    for step in (7, 8, 9):
        save(tmp_path, step)
    published = save(tmp_path, 10)
    for step in (9, 10):
        (tmp_path / f"step_{step}" / LOADER).write_bytes(b"rotten")
    assert prune(tmp_path, 2, published) == (tmp_path / "step_7",)
    assert verify(tmp_path / "step_8")


def test_a_broken_bundle_takes_no_place_among_the_kept(tmp_path: Path) -> None:
    save(tmp_path, 7)
    (save(tmp_path, 8) / MANIFEST).unlink()
    prune(tmp_path, 2, save(tmp_path, 9))
    assert names(tmp_path) == ["step_7", "step_8", "step_9"]


def test_a_removal_that_died_is_ended_by_the_next_one(tmp_path: Path) -> None:
    save(tmp_path, 7)
    (tmp_path / "trash_step_7" / "policy").mkdir(parents=True)
    prune(tmp_path, 1, save(tmp_path, 8))
    assert names(tmp_path) == ["step_8"]


def test_bundles_of_a_given_up_timeline_are_set_aside(tmp_path: Path) -> None:
    for step in (7, 8, 9):
        save(tmp_path, step)
    moved = set_aside(tmp_path, newer_than=1)
    assert moved == (tmp_path / "abandoned_step_8", tmp_path / "abandoned_step_9")
    assert latest(tmp_path, "run") == tmp_path / "step_7"
    assert set(kinds(tmp_path).values()) == {DebrisKind.ABANDONED}


def test_a_step_can_be_saved_and_set_aside_again_and_again(tmp_path: Path) -> None:
    save(tmp_path, 7)
    for _ in range(3):
        save(tmp_path, 8)
        set_aside(tmp_path, newer_than=1)
    assert names(tmp_path) == [
        "abandoned_step_8",
        "abandoned_step_8.2",
        "abandoned_step_8.3",
        "step_7",
    ]


def test_only_the_given_run_is_set_aside(tmp_path: Path) -> None:
    save(tmp_path, 7)
    save(tmp_path, 8, run_id="other")
    save(tmp_path, 9)
    set_aside(tmp_path, newer_than=1, run_id="run")
    assert names(tmp_path) == ["abandoned_step_9", "step_7", "step_8"]


def test_setting_nothing_aside_is_no_error(tmp_path: Path) -> None:
    save(tmp_path, 7)
    assert set_aside(tmp_path, newer_than=1) == ()


def test_the_run_goes_on_after_an_older_bundle_with_the_same_steps(tmp_path: Path) -> None:
    for step in (7, 8, 9):
        save(tmp_path, step)
    set_aside(tmp_path, newer_than=1)
    prune(tmp_path, 2, save(tmp_path, 8))
    assert steps(tmp_path) == [7, 8]
    assert latest(tmp_path, "run") == tmp_path / "step_8"


def test_what_was_set_aside_stays_so_after_a_power_loss(tmp_path: Path) -> None:
    root = tmp_path / "run"
    save(root, 7)
    save(root, 8)
    disk = LossyDisk(tmp_path / "run")
    set_aside(root, newer_than=1, fs=disk)
    for number, loss in enumerate(LOSSES):
        image = tmp_path / f"image-{number}"
        materialise(disk.crash_tree(loss), image)
        assert names(image) == ["abandoned_step_8", "step_7"]


def test_a_refusal_says_what_was_being_done(tmp_path: Path) -> None:
    newest = [save(tmp_path, step) for step in (7, 8)][-1]
    (tmp_path / "tmp_step_9").mkdir()
    found = scan(tmp_path)
    with pytest.raises(SaveError, match=r"^syncing .*no access"):
        reclaim(found, refusing("sync_directory", tmp_path.name))
    with pytest.raises(SaveError, match=r"^reclaiming debris in .*no access"):
        reclaim(found, refusing("remove_directory", "tmp_step_9"))
    with pytest.raises(SaveError, match=r"^pruning .*no access"):
        prune(tmp_path, 1, newest, refusing("rename", "step_7"))
    with pytest.raises(SaveError, match=r"^setting bundles of .* aside failed.*no access"):
        set_aside(tmp_path, 1, fs=refusing("rename", "step_8"))


def test_bundles_are_looked_for_on_the_disk_that_was_given(tmp_path: Path) -> None:
    newest = [save(tmp_path, step) for step in (7, 8)][-1]
    fs = refusing("list_directory", tmp_path.name)
    with pytest.raises(PermissionError):
        prune(tmp_path, 1, newest, fs)
    with pytest.raises(PermissionError):
        set_aside(tmp_path, 1, fs=fs)
    with pytest.raises(PermissionError):
        latest(tmp_path, fs=fs)
    with pytest.raises(BundleNotFoundError, match=r"step_7 \(broken: .*no access"):
        latest(tmp_path, fs=refusing("read_chunks", MANIFEST))


def test_the_newest_bundle_that_verifies_is_one_of_the_disk_that_was_given(tmp_path: Path) -> None:
    newest = [save(tmp_path, step) for step in (7, 8, 9)][-1]
    fs = RealFileSystem()
    fs.read_chunks = lambda path: REAL.read_chunks(  # type: ignore[method-assign]
        path if path != newest / LOADER else tmp_path / "absent"
    )
    assert prune(tmp_path, 1, newest, fs) == (tmp_path / "step_7",)


def saved(root: Path, step: int) -> BundleWriter:
    cut = sample_cut(step)
    writer = BundleWriter.begin(root, "run", step)
    fill(writer, cut, sample_info(cut))
    writer.seal(cut.cut_id, rows=True)
    writer.publish()
    return writer


class Unread(RealFileSystem):
    """The real file system, of which manifests alone are read."""

    def read_chunks(self, path: Path) -> Iterator[bytes]:
        assert path.name == MANIFEST, f"{path} is read"
        return super().read_chunks(path)


def test_files_that_are_those_whose_digests_were_taken_are_not_read_once_more(
    tmp_path: Path,
) -> None:
    save(tmp_path, 7)
    writer = saved(tmp_path, 8)
    assert prune(tmp_path, 1, writer.final, Unread(), marks=writer.marks) == (tmp_path / "step_7",)


def overwrite(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    with file.open("r+b") as same:
        same.write(content)


def replace(file: Path) -> None:
    content = file.read_bytes()[::-1]
    file.unlink()
    file.write_bytes(content)


def cut_short(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def stand_beside(file: Path) -> None:
    file.with_name("stranger").touch()


def let_the_clock_of_the_disk_move(file: Path) -> None:
    """It goes in steps of milliseconds: two writes of one step have the same time."""
    probe = file.parents[1] / "probe"
    probe.touch()
    while probe.stat().st_ctime_ns == file.stat().st_ctime_ns:
        probe.touch()


@pytest.mark.parametrize("change", [overwrite, replace, cut_short, stand_beside, Path.unlink])
def test_a_file_that_has_changed_since_its_digest_is_read_and_its_bundle_does_not_count(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    save(tmp_path, 7)
    writer = saved(tmp_path, 8)
    written = writer.final / LOADER
    let_the_clock_of_the_disk_move(written)
    change(written)
    assert prune(tmp_path, 1, writer.final, marks=writer.marks) == ()
