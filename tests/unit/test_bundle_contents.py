from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cutlock.bundle.consistency import require_consistent
from cutlock.bundle.contents import (
    decode_cut,
    encode_sidecars,
    encode_training_info,
    plane_stamp,
    read_training_info,
)
from cutlock.bundle.layout import (
    DATA_PLANE,
    INDEX,
    LEDGER,
    LOADER,
    MANIFEST,
    POLICY,
    RESERVE,
    SIDECARS,
    STAMP,
    TRAINING_INFO,
)
from cutlock.bundle.manifest import decode_manifest, encode_manifest
from cutlock.bundle.verification import verify
from cutlock.errors import BundleCorruptError, InvariantError, SaveError
from cutlock.records import LoaderState, Phase, Snapshot
from tests.support.bundles import (
    PLANE,
    admitted,
    finished,
    prompt,
    reseal,
    reserved,
    sample_cut,
    sample_info,
    save,
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return save(tmp_path / "run")


def refused(bundle: Path, file: str) -> str:
    reseal(bundle)
    with pytest.raises(BundleCorruptError) as caught:
        decode_cut(verify(bundle))
    assert caught.value.bundle == bundle
    assert f"{bundle}: {file}: " in str(caught.value)
    return str(caught.value)


def alter(bundle: Path, file: str, change: Callable[[Any], object]) -> None:
    """Decode a file to plain data, change it in place, write it back."""
    packed = file in SIDECARS
    data = (bundle / file).read_bytes()
    content = msgspec.msgpack.decode(data) if packed else msgspec.json.decode(data)
    change(content)
    encoded = msgspec.msgpack.encode(content) if packed else msgspec.json.encode(content)
    (bundle / file).write_bytes(encoded)


def test_a_cut_comes_back_equal(bundle: Path) -> None:
    assert decode_cut(verify(bundle)) == sample_cut()


def test_an_empty_cut_comes_back_equal(tmp_path: Path) -> None:
    cut = Snapshot(0, 0, -1, 0, LoaderState(0, 0, False, None), (), (), (), (), 0)
    assert decode_cut(verify(save(tmp_path, 0, cut=cut))) == cut


def test_training_info_comes_back_equal(bundle: Path) -> None:
    info = read_training_info(verify(bundle))
    assert info == sample_info(sample_cut(), parts=info.parts)


def test_training_info_is_sorted_and_indented_for_a_person() -> None:
    written = encode_training_info(sample_info(sample_cut()))
    assert written.decode() == json.dumps(json.loads(written), indent=2, sort_keys=True) + "\n"


def test_a_bundle_without_rows_comes_back_equal(tmp_path: Path) -> None:
    bundle = save(tmp_path, rows=False, plane=None)
    assert not (bundle / DATA_PLANE).exists()
    assert decode_cut(verify(bundle)) == sample_cut()


def test_equal_cuts_are_encoded_equally() -> None:
    forward = LoaderState(0, 1, False, {"a": 1, "b": {"c": 2, "d": 3}})
    backward = LoaderState(0, 1, False, {"b": {"d": 3, "c": 2}, "a": 1})
    first = encode_sidecars(sample_cut(loader=forward))
    assert first == encode_sidecars(sample_cut(loader=backward))


def test_a_cut_that_differs_has_a_cut_id_of_its_own() -> None:
    cut = sample_cut()
    other = msgspec.structs.replace(cut, dropped=cut.dropped + 1)
    assert cut.cut_id != other.cut_id
    assert msgspec.structs.replace(other, dropped=cut.dropped).cut_id == cut.cut_id


def test_sidecars_have_a_header_with_schema_artifact_and_cut_id() -> None:
    cut = sample_cut()
    for name, data in encode_sidecars(cut).items():
        content = msgspec.msgpack.decode(data)
        assert list(content) == ["schema", "artifact", "cut_id", "payload"]
        assert (content["artifact"], content["cut_id"]) == (name, cut.cut_id)


def test_the_stamp_has_the_digest_of_the_exact_bytes_of_the_ledger() -> None:
    cut = sample_cut()
    sidecars = encode_sidecars(cut)
    stamp = plane_stamp(cut, sidecars, PLANE)
    assert stamp.ledger_sha256 == hashlib.sha256(sidecars[LEDGER]).hexdigest()
    assert (stamp.index_groups, stamp.ledger_groups) == (2, 3)


@pytest.mark.parametrize(
    "inner",
    [
        {"a": object()},
        {"a": 1 << 100},
        {"a": (1, 2)},
        {"a": {1, 2}},
        {"a": float("nan")},
        {"a": "\ud800"},
    ],
)
def test_a_loader_state_that_is_not_plain_data_fails_the_save(inner: dict[str, Any]) -> None:
    with pytest.raises(SaveError, match="the loader's state"):
        encode_sidecars(sample_cut(loader=LoaderState(0, 1, False, inner)))


@pytest.mark.parametrize("file", [*SIDECARS, TRAINING_INFO])
def test_an_unknown_schema_is_refused_by_name(bundle: Path, file: str) -> None:
    alter(bundle, file, lambda content: content.update(schema=2, later="?"))
    assert "schema 2 was found and schema 1 is what is read here" in refused(bundle, file)


@pytest.mark.parametrize("file", [*SIDECARS, TRAINING_INFO])
def test_an_unknown_field_is_refused_by_name(bundle: Path, file: str) -> None:
    alter(bundle, file, lambda content: content.update(later="surprise"))
    assert "unknown field `later` at the top, found 'surprise'" in refused(bundle, file)


@pytest.mark.parametrize("file", [*SIDECARS, TRAINING_INFO])
def test_a_missing_field_is_refused_by_name(bundle: Path, file: str) -> None:
    alter(bundle, file, lambda content: content.pop("cut_id"))
    assert "missing required field `cut_id`" in refused(bundle, file)


@pytest.mark.parametrize("file", [*SIDECARS, STAMP, TRAINING_INFO])
def test_a_file_that_cannot_be_decoded_is_refused_by_name(bundle: Path, file: str) -> None:
    (bundle / file).write_bytes(b"\xc1 neither msgpack nor JSON")
    refused(bundle, file)


def test_an_unknown_phase_is_refused_with_its_value(bundle: Path) -> None:
    alter(bundle, LEDGER, lambda content: content["payload"]["groups"][1].update(phase="FLYING"))
    assert "payload.groups[1].phase, found 'FLYING'" in refused(bundle, LEDGER)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            LOADER,
            lambda content: content["payload"].update(epoch="0"),
            "Expected `int`, got `str` at payload.epoch, found '0'",
        ),
        (
            RESERVE,
            lambda content: content["payload"][1].update(prompt_id=6),
            "Expected `str`, got `int` at payload[1].prompt_id, found 6",
        ),
        (
            INDEX,
            lambda content: content["payload"][0].update(row_keys=None),
            "Expected `array`, got `None` at payload[0].row_keys, found None",
        ),
        (
            TRAINING_INFO,
            lambda content: content.update(log_records=-1),
            "`int` >= 0 at log_records, found -1",
        ),
    ],
)
def test_a_wrong_type_is_refused_with_field_and_value(
    bundle: Path, file: str, change: Callable[[Any], object], message: str
) -> None:
    alter(bundle, file, change)
    assert message in refused(bundle, file)


@pytest.mark.parametrize(("length", "shown"), [(78, repr("x" * 78)), (79, "'" + "x" * 76 + "...")])
def test_a_wrong_value_is_shown_up_to_eighty_characters(
    bundle: Path, length: int, shown: str
) -> None:
    alter(bundle, LOADER, lambda content: content["payload"].update(epoch="x" * length))
    assert f"found {shown};" in refused(bundle, LOADER)


@pytest.mark.parametrize("file", SIDECARS)
def test_a_sidecar_of_another_save_is_refused_though_the_manifest_fits(
    bundle: Path, file: str
) -> None:
    other = save(bundle.parent, 8)
    (bundle / file).write_bytes((other / file).read_bytes())
    assert "cut_id" in refused(bundle, file)


@pytest.mark.parametrize("file", SIDECARS)
def test_a_sidecar_in_place_of_another_is_refused_by_name(bundle: Path, file: str) -> None:
    stranger = SIDECARS[SIDECARS.index(file) - 1]
    alter(bundle, file, lambda content: content.update(artifact=stranger))
    assert f"artifact '{file}' expected, '{stranger}' found" in refused(bundle, file)


def test_training_info_of_another_save_is_refused_though_the_manifest_fits(bundle: Path) -> None:
    other = save(bundle.parent, 8)
    (bundle / TRAINING_INFO).write_bytes((other / TRAINING_INFO).read_bytes())
    assert "cut_id" in refused(bundle, TRAINING_INFO)


def test_the_plane_of_another_save_is_refused_though_the_manifest_fits(bundle: Path) -> None:
    other = save(bundle.parent, 8)
    (bundle / STAMP).write_bytes((other / STAMP).read_bytes())
    assert "cut_id" in refused(bundle, STAMP)


def test_a_bundle_relabelled_as_another_step_is_refused(bundle: Path) -> None:
    relabelled = bundle.rename(bundle.parent / "probe")
    manifest = decode_manifest((relabelled / MANIFEST).read_bytes(), relabelled)
    edited = msgspec.structs.replace(manifest, step=8).sealed()
    (relabelled / MANIFEST).write_bytes(encode_manifest(edited))
    assert "step 8 expected, 7 found" in refused(
        relabelled.rename(bundle.parent / "step_8"), TRAINING_INFO
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run_id", "another"),
        ("step", 6),
        ("version", 6),
        ("epoch", 1),
        ("cursor", 9),
        ("config_digest", "0" * 64),
        ("rows", False),
        ("plane", None),
    ],
)
def test_a_field_of_training_info_that_does_not_fit_is_refused(
    bundle: Path, field: str, value: object
) -> None:
    alter(bundle, TRAINING_INFO, lambda content: content.update({field: value}))
    refused(bundle, TRAINING_INFO)


def test_rows_without_the_store_that_wrote_them_are_refused(bundle: Path) -> None:
    alter(bundle, TRAINING_INFO, lambda content: content.update(plane=None))
    assert "rows is true, and plane is null" in refused(bundle, TRAINING_INFO)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cut_id", "0" * 64),
        ("step", 6),
        ("version", 6),
        ("index_digest", "0" * 64),
        ("index_groups", 3),
        ("ledger_sha256", "0" * 64),
        ("ledger_groups", 4),
        ("plane", {"kind": "memory", "version": "1", "units": 3}),
    ],
)
def test_a_field_of_the_stamp_that_does_not_fit_is_refused(
    bundle: Path, field: str, value: object
) -> None:
    alter(bundle, STAMP, lambda content: content["user_metadata"].update({field: value}))
    assert f"{field} " in refused(bundle, STAMP)


def test_a_stamp_that_says_no_rows_were_saved_is_refused(bundle: Path) -> None:
    alter(bundle, STAMP, lambda content: content.update(storage_saved=False))
    assert "storage_saved True expected, False found" in refused(bundle, STAMP)


@pytest.mark.parametrize(
    ("file", "change"),
    [
        (LOADER, lambda payload: payload.update(position=8)),
        (RESERVE, lambda payload: payload.pop()),
        (INDEX, lambda payload: payload.reverse()),
        (LEDGER, lambda payload: payload.update(dropped=2)),
        (LEDGER, lambda payload: payload.update(shortfall=[])),
    ],
)
def test_a_payload_edited_under_its_old_header_is_refused(
    bundle: Path, file: str, change: Callable[[Any], object]
) -> None:
    alter(bundle, file, lambda content: change(content["payload"]))
    assert "cut_id" in refused(bundle, TRAINING_INFO)


WEIGHTS = f"{POLICY}/weights.safetensors"


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        (WEIGHTS, lambda parts: parts.pop(WEIGHTS), "sha256 None in training_info.json, "),
        (WEIGHTS, lambda parts: parts.update({WEIGHTS: "0" * 64}), "0 in training_info.json, "),
        ("policy/x", lambda parts: parts.update({"policy/x": "1"}), ", None in manifest.json"),
    ],
)
def test_a_file_of_trainer_or_plane_that_is_of_another_cut_is_refused_by_name(
    bundle: Path, file: str, change: Callable[[Any], object], says: str
) -> None:
    alter(bundle, TRAINING_INFO, lambda content: change(content["parts"]))
    assert says in refused(bundle, file)


FORBIDDEN = [
    ({"index": (finished(0), finished(0, row_keys=("x",)))}, INDEX, "'p0@0' has two owners"),
    ({"ledger": (admitted(2), admitted(2))}, LEDGER, "'p2@0' has two owners"),
    ({"spare_pool": (prompt(5), prompt(5))}, RESERVE, "'p5@0' has two owners"),
    ({"ledger": (admitted(1),)}, LEDGER, f"'p1@0' has two owners, {INDEX} and {LEDGER}"),
    ({"spare_pool": (prompt(0),)}, RESERVE, "'p0@0' has two owners"),
    ({"spare_pool": (prompt(4),)}, RESERVE, "'p4@0' has two owners"),
    ({"index": (finished(0, occurrence=prompt(9)),)}, INDEX, "is of the occurrence 'p9@0'"),
    ({"ledger": (admitted(2, occurrence=prompt(2, 1)),)}, LEDGER, "is of the occurrence 'p2@1'"),
    (
        {"index": (finished(0), finished(1, row_keys=("p0@0/1",)))},
        INDEX,
        "row 'p0@0/1' is of 'p0@0' and of 'p1@0'",
    ),
    ({"index": (finished(0, row_keys=("x", "x")),)}, INDEX, "row 'x'"),
    ({"index": (finished(0, row_keys=()),)}, INDEX, "'p0@0' has no row"),
    ({"cursor": 6}, INDEX, "dispatch_index 7 of group 'p0@0' is past the cursor 6"),
    ({"cursor": 7}, LEDGER, "dispatch_index 8 of group 'p2@0' is past the cursor 7"),
    ({"index": (finished(0, stamp=9),)}, INDEX, "stamp 9 of group 'p0@0' is past the cursor 8"),
    ({"ledger": (admitted(2, stamp=9),)}, LEDGER, "stamp 9 of group 'p2@0'"),
    ({"ledger": (reserved(4, stamp=8),)}, LEDGER, "'p4@0' is RESERVED with stamp 8"),
    ({"ledger": (reserved(4, dispatch_index=8),)}, LEDGER, "RESERVED with dispatch_index 8"),
    ({"ledger": (reserved(4, start_weight=7),)}, LEDGER, "RESERVED with start_weight 7"),
    ({"ledger": (admitted(2, dispatch_index=None),)}, LEDGER, "ADMITTED without dispatch_index"),
    ({"ledger": (admitted(2, start_weight=None),)}, LEDGER, "ADMITTED without start_weight"),
    ({"next_admission": 2}, LEDGER, "admission_id 2 of group 'p4@0' would be given again"),
    ({"next_admission": 0}, INDEX, "admission_id 0 of group 'p0@0' would be given again"),
    ({"index": (finished(0, end_weight=8),)}, INDEX, "end_weight 8 of group 'p0@0'"),
    ({"index": (finished(0, start_weight=8),)}, INDEX, "are out of order"),
    ({"shortfall": ((8, 1), (8, 2))}, LEDGER, "names a step twice"),
    ({"shortfall": ((8, 0),)}, LEDGER, "shortfall of step 8 is 0, below 1"),
    ({"dropped": -1}, LEDGER, "dropped is -1, below 0"),
    ({"version": -1}, TRAINING_INFO, "version is -1, below 0"),
    ({"cursor": -2}, TRAINING_INFO, "cursor is -2, below -1"),
    ({"next_admission": -1}, LEDGER, "next_admission is -1, below 0"),
    ({"loader": LoaderState(-1, 0, False, None)}, LOADER, "epoch is -1, below 0"),
    ({"loader": LoaderState(0, -1, False, None)}, LOADER, "position is -1, below 0"),
]


@pytest.mark.parametrize(("changes", "file", "what"), FORBIDDEN)
def test_a_cut_that_the_protocol_forbids_is_refused_on_reading(
    tmp_path: Path, changes: dict[str, Any], file: str, what: str
) -> None:
    bundle = save(tmp_path, cut=sample_cut(**changes))
    assert what in refused(bundle, file)


@pytest.mark.parametrize(("changes", "file", "what"), FORBIDDEN)
def test_a_cut_that_the_protocol_forbids_is_refused_before_writing(
    changes: dict[str, Any], file: str, what: str
) -> None:
    with pytest.raises(InvariantError) as caught:
        require_consistent(sample_cut(**changes))
    assert what in str(caught.value)
    assert file in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"index": (), "ledger": (), "cursor": -1, "version": 0},
        {"index": (finished(0, stamp=None),), "ledger": (admitted(2, stamp=None),)},
        {"spare_pool": (prompt(0, epoch=1),)},
        {"index": (finished(0, start_weight=7, end_weight=7),)},
    ],
)
def test_a_cut_that_the_protocol_allows_is_consistent(changes: dict[str, Any]) -> None:
    require_consistent(sample_cut(**changes))


def test_a_cut_of_a_step_below_the_first_is_refused_before_writing() -> None:
    with pytest.raises(InvariantError, match=f"step is -1, below 0 .{TRAINING_INFO}"):
        require_consistent(sample_cut(-1, version=7))


def test_phases_are_the_ones_that_the_checks_know() -> None:
    assert set(Phase) == {Phase.RESERVED, Phase.ADMITTED}
