"""Every file that the page on architecture names exists, and no path through the code is longer
than the page may claim."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
MOST = {"One commit": 7, "One save": 12, "One restore": 11, "One counterexample": 8}
"""Files that a reader opens to follow each operation."""


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)\n", PAGE.read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def steps(text: str) -> list[str]:
    """The files that a call passes through: first column of a section's table."""
    return re.findall(r"^\| \[`([\w./]+)`\]", text, re.M)


@pytest.mark.parametrize("name", MOST)
def test_a_path_has_no_more_files_than_a_reader_can_hold(name: str) -> None:
    files = steps(sections()[name])
    assert len(files) == len(set(files)), "a call that comes back is told in one row"
    assert 3 < len(files) <= MOST[name]


def test_every_file_that_is_named_exists() -> None:
    named = {file for text in sections().values() for file in re.findall(r"`([\w/]+\.py)`", text)}
    linked = set(re.findall(r"\]\(\.\./([\w./]+)\)", PAGE.read_text()))
    assert linked >= {file for file in named if "/" in file}
    assert all((ROOT / file).is_file() for file in linked), linked
