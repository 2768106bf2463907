"""`cutlock resume` and `cutlock inspect` on a corrupt bundle: exit code, words, and the way out.

The rule of the choice without `--bundle`: what has no valid manifest, or one of another run,
is no bundle of this run and is passed over by name; the newest of the others is the one, and
is refused by name when it is not whole, with the older one to go on from. Nothing older is
taken silently.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

import cutlock.cli.run
from cutlock.bundle.layout import DATA_PLANE, LEDGER, LOADER, MANIFEST, POLICY, TRAINING_INFO
from cutlock.run.restore import ResumePlan
from tests.support.commands import assert_refused, cutlock_
from tests.support.corruption import FIRST, NEWEST, WAY_OUT, Saved, canaries, flip, look_at
from tests.support.tally import tally

FILES = (
    LEDGER,
    LOADER,
    TRAINING_INFO,
    f"{DATA_PLANE}/unit_0.safetensors",
    f"{POLICY}/weights.safetensors",
)
WAY = f"the last bundle that verifies is {WAY_OUT}: resume with --bundle {WAY_OUT}"


@pytest.fixture
def run(saved: Saved, ram_path: Path) -> Path:
    root = saved.copy(ram_path / "run").parent
    # A run that was started by the command line has one.
    (root / "run.lock").touch()
    return root


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The bundles that a command would have gone on from."""
    plans: list[str] = []

    def launch(directory: object, config: object, plan: ResumePlan, *more: object) -> None:
        plans.append(plan.bundle.name)

    monkeypatch.setattr(cutlock.cli.run, "_run", launch)
    return plans


def spoil(path: Path) -> None:
    path.write_bytes(flip(path.read_bytes(), path.stat().st_size // 2, 3))


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    "command", ["resume {run}", f"resume {{run}} --bundle {NEWEST}", f"inspect {{run}}/{NEWEST}"]
)
def test_a_command_refuses_a_corrupt_bundle_in_one_line_with_the_way_out(
    run: Path, launched: list[str], command: str, file: str
) -> None:
    spoil(run / NEWEST / file)
    before = look_at(run)
    with canaries(run / NEWEST):
        result = cutlock_(*command.format(run=run).split(), code=1)
    assert_refused(result, f"{run / NEWEST}: {file}: sha256 ", WAY)
    assert (look_at(run), launched) == (before, [])
    tally("corruptions tried", 1)


@pytest.mark.parametrize(
    "damage",
    [b"", b"{}", b"[" * 100_000, b"\xff" * 99, None],
    ids=["empty", "an empty object", "deep", "no text", "missing"],
)
def test_a_bundle_without_a_valid_manifest_is_passed_over_by_name(
    run: Path, launched: list[str], damage: bytes | None
) -> None:
    manifest = run / NEWEST / MANIFEST
    if damage is None:
        manifest.unlink()
    else:
        manifest.write_bytes(damage)
    before = look_at(run)
    result = cutlock_("resume", run)
    assert result.stderr.startswith(f"warning: passing over {NEWEST} (broken: ")
    assert f"{MANIFEST}: " in result.stderr
    assert launched == [WAY_OUT]
    named = cutlock_("resume", run, "--bundle", NEWEST, code=2)
    assert_refused(named, f"there are: {FIRST}, {WAY_OUT}; {NEWEST} (broken: ", f"{MANIFEST}: ")
    assert_refused(cutlock_("inspect", run / NEWEST, code=1), f"{NEWEST}: {MANIFEST}: ", WAY)
    assert look_at(run) == before
    tally("corruptions tried", 1)


def test_a_bundle_of_another_run_is_passed_over_by_name(
    saved: Saved, run: Path, launched: list[str]
) -> None:
    shutil.rmtree(run / NEWEST)
    shutil.copytree(saved.other / NEWEST, run / NEWEST)
    result = cutlock_("resume", run)
    assert result.stderr.startswith(f"warning: passing over {NEWEST} (foreign: of run ")
    assert launched == [WAY_OUT]
    named = cutlock_("resume", run, "--bundle", NEWEST, code=2)
    assert_refused(named, f"there are: {FIRST}, {WAY_OUT}; {NEWEST} (foreign: of run ")
    tally("corruptions tried", 1)


def test_the_way_out_is_no_bundle_of_another_run(
    saved: Saved, run: Path, launched: list[str]
) -> None:
    shutil.rmtree(run / WAY_OUT)
    shutil.copytree(saved.other / WAY_OUT, run / WAY_OUT)
    spoil(run / NEWEST / LEDGER)
    result = cutlock_("resume", run, code=1)
    way = f"the last bundle that verifies is {FIRST}: resume with --bundle {FIRST}"
    assert f"{NEWEST}: {LEDGER}: " in result.stderr
    assert way in result.stderr
    cutlock_("resume", run, "--bundle", FIRST)
    assert launched == [FIRST]


def test_the_way_out_is_no_bundle_that_is_corrupt_too(run: Path, launched: list[str]) -> None:
    for name in (NEWEST, WAY_OUT):
        spoil(run / name / LEDGER)
    way = f"the last bundle that verifies is {FIRST}: resume with --bundle {FIRST}"
    assert_refused(cutlock_("resume", run, code=1), f"{NEWEST}: {LEDGER}: ", way)
    spoil(run / FIRST / LEDGER)
    nothing = f"no other bundle in {run} verifies"
    assert_refused(cutlock_("resume", run, code=1), f"{NEWEST}: {LEDGER}: ", nothing)
    assert launched == []
    tally("corruptions tried", 2)


def test_a_file_that_is_refused_once_is_refused_again_and_mending_it_ends_that(
    run: Path, launched: list[str]
) -> None:
    path = run / NEWEST / LEDGER
    data = path.read_bytes()
    spoil(path)
    first, second = (cutlock_("resume", run, code=1).stderr for _ in range(2))
    assert first == second
    path.write_bytes(data)
    cutlock_("resume", run)
    assert launched == [NEWEST]


def test_inspect_parses_the_bundle_and_nothing_else_happens(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the loop of a run")

    monkeypatch.setattr(asyncio, "run", refuse)
    before = look_at(run)
    cutlock_("inspect", run / NEWEST)
    assert look_at(run) == before
