"""Where a command speaks: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from cutlock.report.progress import Progress, one_line, printable

__all__ = ["StdoutClosed", "Terminal", "key_values", "listing", "table"]


class StdoutClosed(Exception):
    """Whoever read stdout has stopped reading, e.g. `head`."""


class Terminal:
    """The two streams of one command.

    It is *live* if a person looks at stderr: then one line is kept up to date. Else, and with
    `--quiet`, `CI`, `NO_COLOR` or `TERM=dumb`, all is plain lines without control characters.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        plain = _wants_plain(environment)
        self._out = _console(plain, stderr=False)
        self._err = _console(plain, stderr=True)
        self.quiet = False
        """No live line, whoever looks."""
        self.results = True
        """Whether results are shown for people; not when stdout is for a program."""

    def show(self, *results: RenderableType) -> None:
        """Print results, for people."""
        if self.results:
            for result in results:
                if isinstance(result, str):
                    self._out.print(printable(result), soft_wrap=True)
                else:
                    self._out.print(result)

    def write(self, data: str) -> None:
        """Print data for a program: exactly these characters, and a line end."""
        try:
            print(data, flush=True)
        except BrokenPipeError as error:
            raise StdoutClosed from error

    def say(self, text: str) -> None:
        """One line on stderr, however long."""
        self._err.print(one_line(text), soft_wrap=True)

    def progress(self) -> Progress:
        """Shows what goes on, on stderr; to be used with `with`."""
        return Progress(self._err, live=self._err.is_terminal and not self.quiet)


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Leave it to the command, which ends quietly; rich would end it as a failure."""
        raise StdoutClosed


def _console(plain: bool, *, stderr: bool) -> Console:
    return _Console(
        stderr=stderr,
        force_terminal=False if plain else None,
        markup=False,
        emoji=False,
        highlight=False,
    )


def _wants_plain(environment: Mapping[str, str]) -> bool:
    """Whether the surroundings ask for plain lines, by the usual variables."""
    ci = environment.get("CI", "").lower() not in {"", "0", "false"}
    return ci or bool(environment.get("NO_COLOR")) or environment.get("TERM") == "dumb"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table; every column but the first is aligned to the right."""
    made = Table(title=Text(title, "bold"), title_justify="left")
    for number, column in enumerate(columns):
        made.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        made.add_row(*(_cell(value) for value in row))
    return made


def listing(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table of many rows, without lines between them."""
    made = Table(title=Text(title, "bold"), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    for number, column in enumerate(columns):
        made.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        made.add_row(*(_cell(value) for value in row))
    return made


def key_values(title: str, values: Iterable[tuple[str, object]]) -> Table:
    """Names and values, one pair a row."""
    made = Table(title=Text(title, "bold"), title_justify="left", show_header=False)
    made.add_column()
    made.add_column(overflow="fold")
    for name, value in values:
        made.add_row(_cell(name), _cell(value))
    return made


def _cell(value: object) -> Text:
    """As it is: what is shown comes from users and errors, and is no markup."""
    return Text(f"{value:.2f}" if isinstance(value, float) else printable(str(value)))
