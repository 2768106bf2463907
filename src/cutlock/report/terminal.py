"""Terminal output: one live line on a terminal, plain lines elsewhere, tables of 80 columns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.status import Status as Spinner
from rich.table import Table
from rich.text import Text

__all__ = ["Progress", "key_values", "listing", "table"]


class Progress:
    """Shows what goes on; quiet about what has not changed.

    Args:
        period_s: least time between two plain lines of the same stage.
    """

    def __init__(
        self,
        console: Console,
        now: Callable[[], float] = time.monotonic,
        period_s: float = 5.0,
    ) -> None:
        self._console = console
        self._now = now
        self._period_s = period_s
        self._began = now()
        self._stage = ""
        self._shown_at = float("-inf")
        self._spinner: Spinner | None = None

    def show(self, stage: str, detail: str = "") -> None:
        """Say that `stage` goes on; `detail` may change often."""
        elapsed = self._now() - self._began
        line = f"{elapsed:6.1f} s  {stage}{': ' if detail else ''}{detail}"
        if self._console.is_terminal:
            if self._spinner is None:
                self._spinner = self._console.status("")
                self._spinner.start()
            self._spinner.update(Text(line, no_wrap=True, overflow="ellipsis"))
        elif stage != self._stage or self._now() - self._shown_at >= self._period_s:
            self._console.print(Text(line), soft_wrap=True)
            self._shown_at = self._now()
        self._stage = stage

    def close(self) -> None:
        """Take the live line away."""
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table; every column but the first is aligned to the right."""
    made = Table(title=Text(title), title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        made.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        made.add_row(*(_cell(value) for value in row))
    return made


def listing(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table of many rows, without lines between them; the names in front stay whole."""
    made = Table(
        title=Text(title), title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1)
    )
    for number, column in enumerate(columns):
        made.add_column(
            column,
            justify="right" if number else "left",
            overflow="fold",
            no_wrap=not number,
        )
    for row in rows:
        made.add_row(*(_cell(value) for value in row))
    return made


def key_values(title: str, values: Iterable[tuple[str, object]]) -> Table:
    """Names and values, one pair a row."""
    made = Table(title=Text(title), title_justify="left", title_style="bold", show_header=False)
    made.add_column()
    made.add_column(overflow="fold")
    for name, value in values:
        made.add_row(_cell(name), _cell(value))
    return made


def _cell(value: object) -> Text:
    """As it is: what is shown comes from users and errors, and is no markup."""
    return Text(f"{value:.2f}" if isinstance(value, float) else str(value))
