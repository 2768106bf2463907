"""The HTML itself: well-formed, whole, without a reference to anything outside, and escaped."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cutlock.alphabet import ARGUMENTS, Action
from cutlock.report.pages.lanes import LANES, doing
from tests.pages.conftest import MakePage
from tests.support.local_runs import Run

TRACES = Path(__file__).parents[2] / "traces"
KEPT = [
    TRACES / "counterexamples" / f"{name}.itf.json"
    for name in (
        "cursor_early",
        "late_forget",
        "narrow_clears_not_deferred",
        "barrier_cuts_overtake",
        "story_cursor_early",
        "touched_plane",
    )
] + [TRACES / "runs" / "ready_first", TRACES / "rejected" / "index_reads_less"]
VOID = frozenset({"meta", "link", "input", "br", "hr", "img", "col", "wbr"})
HOSTILE = '<script>alert("1")</script>&\\" onload=x'


class Reader(HTMLParser):
    """Reads a page strictly: every element is closed, in order, and every id is there once."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.problems: list[str] = []
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.tags: Counter[str] = Counter()
        self.classes: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> at {self.getpos()}")

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            if name == "id":
                self.ids[value or ""] += 1
            if name in {"href", "src", "action", "srcset", "data", "poster", "xlink:href"}:
                self.links.append(value or "")
            if name.startswith("on") or (name == "style" and "url(" in (value or "")):
                self.problems.append(f"{name} at {self.getpos()}")
            if name == "class":
                self.classes.update((value or "").split())


def parsed(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    return reader


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_a_page_is_well_formed_and_refers_to_nothing_outside(
    path: Path, make_page: MakePage
) -> None:
    html = make_page(path).read_text()
    found = parsed(html)
    assert found.problems == []
    assert found.open == []
    assert [name for name, count in found.ids.items() if count > 1] == []
    outside = [link for link in found.links if not link.startswith("#") and link != "data:,"]
    assert outside == []
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    assert found.tags["script"] == 1
    assert found.tags["style"] == 1
    assert not {"link", "img", "iframe", "object", "font", "image", "use"} & {
        tag for tag in found.tags if tag != "link"
    }
    assert "@import" not in html
    assert "url(" not in html
    assert not re.search(r"https?://", html)


def test_every_step_is_there_as_an_item_and_as_a_column(make_page: MakePage) -> None:
    found = parsed(make_page(TRACES / "counterexamples" / "cursor_early.itf.json").read_text())
    for number in range(21):
        assert found.ids[f"step-{number}"] == 1
        assert found.links.count(f"#step-{number}") >= 2


def hostile_run(root: Path) -> Path:
    """A kept run one of whose prompts has markup for a name, and so have its errors."""
    shutil.copytree(TRACES / "runs" / "in_order", root)
    escaped = HOSTILE.replace('"', '\\"').replace('\\\\"', '\\\\\\"')
    for path in (root / "run.json", *(root / "events").iterdir()):
        path.write_text(path.read_text().replace("reverse-21", escaped))
    return root


@pytest.mark.parametrize("steps", [True, False], ids=["steps", "run"])
def test_names_with_markup_in_them_are_text(
    tmp_path: Path, make_page: MakePage, steps: bool
) -> None:
    html = make_page(hostile_run(tmp_path / "hostile"), steps=steps).read_text()
    found = parsed(html)
    assert "&lt;script&gt;alert(" in html
    assert "<script>alert" not in html
    assert found.tags["script"] == 1
    assert found.problems == []
    assert found.open == []


def test_a_run_whose_end_is_an_error_with_markup_is_text(
    tmp_path: Path, make_page: MakePage
) -> None:
    root = tmp_path / "failed"
    shutil.copytree(TRACES / "runs" / "in_order", root)
    path = root / "events" / "incarnation-2.ndjson"
    path.write_text(path.read_text().replace('"exhausted"', '"<b onclick=x>stopped</b>"'))
    for steps in (True, False):
        html = make_page(root, steps=steps).read_text()
        assert "&lt;b onclick=x&gt;" in html
        assert "<b onclick" not in html


def test_the_script_writes_no_markup() -> None:
    folder = Path(__file__).parents[2] / "src" / "cutlock" / "report" / "pages" / "templates"
    script = (folder / "page.js").read_text()
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in script
    assert "</script" not in script


def test_every_action_has_a_lane_and_a_sentence() -> None:
    keys = {lane.key for lane in LANES}
    assert set(ARGUMENTS) == set(Action)
    for action in Action:
        known = doing(action)
        assert known.lane in keys, action
        assert known.meaning.endswith("."), action
        assert "does not know" not in known.meaning, action


def test_a_page_of_a_run_shows_its_restarts_saves_and_bundles(
    fresh_run: Run, make_page: MakePage
) -> None:
    found = parsed(make_page(fresh_run.root).read_text())
    assert found.problems == []
    assert found.open == []
    assert found.classes["start-bar"] == 2
    assert found.classes["killed"] == 1
    assert found.classes["restart"] == 2, "one in each chart"
    assert found.tags["polyline"] == 2
    assert found.classes["meter"] == 3 * 4
