from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

import pytest
from rich.console import Console

from cutlock.report.terminal import Terminal, key_values, listing, table


def plain(width: int = 80) -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, width=width), written


def test_text_in_brackets_is_not_taken_for_markup() -> None:
    console, written = plain()
    console.print(key_values("[title]", [("groups", "['p0@0']")]))
    console.print(table("Groups", ("name", "why"), [("p0@0", "[/] not a tag")]))
    for text in ("['p0@0']", "[/] not a tag"):
        assert text in written.getvalue()


def test_tables_stay_within_the_width_and_show_numbers_with_two_digits() -> None:
    console, written = plain()
    console.print(key_values("Run", [("long", "word " * 60), ("longer", "x" * 200)]))
    console.print(table("Saves", ("bundle", "ms"), [("step_4", 1.23456), ("step_" + "9" * 90, 2)]))
    lines = written.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any("1.23 " in line for line in lines)
    assert written.getvalue().count("x") == 200


@pytest.mark.parametrize("width", [80, 60, 40])
def test_a_long_cell_of_any_column_is_folded_and_keeps_every_character(width: int) -> None:
    console, written = plain(width)
    rows = [("a" * 90, "b" * 90, "c" * 90), ("d", "e", "f")]
    for made in (table, listing):
        console.print(made("Rows", ("one", "two", "three"), rows))
    text = written.getvalue()
    assert max(map(len, text.splitlines())) <= width
    # A title and two heads have some of these letters, too.
    assert [text.count(letter) >= 180 for letter in "abc"] == [True] * 3


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rich itself looks at."""
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def spoken(environment: dict[str, str], **changes: bool) -> tuple[str, str]:
    """What a command writes to a terminal: stdout, and stderr."""
    out, err = Screen(), Screen()
    with redirect_stdout(out), redirect_stderr(err):
        terminal = Terminal(environment)
        for name, value in changes.items():
            setattr(terminal, name, value)
        with terminal.progress() as progress:
            progress.show("running")
            progress.item("finished")
        terminal.show(table("Saves", ("bundle",), [("step_4",)]), "all saved")
        terminal.say("error: \x1b[31mnone")
        terminal.write("{}")
    return out.getvalue(), err.getvalue()


def test_a_person_at_a_terminal_sees_a_live_line() -> None:
    out, err = spoken({"TERM": "xterm"})
    assert "\x1b[2K" in err
    assert "finished" not in err
    assert "\x1b[1mSaves" in out


@pytest.mark.parametrize(
    "environment", [{"CI": "true"}, {"CI": "1"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str
)
def test_no_control_character_is_written_where_plain_lines_are_asked_for(
    environment: dict[str, str],
) -> None:
    written = "".join(spoken(environment))
    assert not [letter for letter in written if ord(letter) < 32 and letter != "\n"]
    assert "finished" in written


@pytest.mark.parametrize(
    "environment", [{}, {"CI": ""}, {"CI": "false"}, {"NO_COLOR": ""}], ids=str
)
def test_a_variable_that_is_empty_or_false_asks_for_nothing(environment: dict[str, str]) -> None:
    assert "\x1b[2K" in spoken({"TERM": "xterm", **environment})[1]


def test_a_quiet_command_has_no_live_line() -> None:
    _, err = spoken({"TERM": "xterm"}, quiet=True)
    assert "\x1b" not in err
    assert "finished" in err


def test_results_are_not_shown_where_stdout_is_for_a_program() -> None:
    out, err = spoken({}, results=False)
    assert out == "{}\n"
    assert "error: \\x1b[31mnone\n" in err
