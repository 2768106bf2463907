"""Every error says what was found and what to do, and docs/errors.md lists it."""

from __future__ import annotations

import re

from tests.support.error_messages import PAGE, messages, page

PASSED_ON = {
    "configuration: {...}": "the message of msgspec, with what is expected",
    "sampler {name}: {...}": "the same",
    "{config}: [task]: {error}": "an error of the task, with its way out",
    "{path}: {error}": "an error of the trace, with its way out",
    "{path}:{number}: {error}": "an error of the record, with its way out",
    "{...}": "messages of the units",
    "{...} failed: {lost}": "why the store is lost ends with the way out",
    "{call} was not begun: {lost}": "the same",
}
"""Messages that are others with a place in front."""

WITHOUT_A_VALUE = {
    "a VerifiedBundle cannot be made by hand",
    "a put of no keys",
    "a TransferQueue cannot be held between the units of a put",
    "a TransferQueue runs in this Ray cluster already",
    "more edges than printed actions",
    "no TransferQueue runs in this Ray cluster",
    "no tla2tools.jar",
    "not a counterexample: a state has other variables",
    "ray is imported already",
    "Ray is not initialised in this process",
    "the generator or the store cancelled its own call",
    "the run has no event log",
    "the state is built on another plane",
    "the trainer has no copy to write",
    "the trainer or the store cancelled its own call",
    "--write needs --traces",
    "dispatch() is called while another iteration",
}
"""Messages about something that is missing, or done twice: there is no value to name."""


def test_the_page_lists_every_message() -> None:
    assert PAGE.read_text() == page(), "python -m tests.support.error_messages"


def test_every_message_has_a_way_out() -> None:
    # It comes behind what was found; a question is one, too.
    without = [m for m in messages() if not re.search(r"; .*\w|\?$", m.text)]
    assert [m for m in without if m.text not in PASSED_ON] == []
    assert {m.text for m in without} == PASSED_ON.keys()


def test_every_message_names_the_offending_value() -> None:
    without = {m.text for m in messages() if "{" not in m.text}
    known = {text for text in without for begin in WITHOUT_A_VALUE if text.startswith(begin)}
    assert without == known
    assert len(known) == len(WITHOUT_A_VALUE)


def test_no_message_is_more_than_one_line_or_ends_with_a_full_stop() -> None:
    assert [m for m in messages() if "\n" in m.text or m.text.endswith(".")] == []
