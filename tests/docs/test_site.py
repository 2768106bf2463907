"""The site is built without a warning, and every module of the reference is on one page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cutlock
from tests.support.docs import ROOT


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    # Its own switch for silence would leave out the warnings, and with them the refusal.
    said = [line for line in built.stderr.splitlines() if not line.startswith("INFO")]
    assert (built.returncode, said) == (0, [])
    page = (tmp_path / "site" / "index.html").read_text()
    assert "https://" not in re.sub(r"<a [^>]*>", "", page), "a page that asks the network"


def test_every_public_name_is_listed_and_described() -> None:
    reference = ROOT / "docs" / "reference"
    rows = re.findall(r"^\| \[.*?\]\((\w+\.md)\) \| (`.*`) \|$", index_of(reference), re.M)
    listed = {name: page for page, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert set(listed) == set(cutlock.__all__)
    for name, page in listed.items():
        home = cutlock._HOMES[name]
        assert f"\n::: cutlock.{home}\n" in (reference / page).read_text(), name


def index_of(reference: Path) -> str:
    return (reference / "index.md").read_text().partition("## Modules")[0]


def test_no_module_is_on_two_pages_of_the_reference() -> None:
    pages = (ROOT / "docs" / "reference").glob("*.md")
    listed = [name for page in pages for name in re.findall(r"^::: (\S+)", page.read_text(), re.M)]
    assert sorted(listed) == sorted(set(listed))
