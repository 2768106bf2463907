"""docs/failures.md names fields, defaults and errors that exist."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

import cutlock.errors
from cutlock.run.config import RunConfig

PAGE = (Path(__file__).parents[2] / "docs" / "failures.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("| \n").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("|") and not line.startswith("| ---")
][1:]
FIELDS = re.findall(r"`([a-z]+\.[a-z_]+)`", PAGE)
LIMITS = re.findall(
    r"^`(\w+)\.(\w+)`, (\d+)", "\n".join(row[2] + "\n" + row[3] for row in ROWS), re.M
)


def default_of(field: str) -> object:
    section, _, name = field.partition(".")
    return getattr(getattr(RunConfig(), section), name)


@pytest.mark.parametrize("field", sorted(set(FIELDS)))
def test_every_field_that_is_named_exists(field: str) -> None:
    default_of(field)


def test_every_limit_has_the_default_that_is_given() -> None:
    assert len(LIMITS) > 10
    for section, name, value in LIMITS:
        assert default_of(f"{section}.{name}") == int(value), f"{section}.{name}"


def test_every_limit_of_the_configuration_is_on_the_page() -> None:
    limits = {
        f"{section}.{field}"
        for section, part in msgspec.structs.asdict(RunConfig()).items()
        if isinstance(part, msgspec.Struct)
        for field in part.__struct_fields__
        if re.search(r"limit_s$|_s$|attempts|budget|in_a_row", field) and "delay" not in field
    }
    assert limits <= set(FIELDS)


def test_every_error_that_is_named_exists_and_every_row_is_whole() -> None:
    for row in ROWS:
        assert len(row) == 5, row
    for error in re.findall(r"`(\w+Error)`", PAGE):
        assert issubclass(getattr(cutlock.errors, error), cutlock.errors.CutlockError)
