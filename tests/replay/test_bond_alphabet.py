"""What drives, models and accepts actions knows every action of the alphabet, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cutlock.alphabet import ARGUMENTS, Action
from cutlock.conformance.reference.actions import ACTIONS
from cutlock.conformance.stepping.moves import MOVES

TRACE = Path(__file__).parents[2] / "spec" / "TraceCutlock.tla"
EVERY = {action.value for action in Action}
# A client does not see the parts of its put: no log holds them.
UNSEEN = {"StoreRow"}
# What whoever resumes may choose: an older bundle, or to leave its rows behind.
CHOICES = {"TakeBundle", "LeaveRows"}


@pytest.mark.parametrize("known", [MOVES, ACTIONS], ids=["stepper", "reference"])
def test_the_table_of_actions_is_the_alphabet(known: object) -> None:
    assert {str(name) for name in known} == EVERY  # type: ignore[attr-defined]


def test_logs_may_hold_every_action() -> None:
    named = set(re.findall(r'e\.name = "(\w+)"', TRACE.read_text()))
    assert named - CHOICES == EVERY - UNSEEN


def test_what_an_event_is_asked_for_is_an_argument_of_its_action() -> None:
    text = re.sub(r"\\\*[^\n]*", "", TRACE.read_text())
    for part in re.split(r'(?=e\.name = ")', text)[1:]:
        name, body = re.match(r'e\.name = "(\w+)"', part), part.split("\n\n")[0]
        assert name is not None
        if name[1] not in CHOICES:
            # A publication is also told by whom it is and whether a start comes back to it.
            asked = set(re.findall(r"\be\.(\w+)", body)) - {"name", "kept", "by"}
            assert asked <= set(ARGUMENTS[Action(name[1])]), name[1]
