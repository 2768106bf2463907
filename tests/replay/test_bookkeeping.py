"""What the code counts beside the variables of the specification is checked after every action."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutlock.alphabet import Action
from cutlock.conformance.faults import named_fault
from cutlock.errors import DivergenceError
from cutlock.run.state import Permits
from tests.replay.script import Script

Patch = pytest.MonkeyPatch


def test_places_that_a_restore_forgets_are_missed(ram_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(Permits, "take", lambda permits, count: None)
    with Script(ram_path / "run") as script:
        script.start().to(Action.SYNC_WEIGHTS).to(Action.COMMIT_GROUP).save().do(Action.CRASH)
        with pytest.raises(DivergenceError, match=r"StartPumps\(\): 0 places are taken, and 1 gro"):
            script.start()


def test_places_that_are_not_given_back_are_missed(ram_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(Permits, "release", lambda permits, count=1: None)
    with (
        Script(ram_path / "run") as script,
        pytest.raises(DivergenceError, match=r"SelectGroups\(.*\): 2 places are taken, and 1 gro"),
    ):
        script.finish()


def test_a_selection_that_a_restore_forgets_is_missed(ram_path: Path) -> None:
    with Script(ram_path / "run") as script:
        script.start().to(Action.SYNC_WEIGHTS).to(Action.SYNC_WEIGHTS)
        incarnation = script.stepper.incarnation
        assert incarnation is not None
        incarnation.engine.state.next_selection = 0
        with pytest.raises(DivergenceError, match="the next selection is of step 0, not of 2"):
            script.to(Action.RESERVE_BATCH)


def test_a_cut_that_is_entered_too_early_is_noticed(ram_path: Path) -> None:
    fault = named_fault("commit_without_slot")
    with fault.protection.applied(), Script(ram_path / "run") as script:
        script.start().to(Action.SYNC_WEIGHTS).to(Action.BEGIN_COMMIT)
        with pytest.raises(DivergenceError, match=r"the cut was entered although .* PutRows"):
            script.save()
