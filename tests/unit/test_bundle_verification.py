from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cutlock.bundle import files, verification
from cutlock.bundle.contents import decode_cut
from cutlock.bundle.files import REAL, FileSystem, RealFileSystem, walk
from cutlock.bundle.layout import ARTIFACTS, DATA_PLANE, LOADER, MANIFEST, POLICY, required
from cutlock.bundle.manifest import Manifest, decode_manifest, encode_manifest
from cutlock.bundle.verification import VerifiedBundle, verify
from cutlock.errors import BundleCorruptError, BundleNotFoundError, MisuseError
from cutlock.records import digest_of
from tests.support.bundles import reseal, save
from tests.support.refusing_disk import refusing

FILES = [row.name for row in ARTIFACTS if not row.name.endswith("/")]
READ_BY_US = [name for name in FILES if not name.startswith(f"{POLICY}/")]
DIRECTORIES = [row.name.rstrip("/") for row in ARTIFACTS if row.name.endswith("/")]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return save(tmp_path / "run")


def refused(bundle: Path, file: str, fs: FileSystem = REAL) -> str:
    with pytest.raises(BundleCorruptError) as caught:
        verify(bundle, fs)
    assert caught.value.bundle == bundle
    assert str(bundle) in str(caught.value)
    assert f": {file}: " in str(caught.value)
    assert "older bundle" in str(caught.value)
    return str(caught.value)


def test_a_whole_bundle_verifies_with_every_artifact_of_the_table(bundle: Path) -> None:
    verified = verify(bundle)
    assert verified.path == bundle
    assert verified.manifest.step == 7
    assert all((bundle / name).is_file() for name in FILES)
    assert all(name in verified for name in (*FILES, *DIRECTORIES) if name != MANIFEST)


def test_the_table_has_a_row_for_whatever_is_in_a_bundle(bundle: Path) -> None:
    for name in walk(REAL, bundle).files:
        assert name in FILES or any(name.startswith(f"{row}/") for row in DIRECTORIES)


def test_every_row_of_the_table_says_what_binds_it() -> None:
    assert all(row.content and row.writer and row.reader and row.bound_by for row in ARTIFACTS)
    assert len({row.name for row in ARTIFACTS}) == len(ARTIFACTS)


@pytest.mark.parametrize("file", FILES)
def test_a_removed_file_is_refused_by_name(bundle: Path, file: str) -> None:
    (bundle / file).unlink()
    missing = "a file was expected, nothing was found" if file == MANIFEST else "missing on disk"
    assert missing in refused(bundle, file)


@pytest.mark.parametrize("file", FILES)
def test_a_truncated_file_is_refused_by_name(bundle: Path, file: str) -> None:
    data = (bundle / file).read_bytes()
    (bundle / file).write_bytes(data[:-1])
    refused(bundle, file)


@pytest.mark.parametrize("file", FILES)
def test_an_emptied_file_is_refused_by_name(bundle: Path, file: str) -> None:
    (bundle / file).write_bytes(b"")
    refused(bundle, file)


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_bit_is_refused_by_name(bundle: Path, file: str) -> None:
    data = bytearray((bundle / file).read_bytes())
    data[len(data) // 2] ^= 1
    (bundle / file).write_bytes(bytes(data))
    refused(bundle, file)


@pytest.mark.parametrize("file", FILES)
def test_a_file_of_another_save_is_refused_by_name(bundle: Path, file: str) -> None:
    other = save(bundle.parent, 8)
    (bundle / file).write_bytes((other / file).read_bytes())
    refused(bundle, file)


@pytest.mark.parametrize("file", FILES)
def test_a_renamed_file_is_refused_by_name(bundle: Path, file: str) -> None:
    (bundle / file).rename(bundle / f"{file}.bak")
    refused(bundle, file)


@pytest.mark.parametrize("directory", ["", *DIRECTORIES])
def test_an_extra_file_is_refused_by_name(bundle: Path, directory: str) -> None:
    (bundle / directory / "extra").write_bytes(b"x")
    what = refused(bundle, f"{directory}/extra".lstrip("/"))
    assert "is on disk, and not in the manifest" in what


@pytest.mark.parametrize("directory", ["", *DIRECTORIES])
def test_an_extra_directory_is_refused_by_name(bundle: Path, directory: str) -> None:
    (bundle / directory / "extra").mkdir()
    what = refused(bundle, f"{directory}/extra".lstrip("/"))
    assert "is a directory on disk with no file in the manifest" in what


def test_a_directory_in_place_of_a_file_is_refused_as_such(bundle: Path) -> None:
    (bundle / LOADER).unlink()
    (bundle / LOADER).mkdir()
    assert "is a file in the manifest, and a directory on disk" in refused(bundle, LOADER)


@pytest.mark.parametrize("file", FILES)
def test_a_link_in_place_of_a_file_is_refused_by_name(bundle: Path, file: str) -> None:
    kept = bundle.parent / "elsewhere"
    (bundle / file).rename(kept)
    (bundle / file).symlink_to(kept)
    refused(bundle, file)


@pytest.mark.parametrize("file", [MANIFEST, LOADER])
def test_a_file_that_cannot_be_read_is_refused_by_name(bundle: Path, file: str) -> None:
    fs = refusing("read_chunks", file)
    assert "cannot be read: [Errno 13] no access" in refused(bundle, file, fs)


def test_a_bundle_that_cannot_be_listed_is_refused(bundle: Path) -> None:
    fs = refusing("list_directory", "step_7")
    assert "cannot be listed: [Errno 13] no access" in refused(bundle, ".", fs)


def test_a_link_in_place_of_the_manifest_is_refused_as_such(bundle: Path) -> None:
    (bundle / MANIFEST).rename(bundle.parent / "elsewhere")
    (bundle / MANIFEST).symlink_to(bundle.parent / "elsewhere")
    expected = "a file was expected, a link or special file was found"
    assert expected in refused(bundle, MANIFEST)


def test_a_link_in_place_of_a_directory_is_refused_by_name(bundle: Path) -> None:
    kept = bundle.parent / "elsewhere"
    (bundle / POLICY).rename(kept)
    (bundle / POLICY).symlink_to(kept)
    refused(bundle, POLICY)


def test_a_pipe_is_refused_without_being_read(bundle: Path) -> None:
    (bundle / LOADER).unlink()
    os.mkfifo(bundle / LOADER)
    assert "a link or special file" in refused(bundle, LOADER)


def test_a_link_to_a_bundle_is_refused(bundle: Path) -> None:
    link = bundle.parent / "best"
    link.symlink_to(bundle)
    assert "a directory was expected, a link or special file was found" in refused(link, ".")


def test_an_absent_bundle_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(BundleNotFoundError, match="step_9 does not exist"):
        verify(tmp_path / "step_9")


@pytest.mark.parametrize(
    ("prefix", "place"),
    [("tmp_", "temporary"), ("trash_", "trash"), ("abandoned_", "abandoned")],
)
def test_a_whole_directory_that_is_not_published_is_not_found(
    bundle: Path, prefix: str, place: str
) -> None:
    hidden = bundle.rename(bundle.parent / f"{prefix}step_7")
    with pytest.raises(BundleNotFoundError, match=f"is {place} and no published bundle"):
        verify(hidden)


def test_a_bundle_under_the_name_of_another_step_is_refused(bundle: Path) -> None:
    moved = bundle.rename(bundle.parent / "step_8")
    assert "step 8 expected by the name, step 7 found" in refused(moved, MANIFEST)


def test_a_bundle_that_was_copied_away_still_verifies(bundle: Path) -> None:
    assert verify(bundle.rename(bundle.parent / "best")).manifest.step == 7


def test_the_error_has_both_sizes(bundle: Path) -> None:
    size = (bundle / LOADER).stat().st_size
    (bundle / LOADER).write_bytes(b"abc")
    assert f"{size} bytes expected, 3 found" in refused(bundle, LOADER)


def test_of_a_file_that_has_grown_no_more_is_read_than_shows_it(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = (bundle / LOADER).stat().st_size
    with (bundle / LOADER).open("ab") as file:
        file.write(bytes(100))
    read: list[bytes] = []
    real = RealFileSystem.read_chunks

    def noted(self: RealFileSystem, path: Path) -> Iterator[bytes]:
        for chunk in real(self, path):
            read.extend([chunk] if path.name == LOADER else [])
            yield chunk

    monkeypatch.setattr(files, "CHUNK", 10)
    monkeypatch.setattr(RealFileSystem, "read_chunks", noted)
    assert f"{size} bytes expected, more found" in refused(bundle, LOADER)
    assert size < len(b"".join(read)) <= size + 10


def test_a_file_of_the_right_size_is_refused_with_both_digests(bundle: Path) -> None:
    size = (bundle / LOADER).stat().st_size
    (bundle / LOADER).write_bytes(bytes(size))
    found = hashlib.sha256(bytes(size)).hexdigest()
    assert re.search(f"sha256 [0-9a-f]{{64}} expected, {found} found", refused(bundle, LOADER))


def test_a_manifest_longer_than_the_longest_is_refused(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = (bundle / MANIFEST).stat().st_size
    monkeypatch.setattr(verification, "LONGEST", size)
    verify(bundle)
    monkeypatch.setattr(verification, "LONGEST", size - 1)
    assert f"at most {size - 1} bytes expected, more found" in refused(bundle, MANIFEST)


def test_a_name_that_a_terminal_would_obey_is_shown_escaped(bundle: Path) -> None:
    (bundle / "\x1b[2J").write_bytes(b"x")
    refused(bundle, "'\\x1b[2J'")


@pytest.mark.parametrize("name", required(rows=True))
def test_a_manifest_without_a_required_artifact_is_refused(bundle: Path, name: str) -> None:
    for path in [bundle / name] if (bundle / name).is_file() else (bundle / name).rglob("*"):
        if path.is_file():
            path.unlink()
    if (bundle / name).is_dir():
        for path in sorted((bundle / name).rglob("*"), reverse=True):
            path.rmdir()
        (bundle / name).rmdir()
    reseal(bundle)
    if name == DATA_PLANE:
        with pytest.raises(BundleCorruptError, match="rows False expected, True found"):
            decode_cut(verify(bundle))
    else:
        assert "is required" in refused(bundle, name)


def test_a_manifest_is_written_a_line_per_value_and_sealed_with_its_seal_left_empty(
    bundle: Path,
) -> None:
    written = (bundle / MANIFEST).read_bytes()
    manifest = decode_manifest(written, bundle)
    assert written.decode() == json.dumps(json.loads(written), indent=1) + "\n"
    unsealed = msgspec.structs.replace(manifest, manifest_sha256="")
    assert manifest.manifest_sha256 == digest_of(unsealed)


def edit(bundle: Path, **changes: object) -> Manifest:
    manifest = decode_manifest((bundle / MANIFEST).read_bytes(), bundle)
    edited = msgspec.structs.replace(manifest, **changes)
    (bundle / MANIFEST).write_bytes(encode_manifest(edited))
    return edited


def test_an_edited_manifest_is_refused_by_its_own_digest(bundle: Path) -> None:
    edit(bundle, sequence=99)
    assert "is not that of the rest" in refused(bundle, MANIFEST)


def test_a_manifest_with_other_white_space_is_refused(bundle: Path) -> None:
    data = (bundle / MANIFEST).read_bytes()
    (bundle / MANIFEST).write_bytes(data + b"\n")
    assert "its bytes are not those" in refused(bundle, MANIFEST)


def test_a_manifest_of_another_schema_is_refused_with_both_numbers(bundle: Path) -> None:
    edit(bundle, schema=2)
    assert "schema 2 was found and schema 1 is what is read here" in refused(bundle, MANIFEST)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "policy/../x", "", "a//b", "."])
def test_a_path_that_leaves_the_bundle_is_refused(bundle: Path, name: str) -> None:
    manifest = decode_manifest((bundle / MANIFEST).read_bytes(), bundle)
    escaped = msgspec.structs.replace(manifest.files[0], name=name)
    files = tuple(sorted((*manifest.files, escaped), key=lambda file: file.name))
    sealed = msgspec.structs.replace(manifest, files=files).sealed()
    (bundle / MANIFEST).write_bytes(encode_manifest(sealed))
    assert "no path of a file inside the bundle" in refused(bundle, MANIFEST)


def test_a_file_that_is_listed_twice_is_refused(bundle: Path) -> None:
    manifest = decode_manifest((bundle / MANIFEST).read_bytes(), bundle)
    files = (manifest.files[0], *manifest.files)
    sealed = msgspec.structs.replace(manifest, files=files).sealed()
    (bundle / MANIFEST).write_bytes(encode_manifest(sealed))
    assert "sorted and distinct" in refused(bundle, MANIFEST)


def named(bundle: Path, file: str, what: str) -> str:
    return re.escape(f"{bundle}: {file}: {what}")


def test_a_change_after_verification_is_refused_at_the_read(bundle: Path) -> None:
    verified = verify(bundle)
    (bundle / LOADER).write_bytes(b"another loader")
    with pytest.raises(BundleCorruptError, match=named(bundle, LOADER, "")):
        verified.read(LOADER)


def test_a_removal_after_verification_is_refused_at_the_read(bundle: Path) -> None:
    verified = verify(bundle)
    (bundle / LOADER).unlink()
    says = named(bundle, LOADER, "cannot be read any more: [Errno 2]")
    with pytest.raises(BundleCorruptError, match=says):
        verified.read(LOADER)


def test_a_link_after_verification_is_refused_at_the_read(bundle: Path) -> None:
    verified = verify(bundle)
    (bundle / LOADER).rename(bundle / "kept")
    (bundle / LOADER).symlink_to("kept")
    with pytest.raises(BundleCorruptError, match="cannot be read any more"):
        verified.read(LOADER)


def test_a_file_outside_the_manifest_cannot_be_read(bundle: Path) -> None:
    (bundle.parent / "outside").write_bytes(b"x")
    says = named(bundle, "../outside", "is no file of this bundle's manifest")
    with pytest.raises(BundleCorruptError, match=says):
        verify(bundle).read("../outside")


def test_a_directory_is_given_as_a_path(bundle: Path) -> None:
    assert verify(bundle).directory(DATA_PLANE) == bundle / DATA_PLANE


@pytest.mark.parametrize("name", [LOADER, "..", "nothing"])
def test_only_verified_directories_are_given(bundle: Path, name: str) -> None:
    says = named(bundle, name, "is no directory of this bundle")
    with pytest.raises(BundleCorruptError, match=says):
        verify(bundle).directory(name)


def test_a_verified_bundle_cannot_be_made_by_hand(bundle: Path) -> None:
    manifest = verify(bundle).manifest
    with pytest.raises(MisuseError, match="call verify"):
        VerifiedBundle(object(), bundle, manifest, REAL)


def test_a_verified_bundle_survives_the_way_to_another_process(bundle: Path) -> None:
    sent = pickle.loads(pickle.dumps(verify(bundle)))
    assert sent.read(LOADER) == (bundle / LOADER).read_bytes()


def test_the_error_survives_the_way_to_another_process(bundle: Path) -> None:
    error = pickle.loads(pickle.dumps(BundleCorruptError("text", bundle)))
    assert (str(error), error.bundle) == ("text", bundle)


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("file", FILES)
def test_a_crafted_pickle_is_refused_and_never_executed(
    bundle: Path, tmp_path: Path, file: str
) -> None:
    trace = tmp_path / "trace"
    (bundle / file).write_bytes(pickle.dumps(Trap(trace)))
    refused(bundle, file)
    assert not trace.exists()


@pytest.mark.parametrize("file", [name for name in READ_BY_US if name != MANIFEST])
def test_a_crafted_pickle_is_not_executed_though_the_manifest_fits(
    bundle: Path, tmp_path: Path, file: str
) -> None:
    trace = tmp_path / "trace"
    (bundle / file).write_bytes(pickle.dumps(Trap(trace)))
    reseal(bundle)
    with pytest.raises(BundleCorruptError, match=file):
        decode_cut(verify(bundle))
    assert not trace.exists()


def test_the_crafted_pickle_would_leave_a_trace(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Trap(tmp_path / "trace")))
    assert (tmp_path / "trace").exists()
