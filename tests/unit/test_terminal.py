from __future__ import annotations

import io

from rich.console import Console

from cutlock.report.terminal import Progress, key_values, table


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def plain() -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, width=80), written


def test_a_new_stage_is_said_at_once_and_the_same_one_from_time_to_time() -> None:
    console, written = plain()
    clock = Clock()
    progress = Progress(console, clock, period_s=5.0)
    progress.show("starting")
    progress.show("running", "step 1")
    clock.now += 4.0
    progress.show("running", "step 2")
    clock.now += 1.0
    progress.show("running", "step 3")
    progress.close()
    assert written.getvalue().splitlines() == [
        "   0.0 s  starting",
        "   0.0 s  running: step 1",
        "   5.0 s  running: step 3",
    ]


def test_a_long_line_is_one_line() -> None:
    console, written = plain()
    Progress(console, Clock()).show("running", "x" * 100)
    assert written.getvalue().splitlines() == [f"   0.0 s  running: {'x' * 100}"]


def test_on_a_terminal_one_line_is_kept_up_to_date_and_taken_away() -> None:
    written = io.StringIO()
    console = Console(file=written, width=80, force_terminal=True)
    progress = Progress(console, Clock())
    progress.show("starting")
    progress.show("running", "step 1")
    progress.close()
    progress.close()
    assert "step 1" in written.getvalue()
    assert written.getvalue().endswith("\x1b[2K")


def test_text_in_brackets_is_not_taken_for_markup() -> None:
    console, written = plain()
    Progress(console, Clock()).show("waiting for [red] groups")
    console.print(key_values("[title]", [("groups", "['p0@0']")]))
    console.print(table("Groups", ("name", "why"), [("p0@0", "[/] not a tag")]))
    for text in ("[red] groups", "['p0@0']", "[/] not a tag"):
        assert text in written.getvalue()


def test_tables_stay_within_the_width_and_show_numbers_with_two_digits() -> None:
    console, written = plain()
    console.print(key_values("Run", [("long", "word " * 60), ("longer", "x" * 200)]))
    console.print(table("Saves", ("bundle", "ms"), [("step_4", 1.23456), ("step_" + "9" * 90, 2)]))
    lines = written.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any("1.23 " in line for line in lines)
    assert written.getvalue().count("x") == 200
