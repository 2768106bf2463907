"""The blocks of docs/mutation.md that are written by the command."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.mutation.results import COLUMNS

PAGE = Path(__file__).parents[2] / "docs" / "mutation.md"


def filled(text: str, block: str, lines: Iterable[str]) -> str:
    """`text` with `lines` between the marks of `block`."""
    start, end = f"<!-- {block} -->\n", f"<!-- end of {block} -->"
    before, _, rest = text.partition(start)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"{PAGE.name} has no block {block!r}; put its two marks back")
    return "".join((before, start, "\n", *(f"{line}\n" for line in lines), "\n", end, after))


def rows(table: Iterable[tuple[str, ...]]) -> list[str]:
    """The table per module, in markdown."""
    lines = (COLUMNS, ("---", *["---:"] * (len(COLUMNS) - 1)), *table)
    return [f"| {' | '.join(line)} |" for line in lines]
