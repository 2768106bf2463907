"""What `docs/pages.md` says holds, and its sample is what the command makes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cutlock.report.pages.lanes import STATES
from cutlock.show.traces import story_of_trace
from cutlock.tlc.itf import from_itf
from tests.support.commands import cutlock_

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TEXT = (DOCS / "pages.md").read_text()
CURSOR = Path("traces", "counterexamples", "cursor_early.itf.json")


def test_the_sample_page_is_what_the_command_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    cutlock_("show", CURSOR, "-o", tmp_path / "page.html")
    sample = DOCS / "pages" / "cursor_early.html"
    assert (tmp_path / "page.html").read_text() == sample.read_text(), (
        f"make it again: cutlock show {CURSOR} -o docs/pages/cursor_early.html"
    )


def test_every_picture_is_there_and_together_they_are_small() -> None:
    named = set(re.findall(r"\((pages/[^)]+)\)", TEXT))
    assert {f"pages/{path.name}" for path in (DOCS / "pages").iterdir()} == named
    assert sum((DOCS / name).stat().st_size for name in named) < 400_000


def test_the_letters_are_those_of_the_pages() -> None:
    table = {
        key.partition(",")[0].partition(":")[0] for key in re.findall(r"` \| ([^|]+?) \|", TEXT)
    }
    letters = set(re.findall(r"^\| `(\S+)` \| [^|]+ \| `(\S+)` \|", TEXT, re.M))
    shown = {letter for pair in letters for letter in pair}
    owners = [STATES[key] for key in table if key in STATES]
    assert {state.letter for state in owners} <= shown
    assert shown == {
        state.letter
        for key, state in STATES.items()
        if key not in {"idle", "waiting", "granted", "inside", "foreign"}
    }


def test_the_example_is_told_by_the_steps_of_the_sample() -> None:
    (chapter,) = story_of_trace(from_itf((ROOT / CURSOR).read_bytes()), "").chapters
    actions = {step.number: step.action for step in chapter.steps}
    assert (actions[6], actions[7]) == ("ReadCursor", "CommitAdmission")
    assert (actions[9], actions[20]) == ("OpenCut", "PublishBundle")
    (held,) = [track for track in chapter.counters if track.name == "save: cursor"]
    assert (held.live[0].first, held.live[0].state) == (6, "-1")
    (first,) = [track for track in chapter.prompts if track.name == "1a"]
    assert (first.disk[0].first, first.disk[0].note) == (20, "stamp 0")
