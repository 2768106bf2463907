"""What is shown while something goes on: on a terminal, and where nobody looks."""

from __future__ import annotations

import io
import re

from rich.console import Console

from cutlock.report.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Shown:
    """A progress, what it has written, and its clock."""

    def __init__(self, *, live: bool = False, width: int = 80) -> None:
        self._written = io.StringIO()
        self.clock = Clock()
        console = Console(file=self._written, width=width, force_terminal=live)
        self.progress = Progress(console, live=live, now=self.clock, patience_s=60.0)

    @property
    def text(self) -> str:
        return self._written.getvalue()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def test_without_a_terminal_each_finished_item_is_one_line() -> None:
    shown = Shown()
    shown.progress.total = 2
    with shown.progress as progress:
        progress.show("narrow", "12 states found")
        shown.clock.now += 3.5
        progress.item("narrow: holds")
        progress.show("full")
        shown.clock.now += 1.0
        progress.item("full: holds")
    assert shown.lines == ["   3.5 s  1/2  narrow: holds", "   4.5 s  2/2  full: holds"]


def test_without_a_terminal_a_long_item_is_said_to_go_on_from_time_to_time() -> None:
    shown = Shown()
    for found in range(5):
        shown.progress.show("deep", f"{found} states found")
        shown.clock.now += 30.0
    assert shown.lines == ["  60.0 s  deep: 2 states found", " 120.0 s  deep: 4 states found"]


def test_an_item_that_is_told_begins_the_wait_anew() -> None:
    shown = Shown()
    shown.clock.now += 59.0
    shown.progress.item("small")
    shown.clock.now += 59.0
    shown.progress.show("next")
    assert shown.lines == ["  59.0 s  small"]


def test_items_can_be_finished_several_at_once() -> None:
    shown = Shown()
    shown.progress.total = 9
    shown.progress.item("steps trained", done=4)
    assert shown.lines == ["   0.0 s  4/9  steps trained"]


def test_without_a_terminal_a_long_line_is_one_line_without_control_characters() -> None:
    shown = Shown()
    shown.progress.item("x" * 100)
    shown.progress.note("two\nlines \x1b[31m")
    assert shown.lines == [f"   0.0 s  {'x' * 100}", "two lines \\x1b[31m"]


def test_on_a_terminal_one_line_is_kept_up_to_date_and_taken_away() -> None:
    shown = Shown(live=True)
    with shown.progress as progress:
        progress.show("starting")
        progress.item("started")
        progress.show("running", "step 1")
    progress.close()
    assert "running: step 1" in shown.text
    assert "started" not in shown.text
    assert shown.text.endswith("\x1b[2K")


def test_on_a_terminal_the_live_line_counts_and_shows_the_time_that_has_passed() -> None:
    shown = Shown(live=True)
    shown.progress.total = 3
    with shown.progress as progress:
        progress.item("first")
        progress.show("second")
        shown.clock.now += 12.0
    assert "  12.0 s  1/3  second" in shown.text


def test_on_a_terminal_a_line_that_is_too_long_is_cut_and_never_wrapped() -> None:
    shown = Shown(live=True, width=40)
    with shown.progress as progress:
        progress.show("running", "x" * 100)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", shown.text)
    assert max(map(len, re.split(r"[\r\n]+", plain))) == 40
    assert "x…" in plain


def test_a_note_stays_on_a_line_of_its_own_above_the_live_line() -> None:
    shown = Shown(live=True)
    with shown.progress as progress:
        progress.show("running")
        progress.note("warning: a save failed")
    assert re.search(r"\x1b\[2Kwarning: a save failed\n", shown.text)


def test_text_in_brackets_is_not_taken_for_markup() -> None:
    shown = Shown()
    shown.progress.item("waiting for [red] groups")
    assert "[red] groups" in shown.text
