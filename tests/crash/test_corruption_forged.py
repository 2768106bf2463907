"""Bundles that somebody has altered and sealed again, and files that cannot be read.

The manifest fits its files here, so that the second lines are met: what binds a file to its
cut beside the manifest, and strict decoding. Digests are no signatures: who recomputes all of
them has made a bundle (see docs/trust.md).
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import cutlock.run.restore
from cutlock.bundle.files import CHUNK, RealFileSystem
from cutlock.bundle.layout import (
    DATA_PLANE,
    LEDGER,
    LOADER,
    MANIFEST,
    POLICY,
    SIDECARS,
    STAMP,
    TRAINING_INFO,
)
from cutlock.bundle.manifest import LONGEST, Manifest, encode_manifest
from cutlock.bundle.verification import VerifiedBundle, verify
from cutlock.controller.assembly import build_prompts
from cutlock.errors import BundleCorruptError
from cutlock.plane.base import read_stamp, write_stamp
from cutlock.run.restore import verify_for_resume
from tests.support.bundles import reseal
from tests.support.corruption import SOURCES, WAY_OUT, Saved, look_at, take_over
from tests.support.tally import tally

SEALED = (
    f"{DATA_PLANE}/controller_state.msgpack",
    STAMP,
    f"{DATA_PLANE}/unit_0.safetensors",
    f"{DATA_PLANE}/unit_1.safetensors",
    f"{POLICY}/optimizer.pt",
    f"{POLICY}/trainer.json",
    f"{POLICY}/weights.safetensors",
    *sorted(SIDECARS),
    TRAINING_INFO,
)
"""Every file but the manifest."""
PARTS = [name for name in SEALED if "/" in name and name != STAMP]


@pytest.fixture
def bundle(saved: Saved, ram_path: Path) -> Path:
    return saved.copy(ram_path / "run")


def refused(bundle: Path, *names: str) -> str:
    before = look_at(bundle.parent)
    with pytest.raises(BundleCorruptError) as caught:
        verify_for_resume(bundle, build_prompts)
    assert look_at(bundle.parent) == before
    says = str(caught.value)
    assert any(says.startswith(f"{bundle}: {name}: ") for name in names), says
    assert f"the last bundle that verifies is {WAY_OUT}" in says
    tally("corruptions tried", 1)
    return says


# Files of two saves under one manifest.


@pytest.mark.parametrize("file", SEALED)
@pytest.mark.parametrize("source", SOURCES)
def test_a_file_of_another_save_is_refused_by_name_though_the_manifest_fits(
    saved: Saved, bundle: Path, source: str, file: str
) -> None:
    shutil.copyfile(SOURCES[source](saved) / file, bundle / file)
    reseal(bundle)
    refused(bundle, file)


@pytest.mark.parametrize("source", SOURCES)
def test_rows_of_another_save_are_refused_by_name_though_stamp_and_manifest_fit(
    saved: Saved, bundle: Path, source: str
) -> None:
    stamp = read_stamp(bundle / DATA_PLANE)
    shutil.rmtree(bundle / DATA_PLANE)
    shutil.copytree(SOURCES[source](saved) / DATA_PLANE, bundle / DATA_PLANE)
    write_stamp(bundle / DATA_PLANE, stamp)
    reseal(bundle)
    assert f"in {TRAINING_INFO}" in refused(bundle, *PARTS)


@pytest.mark.parametrize("directory", [POLICY, DATA_PLANE])
@pytest.mark.parametrize("source", SOURCES)
def test_a_directory_of_another_save_is_refused_though_the_manifest_fits(
    saved: Saved, bundle: Path, source: str, directory: str
) -> None:
    shutil.rmtree(bundle / directory)
    shutil.copytree(SOURCES[source](saved) / directory, bundle / directory)
    reseal(bundle)
    refused(bundle, *(name for name in SEALED if name.startswith(f"{directory}/")))


@pytest.mark.parametrize("source", SOURCES)
def test_a_whole_bundle_of_another_save_is_refused_under_a_manifest_of_this_one(
    saved: Saved, bundle: Path, source: str
) -> None:
    take_over(bundle, SOURCES[source](saved))
    reseal(bundle)
    refused(bundle, TRAINING_INFO)


@pytest.mark.parametrize("file", PARTS)
def test_a_part_that_is_missing_or_new_is_refused_by_name_though_the_manifest_fits(
    bundle: Path, file: str
) -> None:
    data = (bundle / file).read_bytes()
    (bundle / file).unlink()
    reseal(bundle)
    assert f"{TRAINING_INFO}, None in {MANIFEST}" in refused(bundle, file)
    (bundle / file).write_bytes(data)
    (bundle / f"{file}.more").write_bytes(data)
    reseal(bundle)
    assert f"None in {TRAINING_INFO}" in refused(bundle, f"{file}.more")


# Manifests that nobody's save has written.

Edit = Callable[[dict[str, Any]], object]


def _first(**changes: Any) -> Edit:
    return lambda manifest: manifest["files"][0].update(changes)


def _again(manifest: dict[str, Any], **changes: Any) -> None:
    manifest["files"].append({**manifest["files"][-1], **changes})


EDITS: dict[str, Edit] = {
    "a file twice": _again,
    "a file twice, with another digest": lambda m: _again(m, sha256="0" * 64),
    "files out of order": lambda m: m["files"].reverse(),
    "a file less": lambda m: m["files"].pop(),
    "no files": lambda m: m["files"].clear(),
    "an absolute name": _first(name="/etc/passwd"),
    "a name outside": _first(name="../../run.json"),
    "a name that goes out and in": _first(name="data_plane/../run.json"),
    "a name of nothing": _first(name=""),
    "a name of itself": _first(name="."),
    "a name with an empty part": _first(name="data_plane//controller_state.msgpack"),
    "a name with a zero byte": _first(name="controller\0state"),
    "a name of 10,000 characters": _first(name="0" * 10_000),
    "a name of 10,000 parts": _first(name="0/" * 10_000 + "0"),
    "a name that is a number": _first(name=7),
    "the manifest itself": lambda m: _again(m, name=MANIFEST),
    "a negative size": _first(size=-1),
    "a size of an exabyte": _first(size=2**60),
    "a size of 64 bits": _first(size=2**64),
    "a size of 30 digits": _first(size=10**30),
    "a size that is a fraction": _first(size=1.5),
    "a size that is no number": _first(size=float("nan")),
    "an infinite size": _first(size=float("inf")),
    "a size that is text": _first(size="12"),
    "a size that is true": _first(size=True),
    "no size": lambda m: m["files"][0].pop("size"),
    "a digest in capitals": lambda m: _first(sha256=m["files"][0]["sha256"].upper())(m),
    "a short digest": _first(sha256="0"),
    "no digest": _first(sha256=None),
    "one more field of a file": _first(mode=0o777),
    "one more field": lambda m: m.update(extra=1),
    "another schema": lambda m: m.update(schema=2),
    "a schema that is text": lambda m: m.update(schema="1"),
    "a negative step": lambda m: m.update(step=-2),
    "another step": lambda m: m.update(step=3),
    "a step of 30 digits": lambda m: m.update(step=10**30),
    "a negative sequence": lambda m: m.update(sequence=-1),
    "a run that is a number": lambda m: m.update(run_id=1),
    "files that are an object": lambda m: m.update(files={}),
    "files that are nothing": lambda m: m.update(files=None),
    "another cut": lambda m: m.update(cut_id="0" * 64),
}


OUTSIDE = {
    "an absolute name",
    "a name outside",
    "a name that goes out and in",
    "a name of nothing",
    "a name of itself",
    "a name with an empty part",
    "the manifest itself",
}
"""Edits that give a file a name that no file inside a bundle has."""


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_manifest_is_refused_whether_its_digest_was_recomputed_or_not(
    bundle: Path, edit: str
) -> None:
    raw = json.loads((bundle / MANIFEST).read_bytes())
    EDITS[edit](raw)
    (bundle / MANIFEST).write_text(json.dumps(raw))
    refused(bundle, MANIFEST)
    _seal_raw(bundle, raw)
    # With a digest that fits, the files are compared, or what they say.
    names = [MANIFEST] if edit in OUTSIDE else [MANIFEST, POLICY, *_names(raw), *SEALED]
    refused(bundle, *names)


def _seal_raw(bundle: Path, raw: dict[str, Any]) -> None:
    try:
        edited = msgspec.convert({**raw, "manifest_sha256": ""}, Manifest).sealed()
    except msgspec.ValidationError:
        return
    (bundle / MANIFEST).write_bytes(encode_manifest(edited))


def _names(raw: dict[str, Any]) -> list[str]:
    files = raw["files"] if isinstance(raw["files"], list) else []
    return [n if n.isprintable() else ascii(n) for f in files if isinstance(n := f["name"], str)]


DEEP = 100_000


def _field(value: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(b"{", b'{"x": ' + value + b", ", 1)


JSON: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda data: b"null",
    "a list": lambda data: b"[]",
    "nested 100,000 deep": lambda data: b"[" * DEEP + b"]" * DEEP,
    "nested 100,000 deep in a field": _field(b"[" * DEEP + b"]" * DEEP),
    "objects nested 100,000 deep": _field(b'{"x":' * DEEP + b"1" + b"}" * DEEP),
    "nested and never closed": _field(b"[" * DEEP),
    "nested after a wrong type": lambda data: b'{"schema":"1","x":' + b"[" * DEEP,
    "a number of 5,000 digits": _field(b"9" * 5000),
    "not a number": _field(b"NaN"),
    "a number without end": _field(b"1e999"),
    "bytes that are no text": _field(b'"\xff\xfe"'),
    "half a character": _field(b'"\\ud800"'),
    "a zero byte": _field(b'"\0"'),
    "one more field": _field(b"1"),
    "another encoding": lambda data: data.decode().encode("utf-16"),
    "a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "a comment": lambda data: b"// sealed\n" + data,
    "two documents": lambda data: data + data,
}


@pytest.mark.parametrize("damage", JSON)
@pytest.mark.parametrize("file", [MANIFEST, TRAINING_INFO, STAMP])
def test_json_that_no_save_writes_is_refused_by_name(bundle: Path, file: str, damage: str) -> None:
    path = bundle / file
    path.write_bytes(JSON[damage](path.read_bytes()))
    if file != MANIFEST:
        reseal(bundle)
    assert len(refused(bundle, file)) < 1000


@pytest.mark.parametrize("change", [(b"{", b'{"step": 9,'), (b"\n", b"\r\n"), (b": ", b":  ")])
def test_a_manifest_that_says_the_same_in_other_bytes_is_refused(
    bundle: Path, change: tuple[bytes, bytes]
) -> None:
    path = bundle / MANIFEST
    path.write_bytes(path.read_bytes().replace(*change, 1))
    assert "its bytes are not those" in refused(bundle, MANIFEST)


# Sidecars that nobody's save has written.


def _header(name: str, cut_id: str, payload: bytes) -> bytes:
    fields = {"schema": 1, "artifact": name, "cut_id": cut_id}
    packed = b"".join(map(msgspec.msgpack.encode, [x for pair in fields.items() for x in pair]))
    return b"\x84" + packed + msgspec.msgpack.encode("payload") + payload


PAYLOADS: dict[str, bytes] = {
    "nothing": b"\xc0",
    "a number": b"\x01",
    "nested 100,000 deep": b"\x91" * DEEP + b"\x90",
    "objects nested 100,000 deep": b"\x81\xa1x" * DEEP + b"\xc0",
    "a list of four billion": b"\xdd\xff\xff\xff\xff",
    "an object of four billion": b"\xdf\xff\xff\xff\xff",
    "text of four gigabytes": b"\xdb\xff\xff\xff\xff",
    "bytes of four gigabytes": b"\xc6\xff\xff\xff\xff",
    "a list of four billion in a list": b"\x92\xdd\xff\xff\xff\xff",
    "an extension": b"\xc7\x05\x01hello",
    "a time": b"\xd6\xff\0\0\0\0",
    "no text": b"\x91\xa2\xff\xfe",
    "a key that is a list": b"\x81\x90\x01",
    "not a number": b"\x91\xcb\x7f\xf8" + b"\0" * 6,
    "a byte that means nothing": b"\xc1",
    "a strange object": b"\x81\xa1x\x01",
    "a list of itself": b"\x91\x91\xc0",
}


@pytest.mark.parametrize("damage", PAYLOADS)
@pytest.mark.parametrize("file", sorted(SIDECARS))
def test_msgpack_that_no_save_writes_is_refused_by_name(
    bundle: Path, file: str, damage: str
) -> None:
    cut_id = verify(bundle).manifest.cut_id
    (bundle / file).write_bytes(_header(file, cut_id, PAYLOADS[damage]))
    reseal(bundle)
    assert len(refused(bundle, file)) < 1000


def test_the_header_that_is_forged_is_the_one_that_is_written(bundle: Path) -> None:
    data = (bundle / LEDGER).read_bytes()
    payload = msgspec.msgpack.encode(msgspec.msgpack.decode(data)["payload"])
    assert _header(LEDGER, verify(bundle).manifest.cut_id, payload) == data


@pytest.mark.parametrize(
    "inner",
    [{"extra": 1}, {"_num_yielded": -1}, {"_sampler_iter_yielded": 10**15}, {"a": {"b": [1] * 99}}],
)
def test_a_loader_state_of_other_values_is_of_another_cut(
    bundle: Path, inner: dict[str, Any]
) -> None:
    raw = msgspec.msgpack.decode((bundle / LOADER).read_bytes())
    raw["payload"]["inner"] |= inner
    (bundle / LOADER).write_bytes(msgspec.msgpack.encode(raw))
    reseal(bundle)
    assert "cut_id" in refused(bundle, TRAINING_INFO)


# What is too long, cannot be read, or changes while it is read.


def _counting(patch: pytest.MonkeyPatch) -> list[int]:
    """Count what is read: the lengths of all pieces."""
    pieces: list[int] = []
    original = RealFileSystem.read_chunks

    def read_chunks(self: RealFileSystem, path: Path) -> Iterator[bytes]:
        for chunk in original(self, path):
            pieces.append(len(chunk))
            assert sum(pieces) < 2 * LONGEST, "no end is in sight"
            yield chunk

    patch.setattr(RealFileSystem, "read_chunks", read_chunks)
    return pieces


@pytest.mark.parametrize("file", [MANIFEST, *SEALED])
def test_a_file_of_a_terabyte_is_refused_without_being_read(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    for other in bundle.parent.glob("step_[01]"):
        shutil.rmtree(other)
    os.truncate(bundle / file, 2**40)
    pieces = _counting(monkeypatch)
    with pytest.raises(BundleCorruptError, match=f": {file}: .* bytes expected, more found"):
        verify(bundle)
    assert sum(pieces) <= (LONGEST if file == MANIFEST else 0) + 2 * CHUNK
    tally("corruptions tried", 1)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOENT])
@pytest.mark.parametrize("file", [MANIFEST, *SEALED])
def test_a_file_that_cannot_be_read_is_refused_by_name(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, file: str, code: int
) -> None:
    original = RealFileSystem.read_chunks

    def read_chunks(self: RealFileSystem, path: Path) -> Iterator[bytes]:
        if path == bundle / file:
            raise OSError(code, os.strerror(code), str(path))
        return original(self, path)

    monkeypatch.setattr(RealFileSystem, "read_chunks", read_chunks)
    assert os.strerror(code) in refused(bundle, file)


@pytest.mark.parametrize(
    ("call", "directory"),
    [("kind", ""), *(("list_directory", name) for name in ("", POLICY, DATA_PLANE))],
)
def test_a_directory_that_cannot_be_looked_at_is_refused(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, directory: str, call: str
) -> None:
    original, closed = getattr(RealFileSystem, call), bundle / directory

    def look(self: RealFileSystem, path: Path) -> Any:
        if path in {closed, closed / MANIFEST}:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return original(self, path)

    monkeypatch.setattr(RealFileSystem, call, look)
    assert str(closed) in refused(bundle, ".", MANIFEST)


def _changed_after_verification(
    monkeypatch: pytest.MonkeyPatch, bundle: Path, change: Callable[[], object]
) -> None:
    def verified(path: Path) -> VerifiedBundle:
        found = verify(path)
        if path == bundle:
            change()
        return found

    monkeypatch.setattr(cutlock.run.restore, "verify", verified)


LATE: dict[str, Callable[[Path], object]] = {
    "other bytes": lambda path: path.write_bytes(path.read_bytes()[::-1]),
    "more bytes": lambda path: path.write_bytes(path.read_bytes() * 2),
    "no bytes": lambda path: path.write_bytes(b""),
    "missing": Path.unlink,
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link": lambda path: path.symlink_to(path.rename(path.with_name("kept"))),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("change", LATE)
@pytest.mark.parametrize("file", [*sorted(SIDECARS), TRAINING_INFO, STAMP])
def test_what_changes_between_verification_and_reading_is_refused_by_name(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, file: str, change: str
) -> None:
    _changed_after_verification(monkeypatch, bundle, lambda: LATE[change](bundle / file))
    # By its digest: it is not left to the decoder to notice.
    noticed = rf": {file}: (.* bytes expected|sha256 .* expected|cannot be read any more)"
    with pytest.raises(BundleCorruptError, match=noticed):
        verify_for_resume(bundle, build_prompts)
    tally("corruptions tried", 1)
