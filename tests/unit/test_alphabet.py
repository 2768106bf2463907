"""One action, one name, one table of arguments."""

from __future__ import annotations

import re

import pytest

from cutlock.alphabet import ARGUMENTS, Action


def test_no_name_is_used_twice() -> None:
    assert len({action.value for action in Action}) == len(Action.__members__) == len(Action)
    assert len({action.snake for action in Action}) == len(Action)


@pytest.mark.parametrize("action", Action)
def test_the_three_spellings_of_a_name_are_one_to_one(action: Action) -> None:
    assert re.fullmatch(r"([A-Z][a-z]+)+", action.value)
    assert action.snake.upper() == action.name
    assert "".join(word.capitalize() for word in action.snake.split("_")) == action.value
    assert Action(action.value) is action


def test_the_example_of_the_design_holds() -> None:
    assert Action.COMMIT_ADMISSION.value == "CommitAdmission"
    assert Action.COMMIT_ADMISSION.snake == "commit_admission"


def test_every_action_has_its_arguments_in_the_order_of_the_alphabet() -> None:
    assert list(ARGUMENTS) == list(Action)


@pytest.mark.parametrize("action", Action)
def test_an_argument_has_a_plain_name_and_comes_once(action: Action) -> None:
    names = ARGUMENTS[action]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names)
