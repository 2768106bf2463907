"""The list of the mutants that may survive is true to the code and to its page."""

from __future__ import annotations

import importlib
import inspect
import re

from tests.mutation.page import PAGE, filled
from tests.mutation.survivors import Change, accepted, changes, markdown


def source_of(change: Change) -> str:
    """The source of the function, found by the longest module name."""
    parts = change.function.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(("cutlock", *parts[:end])))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            found = getattr(found, name)
        return inspect.getsource(found)
    raise ModuleNotFoundError(change.function)


def test_every_mutant_that_may_survive_is_of_code_that_is_there() -> None:
    for change in changes(accepted()):
        assert change.was in re.sub(r"\s+", " ", source_of(change)), change


def test_no_mutant_is_listed_twice_and_each_has_a_reason() -> None:
    listed = changes(accepted())
    assert len(set(listed)) == len(listed)
    assert all(reason.why and reason.mutants for reason in accepted())


def test_the_page_lists_what_the_data_lists() -> None:
    page = PAGE.read_text()
    assert page == filled(page, "survivors", markdown(accepted()))
