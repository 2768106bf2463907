"""`cutlock show`: what an argument is, where the page goes, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from cutlock.cli.show import Drawn
from tests.support.commands import assert_refused, cutlock_
from tests.support.local_runs import Run

TRACES = Path(__file__).parents[2] / "traces"
CURSOR = TRACES / "counterexamples" / "cursor_early.itf.json"


def test_a_page_goes_where_it_is_told(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "page.html"
    said = cutlock_("show", CURSOR, "-o", target).output
    assert "After step 20" in said
    assert str(target) in said
    assert target.read_text().startswith("<!doctype html>")


def test_without_a_place_it_is_named_after_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cutlock_("show", CURSOR)
    cutlock_("show", TRACES / "runs" / "narrow")
    cutlock_("show", TRACES / "runs" / "narrow", "--steps")
    cutlock_("show", TRACES / "runs" / "narrow" / "events" / "incarnation-1.ndjson")
    assert {path.name for path in tmp_path.iterdir()} == {
        "cursor_early.html",
        "narrow.html",
        "narrow-steps.html",
        "narrow-incarnation-1.html",
    }


def test_a_trace_is_known_by_its_content_and_not_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "something.txt"
    shutil.copy(CURSOR, path)
    target = tmp_path / "page.html"
    cutlock_("show", path, "-o", target)
    assert "DiskCursor" in target.read_text()


def test_the_events_of_a_run_are_its_steps(tmp_path: Path) -> None:
    one, other = tmp_path / "one.html", tmp_path / "other.html"
    root = TRACES / "runs" / "narrow"
    cutlock_("show", root / "events", "-o", one)
    cutlock_("show", root, "--steps", "-o", other)
    assert one.read_text().count('<li class="step ') == other.read_text().count('<li class="step ')


def test_what_a_page_is_drawn_from_is_written_as_json(tmp_path: Path) -> None:
    data = tmp_path / "data.json"
    cutlock_("show", CURSOR, "-o", tmp_path / "page.html", "--json", data)
    of_trace = msgspec.json.decode(data.read_bytes(), type=Drawn)
    assert of_trace.run is None
    assert of_trace.story is not None
    assert of_trace.story.breaches[0].promise == "P3"
    cutlock_("show", TRACES / "runs" / "narrow", "-o", tmp_path / "page.html", "--json", data)
    of_run = msgspec.json.decode(data.read_bytes(), type=Drawn)
    assert of_run.story is None
    assert of_run.run is not None
    assert of_run.run.prompts == 8


def test_a_page_is_written_again_and_anything_else_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    cutlock_("show", CURSOR, "-o", target)
    first = target.read_bytes()
    cutlock_("show", CURSOR, "-o", target)
    assert target.read_bytes() == first
    target.write_text("<!doctype html><title>mine</title>")
    refused = cutlock_("show", CURSOR, "-o", target, code=2)
    assert_refused(refused, str(target), "no page of `cutlock show`", "-o")
    assert "mine" in target.read_text()
    assert_refused(cutlock_("show", CURSOR, "-o", tmp_path, code=2), "is a directory", "-o")


def test_two_makings_of_a_page_are_equal_byte_by_byte(tmp_path: Path) -> None:
    for name in ("a", "b"):
        cutlock_("show", TRACES / "rejected" / "trained_short", "-o", tmp_path / f"{name}.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize(
    ("argument", "fragments"),
    [
        ("missing", ("does not exist", "wanted: a trace")),
        ("run/run.json", ("the identity of a run", "give its directory")),
        ("rejected/expected.json", ("expected of a rejected run", "give its directory")),
        ("metrics.ndjson", ("metrics of a run", "give its directory")),
        ("empty", ("is empty", "wanted: a trace")),
        ("page.html", ("a web page", "wanted: a trace")),
        ("other.json", ("JSON of another kind", "colour", "wanted: a trace")),
        ("text.txt", ("no trace and no log", "wanted: a trace")),
        ("folder", ("without a run", "run.json", "wanted: a trace")),
        (".", ("holds runs and is none", "run")),
    ],
)
def test_what_cannot_be_shown_is_named_with_what_was_wanted(
    tmp_path: Path, argument: str, fragments: tuple[str, ...]
) -> None:
    shutil.copytree(TRACES / "runs" / "narrow", tmp_path / "run")
    shutil.copytree(TRACES / "rejected" / "trained_short", tmp_path / "rejected")
    (tmp_path / "metrics.ndjson").write_text('{"step":0,"report":{},"staleness_max":0}\n')
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "page.html").write_text("<!doctype html><title>x</title>")
    (tmp_path / "other.json").write_text('{"colour": "blue"}')
    (tmp_path / "text.txt").write_text("hello\n")
    (tmp_path / "folder").mkdir()
    target = tmp_path / "out.html"
    refused = cutlock_("show", tmp_path / argument, "-o", target, code=2)
    assert_refused(refused, *fragments)
    assert not target.exists()


def test_a_bundle_is_sent_to_its_run(fresh_run: Run, tmp_path: Path) -> None:
    bundle = sorted(fresh_run.root.glob("step_*"))[-1]
    refused = cutlock_("show", bundle, "-o", tmp_path / "x.html", code=2)
    assert_refused(refused, "is a bundle", str(fresh_run.root), "cutlock inspect")


def test_a_damaged_trace_and_a_damaged_log_have_exit_codes_of_their_own(tmp_path: Path) -> None:
    trace = tmp_path / "trace.itf.json"
    trace.write_text(CURSOR.read_text().replace('"index": 3}', '"index": 4}'))
    refused = cutlock_("show", trace, "-o", tmp_path / "x.html", code=4)
    assert_refused(refused, str(trace), "state 3 has index 4")
    root = tmp_path / "run"
    shutil.copytree(TRACES / "runs" / "narrow", root)
    log = root / "events" / "incarnation-1.ndjson"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:5] + lines[6:]))
    refused = cutlock_("show", root, "-o", tmp_path / "x.html", code=1)
    assert_refused(refused, "incarnation-1.ndjson:6")
