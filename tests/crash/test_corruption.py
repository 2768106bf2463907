"""Everything that may happen to a file of a bundle: refused by name, before anything else.

Each corruption is done to the newest bundle of a real run, and met as a user's resume meets
it. What a refusal must not do is watched: nothing is unpickled, launched or parsed, and no
file or directory is changed, added or removed.
"""

from __future__ import annotations

import io
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cutlock.bundle.layout import DATA_PLANE, MANIFEST, POLICY, SIDECARS, STAMP, TRAINING_INFO
from cutlock.controller.assembly import build_prompts
from cutlock.errors import BundleCorruptError
from cutlock.events import EventLog
from cutlock.plane.memory import MemoryBootstrap
from cutlock.run.restore import verify_for_resume
from cutlock.workers.torch_trainer import read_state
from tests.support.corruption import (
    CONTENT,
    EXTRA,
    NEWEST,
    PLACE,
    SOURCES,
    WAY_OUT,
    Executed,
    Saved,
    canaries,
    everywhere,
    flip,
    look_at,
    take_over,
)
from tests.support.tally import tally

FILES = (
    f"{DATA_PLANE}/controller_state.msgpack",
    STAMP,
    f"{DATA_PLANE}/unit_0.safetensors",
    f"{DATA_PLANE}/unit_1.safetensors",
    MANIFEST,
    f"{POLICY}/optimizer.pt",
    f"{POLICY}/trainer.json",
    f"{POLICY}/weights.safetensors",
    *sorted(SIDECARS),
    TRAINING_INFO,
)
SMALL = 512
"""Bytes of a file of which every byte is tried."""
OFFSETS = 48
"""Of a larger file, this many bytes."""
BYTES_TRIED = 1500
"""At least so many in all."""


@pytest.fixture
def bundle(saved: Saved, ram_path: Path) -> Path:
    return saved.copy(ram_path / "run")


@pytest.fixture
def lonely(bundle: Path) -> Path:
    """The same without other bundles: quicker to refuse, for no way out is looked for."""
    for other in bundle.parent.glob("step_*"):
        if other != bundle:
            shutil.rmtree(other)
    return bundle


def refused(bundle: Path, *names: str, count: int = 1) -> str:
    """A resume from the bundle is refused, names the file, and has done nothing."""
    before = look_at(bundle.parent)
    with canaries(bundle), pytest.raises(BundleCorruptError) as caught:
        verify_for_resume(bundle, build_prompts)
    assert look_at(bundle.parent) == before
    says = str(caught.value)
    assert caught.value.bundle == bundle
    assert any(says.startswith(f"{bundle}: {name}: ") for name in names), says
    assert f"the last bundle that verifies is {WAY_OUT}: resume with --bundle {WAY_OUT}" in says
    tally("corruptions tried", count)
    return says


def test_the_table_has_every_file_of_a_bundle(saved: Saved) -> None:
    assert saved.files == sorted(FILES)


def test_a_whole_bundle_passes_and_changes_nothing(bundle: Path) -> None:
    before = look_at(bundle.parent)
    plan = verify_for_resume(bundle, build_prompts)
    assert plan.bundle == bundle
    assert everywhere(plan.snapshot)
    assert look_at(bundle.parent) == before


def test_the_canaries_notice_what_is_parsed_unpickled_or_made(bundle: Path) -> None:
    plan = verify_for_resume(bundle, build_prompts)
    noticed: dict[str, Callable[[], object]] = {
        "training_info.json was parsed": lambda: verify_for_resume(bundle, build_prompts),
        "pickle.loads": lambda: pickle.loads(pickle.dumps(1)),
        "pickle.Unpickler": lambda: pickle.Unpickler(io.BytesIO()),
        "the weights": lambda: read_state(plan.policy_directory),
        "MemoryStore was made": MemoryBootstrap,
        "EventLog was made": lambda: EventLog(bundle / "log"),
    }
    for what, work in noticed.items():
        with canaries(bundle), pytest.raises(Executed, match=what):
            work()


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("change", CONTENT)
def test_other_bytes_in_a_file_are_refused_by_name(bundle: Path, change: str, file: str) -> None:
    path = bundle / file
    data = path.read_bytes()
    path.write_bytes(CONTENT[change](data))
    assert path.read_bytes() != data
    refused(bundle, file)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("change", PLACE)
def test_something_else_in_the_place_of_a_file_is_refused_by_name(
    bundle: Path, change: str, file: str
) -> None:
    PLACE[change](bundle / file)
    refused(bundle, file)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("source", SOURCES)
def test_a_file_of_another_save_is_refused_by_name(
    saved: Saved, bundle: Path, source: str, file: str
) -> None:
    data = (SOURCES[source](saved) / file).read_bytes()
    assert data != (bundle / file).read_bytes()
    (bundle / file).write_bytes(data)
    # A manifest of the same step is as good as this one; then it is the files that differ.
    whole = file == MANIFEST and source == "of another run"
    refused(bundle, *(FILES if whole else [file]))


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_changed_places_with_another_is_refused_by_name(
    bundle: Path, file: str
) -> None:
    for other in FILES:
        if other != file and (bundle / other).read_bytes() != (bundle / file).read_bytes():
            _swap(bundle / file, bundle / other)
            refused(bundle, file, other)
            _swap(bundle / file, bundle / other)


def _swap(first: Path, second: Path) -> None:
    between = first.with_name("between")
    first.rename(between)
    second.rename(first)
    between.rename(second)


@pytest.mark.parametrize("directory", ["", POLICY, DATA_PLANE])
@pytest.mark.parametrize("extra", EXTRA)
def test_something_that_no_manifest_lists_is_refused_by_name(
    bundle: Path, extra: str, directory: str
) -> None:
    name, make = EXTRA[extra]
    make(bundle / directory / name)
    shown = f"{directory}/{name}".lstrip("/")
    inside = f"{shown}/x"
    says = refused(bundle, *(n if n.isprintable() else ascii(n) for n in (shown, inside)))
    assert says.isprintable()


@pytest.mark.parametrize("directory", [POLICY, DATA_PLANE])
@pytest.mark.parametrize("source", SOURCES)
def test_a_directory_of_another_save_is_refused_by_the_name_of_a_file(
    saved: Saved, bundle: Path, source: str, directory: str
) -> None:
    shutil.rmtree(bundle / directory)
    shutil.copytree(SOURCES[source](saved) / directory, bundle / directory)
    refused(bundle, *(name for name in FILES if name.startswith(f"{directory}/")))


@pytest.mark.parametrize("source", SOURCES)
def test_all_sidecars_of_another_save_are_refused_by_the_name_of_one(
    saved: Saved, bundle: Path, source: str
) -> None:
    for name in (*SIDECARS, TRAINING_INFO):
        shutil.copyfile(SOURCES[source](saved) / name, bundle / name)
    refused(bundle, *SIDECARS, TRAINING_INFO)


@pytest.mark.parametrize("source", SOURCES)
def test_a_whole_bundle_of_another_save_under_an_old_manifest_is_refused(
    saved: Saved, bundle: Path, source: str
) -> None:
    take_over(bundle, SOURCES[source](saved))
    refused(bundle, *FILES)


@pytest.mark.parametrize("source", ["of the save before", "of the first save"])
def test_a_whole_bundle_under_the_name_of_another_step_is_refused(
    saved: Saved, bundle: Path, source: str
) -> None:
    shutil.rmtree(bundle)
    shutil.copytree(SOURCES[source](saved), bundle)
    assert "step 2 expected by the name" in refused(bundle, MANIFEST)


@pytest.mark.parametrize("directory", ["", POLICY, DATA_PLANE])
def test_a_link_in_the_place_of_a_directory_is_refused_by_name(
    bundle: Path, directory: str
) -> None:
    path = bundle / directory
    path.symlink_to(path.rename(bundle.with_name("kept")))
    refused(bundle, directory or ".")


@pytest.mark.parametrize("directory", [POLICY, DATA_PLANE])
def test_a_directory_that_is_missing_empty_or_a_file_is_refused_by_the_name_of_a_file(
    bundle: Path, directory: str
) -> None:
    inside = [name for name in FILES if name.startswith(f"{directory}/")]
    shutil.rmtree(bundle / directory)
    refused(bundle, *inside)
    (bundle / directory).mkdir()
    refused(bundle, *inside)
    (bundle / directory).rmdir()
    (bundle / directory).touch()
    refused(bundle, *inside)


# Bits.


def offsets(size: int) -> Iterator[int]:
    """Every byte of a small file; of a larger one the ends, and some in between."""
    if size <= SMALL:
        yield from range(size)
    else:
        step = (size - 1) / (OFFSETS - 1)
        yield from sorted({round(place * step) for place in range(OFFSETS)})


def _flips(lonely: Path, file: str, places: Iterator[tuple[int, int]]) -> int:
    path, tried = lonely / file, 0
    data = path.read_bytes()
    with canaries(lonely):
        for offset, bit in places:
            path.write_bytes(flip(data, offset, bit))
            with pytest.raises(BundleCorruptError) as caught:
                verify_for_resume(lonely, build_prompts)
            assert str(caught.value).startswith(f"{lonely}: {file}: "), (offset, bit)
            tried += 1
    path.write_bytes(data)
    verify_for_resume(lonely, build_prompts)
    tally("corruptions tried", tried)
    return tried


@pytest.mark.slow
def test_a_flipped_bit_is_refused_by_name_wherever_it_is(lonely: Path) -> None:
    tried = 0
    for file in FILES:
        places = list(offsets((lonely / file).stat().st_size))
        assert _flips(lonely, file, ((o, o % 8) for o in places)) == len(places) >= OFFSETS
        tried += len(places)
    assert tried >= BYTES_TRIED


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("file", FILES)
def test_every_flipped_bit_is_refused_by_name(lonely: Path, file: str) -> None:
    size = (lonely / file).stat().st_size
    places = ((offset, bit) for offset in range(size) for bit in range(8))
    assert _flips(lonely, file, places) == size * 8


@pytest.mark.long
@pytest.mark.parametrize("file", FILES)
def test_every_length_but_its_own_is_refused_by_name(lonely: Path, file: str) -> None:
    path = lonely / file
    data = path.read_bytes()
    with canaries(lonely):
        for length in range(len(data)):
            path.write_bytes(data[:length])
            with pytest.raises(BundleCorruptError) as caught:
                verify_for_resume(lonely, build_prompts)
            assert str(caught.value).startswith(f"{lonely}: {file}: "), length
    tally("corruptions tried", len(data))


# What is harmless, because no byte of the bundle and no name in it is another one.


@pytest.mark.parametrize("file", FILES)
def test_what_leaves_every_byte_and_name_as_it_was_is_harmless(bundle: Path, file: str) -> None:
    plan = verify_for_resume(bundle, build_prompts)
    path = bundle / file
    data = path.read_bytes()
    os.utime(path, (0, 0))
    path.chmod(0o777)
    path.with_name("link").hardlink_to(path)
    path.unlink()
    path.with_name("link").rename(path)
    path.write_bytes(data)
    (bundle.parent / "notes.txt").write_text("a file next to the bundles")
    again = verify_for_resume(bundle, build_prompts)
    assert (again.snapshot, again.info) == (plan.snapshot, plan.info)
    tally("corruptions tried", 5)


def test_a_copy_of_the_bundle_in_its_place_is_harmless(bundle: Path) -> None:
    plan = verify_for_resume(bundle, build_prompts)
    shutil.copytree(bundle, bundle.with_name("copy"))
    shutil.rmtree(bundle)
    bundle.with_name("copy").rename(bundle)
    assert verify_for_resume(bundle, build_prompts).snapshot == plan.snapshot
    tally("corruptions tried", 1)


def test_the_bundles_around_it_do_not_matter(bundle: Path) -> None:
    plan = verify_for_resume(bundle, build_prompts)
    for other in bundle.parent.glob("step_*"):
        if other.name != NEWEST:
            (other / MANIFEST).write_bytes(b"")
    assert verify_for_resume(bundle, build_prompts).snapshot == plan.snapshot
    tally("corruptions tried", 2)
