from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cutlock.bundle import files
from cutlock.bundle.contents import decode_cut
from cutlock.bundle.files import REAL, RealFileSystem, digest_file, digest_files, remove_tree
from cutlock.bundle.layout import (
    DATA_PLANE,
    LOADER,
    MANIFEST,
    POLICY,
    SIDECARS,
    STAMP,
    TRAINING_INFO,
    required,
)
from cutlock.bundle.publication import latest, set_aside
from cutlock.bundle.verification import verify
from cutlock.bundle.writing import BundleWriter
from cutlock.errors import BundleExistsError, MisuseError, SaveError
from tests.support.bundles import fill, sample_cut, sample_info, save
from tests.support.refusing_disk import refusing

CUT = sample_cut()


def begin(root: Path, step: int = 7) -> BundleWriter:
    return BundleWriter.begin(root, "run", step)


def filled(root: Path, step: int = 7) -> BundleWriter:
    writer = begin(root, step)
    cut = sample_cut(step)
    fill(writer, cut, sample_info(cut))
    return writer


def seal(writer: BundleWriter) -> None:
    writer.seal(CUT.cut_id, rows=True)


def test_the_parts_are_written_under_a_temporary_name(tmp_path: Path) -> None:
    writer = filled(tmp_path)
    assert writer.path == tmp_path / "tmp_step_7"
    assert writer.reclaimed == ()
    assert writer.size == 0
    assert not (tmp_path / "step_7").exists()


def test_publish_gives_the_whole_bundle_its_name(tmp_path: Path) -> None:
    writer = filled(tmp_path)
    seal(writer)
    assert writer.publish() == tmp_path / "step_7"
    assert not writer.path.exists()
    assert decode_cut(verify(tmp_path / "step_7")) == CUT


def test_a_missing_run_directory_is_made(tmp_path: Path) -> None:
    assert save(tmp_path / "runs" / "one").exists()


def test_the_manifest_lists_every_other_file_with_size_and_digest(tmp_path: Path) -> None:
    writer = filled(tmp_path)
    manifest = writer.seal(CUT.cut_id, rows=True)
    found = {file.name: (file.size, file.sha256) for file in manifest.files}
    paths = [path for path in writer.path.rglob("*") if path.is_file() and path.name != MANIFEST]
    assert found == {
        path.relative_to(writer.path).as_posix(): digest_file(REAL, path) for path in paths
    }
    assert (manifest.step, manifest.run_id, manifest.cut_id) == (7, "run", CUT.cut_id)
    assert writer.size == sum(path.stat().st_size for path in paths)


def test_sequences_rise_whatever_the_step(tmp_path: Path) -> None:
    sequences = [verify(save(tmp_path, step)).manifest.sequence for step in (9, 7, 8)]
    assert sequences == [1, 2, 3]


def test_sequences_rise_past_bundles_that_were_set_aside(tmp_path: Path) -> None:
    save(tmp_path, 7)
    save(tmp_path, 8)
    set_aside(tmp_path, newer_than=1)
    assert verify(save(tmp_path, 8)).manifest.sequence == 3


@pytest.mark.parametrize("rows", [True, False])
def test_seal_names_each_missing_artifact(tmp_path: Path, rows: bool) -> None:
    for name in required(rows=rows):
        writer = begin(tmp_path / name.replace("/", "-"))
        fill(writer, CUT, sample_info(CUT, rows=rows))
        remove_tree(REAL, writer.path / name)
        with pytest.raises(SaveError, match=f"{name} is missing"):
            writer.seal(CUT.cut_id, rows=rows)


@pytest.mark.parametrize("name", [*SIDECARS, TRAINING_INFO, STAMP])
def test_seal_names_an_empty_artifact(tmp_path: Path, name: str) -> None:
    writer = filled(tmp_path)
    if name == STAMP:
        (writer.path / name).write_bytes(b"")
    else:
        (writer.path / name).unlink()
        writer.write(name, b"")
    with pytest.raises(SaveError, match=f"{name} is empty"):
        seal(writer)


def test_seal_refuses_training_info_that_is_not_the_one_written(tmp_path: Path) -> None:
    writer = filled(tmp_path)
    (writer.path / TRAINING_INFO).write_bytes(b"of somebody else")
    with pytest.raises(SaveError, match=f"{TRAINING_INFO} is not the one written: another save"):
        seal(writer)


def test_what_was_digested_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = filled(tmp_path)
    read = []
    real = RealFileSystem.read_chunks

    def noted(self: RealFileSystem, path: Path) -> Iterator[bytes]:
        read.append(path.name)
        return real(self, path)

    monkeypatch.setattr(RealFileSystem, "read_chunks", noted)
    seal(writer)
    assert {*read} == {*SIDECARS, TRAINING_INFO, STAMP.rpartition("/")[2]}


def test_parts_are_on_their_way_to_the_disk_before_any_of_them_is_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []
    for name in ("begin_sync", "read_chunks"):
        real = getattr(RealFileSystem, name)

        def watched(self: RealFileSystem, path: Path, name: str = name, real: Any = real) -> Any:
            calls.append((name, path.name))
            return real(self, path)

        monkeypatch.setattr(RealFileSystem, name, watched)
    writer = filled(tmp_path)
    calls.clear()
    parts = writer.digest_parts()
    assert [name for name, _ in calls] == ["begin_sync"] * len(parts) + ["read_chunks"] * len(parts)


def test_a_file_that_cannot_be_sent_on_its_way_to_the_disk_is_no_error(tmp_path: Path) -> None:
    REAL.begin_sync(tmp_path / "is not there")


def test_digests_come_in_the_order_of_the_files(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}" for number in range(40)]
    for number, path in enumerate(paths):
        path.write_bytes(b"x" * number)
    found = digest_files(REAL, ((path, None) for path in paths))
    assert list(found) == [digest_file(REAL, path) for path in paths]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")
def test_those_that_hash_leave_the_cores_to_the_run(tmp_path: Path) -> None:
    asked: list[int] = []

    class Asking(RealFileSystem):
        def read_chunks(self, path: Path) -> Iterator[bytes]:
            asked.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            return super().read_chunks(path)

    (tmp_path / "file").write_bytes(b"rows")
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    list(digest_files(Asking(), [(tmp_path / "file", None)]))
    assert asked == [max(10, before)]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before


def test_a_file_that_cannot_be_hashed_is_an_error_in_its_turn(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"x")
    found = digest_files(REAL, [(tmp_path / "there", None), (tmp_path / "gone", None)])
    assert next(found)[0] == 1
    with pytest.raises(FileNotFoundError):
        next(found)


def test_other_bundles_are_looked_for_on_the_disk_that_was_given(tmp_path: Path) -> None:
    fs = RealFileSystem()
    first, second = (BundleWriter.begin(tmp_path, "run", step, fs) for step in (7, 8))
    for writer, cut in ((first, CUT), (second, sample_cut(8))):
        fill(writer, cut, sample_info(cut))
    seal(first)
    fs.list_directory = refusing("list_directory", tmp_path.name).list_directory  # type: ignore[method-assign]
    with pytest.raises(SaveError, match=r"^seal of .*no access"):
        seal(second)
    with pytest.raises(SaveError, match=r"^publish of .*no access"):
        first.publish()


def test_a_bundle_in_the_way_is_read_from_the_disk_that_was_given(tmp_path: Path) -> None:
    save(tmp_path)
    writer = BundleWriter.begin(tmp_path, "run", 7, refusing("read_chunks", MANIFEST))
    assert writer.reclaimed == (tmp_path / "abandoned_step_7",)


def test_seal_refuses_a_directory_of_empty_files(tmp_path: Path) -> None:
    writer = filled(tmp_path)
    for path in (writer.path / POLICY).iterdir():
        path.write_bytes(b"")
    writer.digest_parts()
    with pytest.raises(SaveError, match=f"{POLICY} is empty"):
        seal(writer)


def test_seal_counts_the_parts_that_the_caller_expects(tmp_path: Path) -> None:
    units = [f"{DATA_PLANE}/units/unit_{unit}" for unit in range(3)]
    with pytest.raises(SaveError, match="unit_2 is missing"):
        filled(tmp_path / "three").seal(CUT.cut_id, rows=True, parts=units)
    filled(tmp_path / "two").seal(CUT.cut_id, rows=True, parts=units[:2])


def test_seal_refuses_rows_in_a_save_without_rows(tmp_path: Path) -> None:
    with pytest.raises(SaveError, match=f"{DATA_PLANE}.* is nothing that a bundle of this save"):
        filled(tmp_path).seal(CUT.cut_id, rows=False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: (path / "stray").write_bytes(b"x"), "stray is nothing"),
        (lambda path: (path / MANIFEST).write_bytes(b"x"), f"{MANIFEST} is nothing"),
        (lambda path: (path / "stray").mkdir(), "stray is nothing"),
        (lambda path: (path / POLICY / "link").symlink_to("optimizer.pt"), "link is nothing"),
        (lambda path: (path / POLICY / "void").mkdir(), "void is an empty directory"),
        (lambda path: (path / POLICY / "\udcff").write_bytes(b"x"), "seal .* failed"),
    ],
)
def test_seal_refuses_what_no_manifest_can_list(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    writer = filled(tmp_path)
    make(writer.path)
    with pytest.raises(SaveError, match=message):
        seal(writer)


def test_a_second_attempt_is_written_beside_the_first(tmp_path: Path) -> None:
    first = begin(tmp_path)
    second = BundleWriter.begin(tmp_path, "run", 7, attempt=2)
    assert [first.path.name, second.path.name] == ["tmp_step_7", "tmp_step_7.2"]


def test_a_failed_seal_leaves_nothing_that_can_be_published(tmp_path: Path) -> None:
    writer = begin(tmp_path)
    writer.write(LOADER, b"x")
    with pytest.raises(SaveError, match="is missing"):
        seal(writer)
    with pytest.raises(MisuseError, match="was failed, not sealed"):
        writer.publish()
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_once(tmp_path: Path) -> None:
    writer = begin(tmp_path)
    writer.write(LOADER, b"first")
    with pytest.raises(SaveError, match=r"^write of .*tmp_step_7 failed: .*File exists"):
        writer.write(LOADER, b"second")
    assert (writer.path / LOADER).read_bytes() == b"first"


def test_a_directory_is_given_again_on_request(tmp_path: Path) -> None:
    writer = begin(tmp_path)
    assert writer.directory(POLICY) == writer.directory(POLICY)


@pytest.mark.parametrize("name", [MANIFEST, "../outside", "extra.pt", f"{POLICY}/x", POLICY])
def test_only_files_of_the_table_are_written(tmp_path: Path, name: str) -> None:
    known = ", ".join((*SIDECARS, TRAINING_INFO))
    with pytest.raises(MisuseError, match=f"{name!r} is no file that the save .* {known}$"):
        begin(tmp_path).write(name, b"x")


@pytest.mark.parametrize("name", [LOADER, "..", "extra"])
def test_only_directories_of_the_table_are_given(tmp_path: Path, name: str) -> None:
    with pytest.raises(MisuseError, match="no directory of a bundle"):
        begin(tmp_path).directory(name)


@pytest.mark.parametrize(
    ("call", "add"),
    [
        ("write", lambda writer: writer.write(LOADER, b"x")),
        ("directory", lambda writer: writer.directory(POLICY)),
        ("digest_parts", lambda writer: writer.digest_parts()),
        ("seal", seal),
    ],
)
def test_nothing_is_added_after_the_seal(
    tmp_path: Path, call: str, add: Callable[[BundleWriter], object]
) -> None:
    writer = filled(tmp_path)
    seal(writer)
    with pytest.raises(MisuseError, match=rf"^{call}\(\) of .*tmp_step_7 .* was sealed, not open"):
        add(writer)


def test_publish_needs_a_seal(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match=r"^publish\(\) of .*tmp_step_7 .* was open, not sealed"):
        filled(tmp_path).publish()


def test_publish_happens_once(tmp_path: Path) -> None:
    writer = filled(tmp_path)
    seal(writer)
    writer.publish()
    with pytest.raises(MisuseError, match="was published, not sealed"):
        writer.publish()


def test_a_save_that_was_given_up_begins_nothing_and_publishes_nothing(tmp_path: Path) -> None:
    writer = filled(tmp_path)
    seal(writer)
    assert writer.revoke()
    with pytest.raises(SaveError, match=r"publish of .* came too late: the save was given up"):
        writer.publish()
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_save_that_is_published_cannot_be_given_up(tmp_path: Path) -> None:
    writer = filled(tmp_path)
    seal(writer)
    published = writer.publish()
    assert not writer.revoke()
    verify(published)


def test_abandon_tries_again_what_it_could_not_remove(tmp_path: Path) -> None:
    disk = refusing("remove_directory", "tmp_step_7")
    writer = BundleWriter.begin(tmp_path, "run", 7, disk)
    with pytest.raises(SaveError, match=r"abandoning .* failed: .*no access"):
        writer.abandon()
    disk.remove_directory = REAL.remove_directory  # type: ignore[method-assign]
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_published_bundle_cannot_be_abandoned(tmp_path: Path) -> None:
    writer = filled(tmp_path)
    seal(writer)
    writer.publish()
    with pytest.raises(MisuseError, match="is published"):
        writer.abandon()
    assert verify(tmp_path / "step_7")


@pytest.mark.parametrize("sealed", [False, True])
def test_abandon_removes_everything_and_may_be_repeated(tmp_path: Path, sealed: bool) -> None:
    writer = filled(tmp_path)
    if sealed:
        seal(writer)
    writer.abandon()
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_an_abandoned_save_takes_nothing_more(tmp_path: Path) -> None:
    writer = begin(tmp_path)
    writer.abandon()
    with pytest.raises(MisuseError, match="was abandoned, not open"):
        writer.write(LOADER, b"x")


def test_what_a_dead_save_left_is_removed_and_reported_and_not_mixed_in(tmp_path: Path) -> None:
    dead = begin(tmp_path)
    (dead.directory(POLICY) / "rank_9").write_bytes(b"of the first attempt")
    writer = filled(tmp_path)
    assert writer.reclaimed == (tmp_path / "tmp_step_7",)
    seal(writer)
    assert f"{POLICY}/rank_9" not in verify(writer.publish())


def test_a_link_in_place_of_the_temporary_directory_is_removed_and_not_followed(
    tmp_path: Path,
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_bytes(b"x")
    (tmp_path / "tmp_step_7").symlink_to(elsewhere)
    begin(tmp_path)
    assert (elsewhere / "precious").exists()


def test_a_published_step_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    save(tmp_path)
    with pytest.raises(BundleExistsError, match=r"step_7 is already there; .* set it aside"):
        begin(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step_7"]


def test_a_step_that_another_run_published_is_refused(tmp_path: Path) -> None:
    save(tmp_path, run_id="other")
    with pytest.raises(BundleExistsError, match="directory of its own"):
        begin(tmp_path)


def test_a_step_published_meanwhile_is_refused_and_stays(tmp_path: Path) -> None:
    writer = filled(tmp_path)
    seal(writer)
    writer.path.rename(tmp_path / "kept")
    published = save(tmp_path)
    (tmp_path / "kept").rename(writer.path)
    with pytest.raises(BundleExistsError, match="step_7 is already there"):
        writer.publish()
    assert verify(published)


def test_a_broken_step_makes_room_for_a_new_save_of_it(tmp_path: Path) -> None:
    broken = save(tmp_path)
    (broken / MANIFEST).unlink()
    writer = filled(tmp_path)
    assert writer.reclaimed == (tmp_path / "abandoned_step_7",)
    seal(writer)
    assert verify(writer.publish())
    assert (tmp_path / "abandoned_step_7" / LOADER).exists()


def test_a_save_that_was_overtaken_by_a_later_one_is_not_published(tmp_path: Path) -> None:
    slow = filled(tmp_path, 7)
    seal(slow)
    save(tmp_path, 8)
    says = f"{MANIFEST} has sequence 1, and 1 was published meanwhile"
    with pytest.raises(SaveError, match=says):
        slow.publish()
    assert latest(tmp_path, "run") == tmp_path / "step_8"


@pytest.mark.parametrize("sealed", [False, True])
def test_a_save_whose_directory_was_taken_over_is_not_published(
    tmp_path: Path, sealed: bool
) -> None:
    slow = filled(tmp_path)
    seal(slow)
    retry = begin(tmp_path)
    cut = sample_cut(dropped=2)
    fill(retry, cut, sample_info(cut))
    if sealed:
        retry.seal(cut.cut_id, rows=True)
    with pytest.raises(SaveError, match=f"{MANIFEST} is not the one sealed: another save"):
        slow.publish()
    if not sealed:
        retry.seal(cut.cut_id, rows=True)
    assert decode_cut(verify(retry.publish())) == cut


def test_a_run_directory_that_cannot_be_made_fails_the_save(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(SaveError, match=r"^beginning .*tmp_step_7 failed: .*file"):
        begin(tmp_path / "file")


def test_what_cannot_be_removed_fails_the_abandoning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: RealFileSystem, path: Path) -> None:
        raise PermissionError(path)

    writer = begin(tmp_path)
    monkeypatch.setattr(RealFileSystem, "remove_directory", refuse)
    with pytest.raises(SaveError, match=r"^abandoning .*tmp_step_7 failed"):
        writer.abandon()
    with pytest.raises(MisuseError, match="was failed, not open"):
        writer.write(LOADER, b"x")
    monkeypatch.undo()
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_save_that_was_given_up_begins_nothing_more(tmp_path: Path) -> None:
    writer = filled(tmp_path)
    assert writer.revoke() is True
    with pytest.raises(SaveError, match=r"^seal of .*tmp_step_7 came too late: the save was given"):
        seal(writer)
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_published_save_is_not_given_up(tmp_path: Path) -> None:
    writer = filled(tmp_path)
    seal(writer)
    writer.publish()
    assert writer.revoke() is False
    assert verify(tmp_path / "step_7")


def test_a_save_that_is_given_up_while_its_name_is_synced_leaves_nothing(tmp_path: Path) -> None:
    writer = filled(tmp_path)
    seal(writer)
    fs = RealFileSystem()

    def give_up(path: Path) -> None:
        assert path == tmp_path
        assert writer.revoke()

    fs.sync_directory = give_up  # type: ignore[method-assign]
    writer._fs = fs
    with pytest.raises(SaveError, match=r"^publish of .*tmp_step_7 came too late"):
        writer.publish()
    assert list(tmp_path.iterdir()) == []


def test_a_publication_that_cannot_be_synced_is_taken_back_once(tmp_path: Path) -> None:
    writer = filled(tmp_path)
    seal(writer)
    writer._fs = refusing("sync_directory", tmp_path.name)
    with pytest.raises(SaveError, match=r"^publish of .*tmp_step_7 failed: .*no access"):
        writer.publish()
    assert [path.name for path in tmp_path.iterdir()] == ["tmp_step_7"]
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_publication_that_can_be_neither_synced_nor_taken_back_tells_why(tmp_path: Path) -> None:
    writer = filled(tmp_path)
    seal(writer)
    fs = refusing("rename", "step_7")
    fs.sync_directory = refusing("sync_directory", tmp_path.name).sync_directory  # type: ignore[method-assign]
    writer._fs = fs
    with pytest.raises(SaveError, match=r"^publish of .*tmp_step_7 failed: .*no access"):
        writer.publish()


def test_files_longer_than_one_read_come_back_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHUNK", 5)
    assert decode_cut(verify(save(tmp_path))) == CUT


@pytest.mark.parametrize(
    ("limit", "pieces"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (8, 4), (9, 4)]
)
def test_no_piece_is_read_after_the_one_that_goes_past_the_limit(limit: int, pieces: int) -> None:
    chunks = [b"ab", b"cd", b"ef", b"gh"]
    assert list(files.bounded(iter(chunks), limit)) == chunks[:pieces]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file") as caught:
        list(REAL.read_chunks(tmp_path / "pipe"))
    assert (caught.value.errno, caught.value.filename) == (errno.EINVAL, str(tmp_path / "pipe"))


def test_a_link_is_not_synced_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="symbolic links"):
        REAL.sync_file(tmp_path / "link")


def test_a_file_is_not_synced_in_place_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(NotADirectoryError):
        REAL.sync_directory(tmp_path / "file")


def test_files_are_hashed_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK", 4)
    (tmp_path / "file").write_bytes(b"0123456789")
    assert [len(chunk) for chunk in REAL.read_chunks(tmp_path / "file")] == [4, 4, 2]
    assert digest_file(REAL, tmp_path / "file")[0] == 10


def test_no_directory_replaces_another_with_content(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(name.encode())
    with pytest.raises(OSError, match="not empty"):
        REAL.rename(tmp_path / "old", tmp_path / "new")
    assert (tmp_path / "new" / "file").read_bytes() == b"new"


def test_removing_what_is_absent_is_no_error(tmp_path: Path) -> None:
    remove_tree(REAL, tmp_path / "absent")
