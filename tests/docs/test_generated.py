"""What is written from the manifest and drawn from traces is as they are now."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.docs import ROOT, Page

PICTURES = ROOT / "docs" / "pictures"


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


draw = module(PICTURES / "draw.py")
bounds = module(ROOT / "docs" / "site" / "bounds.py")


@pytest.mark.parametrize("picture", draw.PICTURES, ids=lambda picture: picture.__name__)
def test_a_picture_is_what_its_trace_says(picture: object) -> None:
    drawn = picture()  # type: ignore[operator]
    kept = (PICTURES / f"{drawn.name}.svg").read_text()
    assert kept == drawn.svg(), "draw them again: python docs/pictures/draw.py"


def test_the_tables_of_promises_are_those_of_the_manifest() -> None:
    page = bounds.PAGE.read_text()
    assert page == bounds.written(page), "write them again: python docs/site/bounds.py"


def test_every_predicate_that_is_checked_has_a_row_and_a_promise() -> None:
    configured = {
        name
        for path in (ROOT / "model_check").rglob("*.cfg")
        if path.parent.name != "witnesses"
        for line in re.findall(
            r"^(?:INVARIANTS?|PROPERTY|PROPERTIES) (.+)$", path.read_text(), re.M
        )
        for name in line.split()
    }
    assert configured - {"deadlock"} <= set(bounds.PROMISE_OF)
    assert set(bounds.PROMISE_OF) == set(bounds.SAYS)


def test_every_promise_of_the_page_is_one_of_ten() -> None:
    text = bounds.PAGE.read_text()
    assert re.findall(r"^\| \*\*(P\d+) ", text, re.M) == [f"P{n}" for n in range(1, 11)]


def test_the_bundle_of_the_page_is_that_of_the_code() -> None:
    from cutlock.bundle.layout import ARTIFACTS

    text = (ROOT / "docs" / "cut.md").read_text()
    listed = set(re.findall(r"^\| `([\w./]+)` \|", text, re.M))
    tops = {a.name for a in ARTIFACTS if "/" not in a.name.rstrip("/")}
    assert listed == tops


def test_the_glossary_is_in_order() -> None:
    page = Page(ROOT / "docs" / "glossary.md")
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", page.path.read_text(), re.M)
    assert terms == sorted(terms, key=str.lower)
    assert len(terms) > 30
