from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cutlock.errors import ToolError
from cutlock.tlc.manifest import load_manifest
from cutlock.tlc.outcome import Verdict
from cutlock.tlc.run import Toolchain
from cutlock.tlc.selftest import FOLDER, self_test
from tests.tlc.playback import Player


@pytest.mark.tlc
def test_the_checker_of_this_machine_passes(toolchain: Toolchain) -> None:
    told: list[str] = []
    self_test(toolchain, watch=told.append)
    assert told == ["invariant", "deadlock", "leads_to", "refinement", "good", "logs"]


def test_every_kind_of_violation_is_among_the_known_faults() -> None:
    kinds = {model.expected for model in load_manifest(FOLDER / "manifest.toml").models}
    assert kinds == {
        Verdict.SUCCESS,
        Verdict.INVARIANT,
        Verdict.DEADLOCK,
        Verdict.TEMPORAL,
        Verdict.ACTION_PROPERTY,
    }


def test_a_checker_that_finds_nothing_fails_in_every_point(player: Player) -> None:
    with pytest.raises(ToolError, match="nothing it says is believed") as caught:
        self_test(player.plays("success"))
    for point in ("invariant", "deadlock", "leads_to", "refinement"):
        assert f"{point}: expected " in str(caught.value)
    assert "no verdict on logs" in str(caught.value)


def test_a_checker_that_fails_whatever_it_is_asked_fails(player: Player) -> None:
    with pytest.raises(ToolError, match="good: expected success, got invariant"):
        self_test(player.plays("invariant"))


@pytest.mark.tlc
def test_one_missed_fault_is_enough_to_fail(toolchain: Toolchain, tmp_path: Path) -> None:
    folder = tmp_path / "selftest"
    shutil.copytree(FOLDER, folder)
    manifest = (folder / "manifest.toml").read_text()
    first, second = manifest.split("[[models]]")[:2]
    (folder / "manifest.toml").write_text(f"{first}[[models]]{second}")
    dial = (folder / "Dial.tla").read_text()
    (folder / "Dial.tla").write_text(dial.replace("NeverAtEnd == dial # 3", "NeverAtEnd == TRUE"))
    with pytest.raises(ToolError, match="invariant: expected invariant, got success"):
        self_test(toolchain, folder)
