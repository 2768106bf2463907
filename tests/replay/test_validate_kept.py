"""The runs in `traces/`: those that are accepted, and those that are refused, and where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutlock.conformance.validation.logs import read_run, validate
from cutlock.run.directory import RunDirectory
from cutlock.samplers import SAMPLER_NAMES
from cutlock.tlc.run import Toolchain
from tests.support.kept_runs import FORGERIES, KEPT, TRACES, Logs, keep

SPEC = Path(__file__).parents[2] / "spec"


@pytest.mark.tlc
def test_the_kept_runs_are_accepted_and_the_forged_ones_refused_at_the_forgery(
    toolchain: Toolchain,
) -> None:
    accepted = [RunDirectory(TRACES / "runs" / name) for name in KEPT]
    rejected = [RunDirectory(TRACES / "rejected" / name) for name in FORGERIES]
    runs = [read_run(directory) for directory in (*accepted, *rejected)]
    found = validate(toolchain, SPEC, runs)
    assert [run.refusal for run in found[: len(accepted)]] == [None] * len(accepted)
    assert all(run.starts == 2 for run in found)
    for directory, run in zip(rejected, found[len(accepted) :], strict=True):
        expected = json.loads((directory.root / "expected.json").read_text())
        assert run.refusal is not None, expected
        assert run.refusal.where == expected["where"], expected
        assert run.refusal.broken is None


def test_there_is_one_kept_run_for_every_sampler_and_two_with_narrow_saves() -> None:
    assert {*KEPT} == {*SAMPLER_NAMES, "narrow", "cut_changed"}
    assert {path.name for path in (TRACES / "runs").iterdir()} == {*KEPT}
    assert {path.name for path in (TRACES / "rejected").iterdir()} == {*FORGERIES}


def test_the_forged_runs_are_the_kept_ones_with_their_forgery(tmp_path: Path) -> None:
    for name, forgery in FORGERIES.items():
        original = RunDirectory(TRACES / "runs" / forgery.run)
        directory = keep(original, tmp_path / name, forgery.run)
        logs = Logs(original)
        incarnation, place = forgery.forge(logs)
        logs.write(directory)
        for path in (directory.root / "run.json", *directory.logs().values()):
            there = TRACES / "rejected" / name / path.relative_to(directory.root)
            assert there.read_bytes() == path.read_bytes()
        expected = json.loads((TRACES / "rejected" / name / "expected.json").read_text())
        assert expected["where"].startswith(f"incarnation-{incarnation}.ndjson:{place + 1} ")


def test_kept_logs_name_no_place_of_the_machine_that_made_them() -> None:
    for path in TRACES.rglob("*.ndjson"):
        assert "/tmp" not in path.read_text(), path
        assert "/dev" not in path.read_text(), path
