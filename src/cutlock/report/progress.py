"""What goes on, while it goes on: one live line for a person, finished items elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

__all__ = ["Progress", "one_line", "printable"]

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_A_SECOND = 8


def printable(text: str) -> str:
    """The text without control characters, which come from names of files and from errors."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """All of it on one line, however long."""
    return printable(" ".join(text.split()))


class Progress:
    """Shows what a command is doing; use it with `with`.

    Live, one line is kept up to date and taken away at the end. Otherwise each finished item
    is one line, and where nothing ends for long, a line says that the work goes on.

    Args:
        live: whether the console is a terminal that a person looks at.
        now: seconds, monotonic.
        patience_s: for so long a plain output may say nothing.
    """

    done = 0
    """Items that are finished."""
    total: int | None = None
    """Items that there are, if that is known."""

    def __init__(
        self,
        console: Console,
        *,
        live: bool = False,
        now: Callable[[], float] = time.monotonic,
        patience_s: float = 60.0,
    ) -> None:
        self._console = console
        self._now = now
        self._patience_s = patience_s
        self._began = self._said_at = now()
        self._text = ""
        self._live = (
            Live(
                console=console,
                transient=True,
                refresh_per_second=_FRAMES_A_SECOND,
                get_renderable=self._live_line,
            )
            if live
            else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def show(self, stage: str, detail: str = "") -> None:
        """Say that `stage` goes on; `detail` may change often."""
        self._text = f"{stage}{': ' if detail else ''}{detail}"
        if self._live is None:
            if self._now() - self._said_at >= self._patience_s:
                self._say(self._text)
        elif not self._live.is_started:
            self._live.start(refresh=True)

    def item(self, text: str, done: int | None = None) -> None:
        """One more item is finished, or `done` in all; `text` says what came of it."""
        self.done = self.done + 1 if done is None else done
        if self._live is None:
            self._say(text)

    def note(self, text: str) -> None:
        """Say what has to be seen, on a line that stays."""
        self._console.print(Text(one_line(text)), soft_wrap=True)

    def close(self) -> None:
        """Take the live line away."""
        if self._live is not None:
            self._live.stop()

    def _say(self, text: str) -> None:
        self._said_at = self._now()
        self._console.print(Text(self._line(one_line(text))), soft_wrap=True)

    def _live_line(self) -> Text:
        frame = _FRAMES[int(self._now() * _FRAMES_A_SECOND) % len(_FRAMES)]
        return Text(f"{frame} {self._line(self._text)}", no_wrap=True, overflow="ellipsis")

    def _line(self, text: str) -> str:
        count = "" if self.total is None else f"{self.done}/{self.total}  "
        return f"{self._now() - self._began:6.1f} s  {count}{text}"
