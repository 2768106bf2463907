"""Where everything in the picture of a chapter goes, in pixels.

A column is a step. Above are the lanes of those who act, below them counters, and below these
the prompts, each with three strips: its owner in the process, whether its rows are in the plane,
and its owner in the bundle on disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cutlock.report.pages.data import Chapter, Span, Step, Track
from cutlock.report.pages.lanes import STATES, Lane, state

__all__ = ["LABELS", "Box", "Column", "Figure", "Label", "Row", "Text", "Wash", "draw", "slug"]

COLUMN, _WIDEST, _PAGE = 24, 38, 1000
"""Width of a step, at least and at most; few steps share the width of the page."""
LABELS = 142
"""Width of the labels, which stay where they are while the steps scroll."""
_ABOVE, _PER_LETTER = 30, 5.6
"""Height of the leaning names: of the numbers below them, and for each letter."""
_LANE = 20
_COUNTER = 18
_PROMPT = 38
_LIVE, _ROWS, _DISK = 17, 3, 11
_GAP = 20
_AGAIN = 6
"""Columns after which the text of a long box is written again."""
_LEAN = 62
"""Room on the right for the last leaning name."""
_LETTERS = 17
"""Of a label."""
_LETTER, _INSET = 6, 6
"""Width of a letter in a box, and room before the first one."""
_NUMBER = re.compile(r"(?:stamp|cursor) (-?\d+)")


@dataclass(frozen=True)
class Text:
    """A word in the picture."""

    x: int
    y: int
    text: str


@dataclass(frozen=True)
class Column:
    """One step: its name on top, and its dot in the lane of who does it."""

    x: int
    middle: int
    y: int
    """Of the dot."""
    step: Step


@dataclass(frozen=True)
class Box:
    """A span of a track."""

    x: int
    y: int
    width: int
    height: int
    css: str
    strip: str
    """`live`, `rows`, `disk` or `value`."""
    span: Span
    told: str
    """The state in words."""
    texts: tuple[Text, ...]


@dataclass(frozen=True)
class Row:
    """The boxes of a track."""

    name: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Wash:
    """A band behind the lanes."""

    x: int
    width: int
    kind: str
    label: str


@dataclass(frozen=True)
class Label:
    """The name of a row, on the left."""

    y: int
    text: str
    full: str
    css: str


@dataclass(frozen=True)
class Figure:
    """A picture, ready to be written down."""

    first: int
    column: int
    """Width of a step."""
    width: int
    height: int
    lanes_top: int
    lanes_bottom: int
    labels: tuple[Label, ...]
    heads: tuple[Label, ...]
    lines: tuple[int, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    washes: tuple[Wash, ...]
    loop: tuple[int, int] | None
    """From and to of a bracket over the steps that repeat for ever."""


def slug(text: str) -> str:
    """A name as part of a class name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def draw(chapter: Chapter, lanes: Sequence[Lane], what: str, loop: int | None = None) -> Figure:
    """Lay out a chapter.

    Args:
        what: what the tracks are, e.g. `prompts`.
        loop: the step that the last one goes back to.
    """
    first = chapter.steps[0].number
    column = max(COLUMN, min(_WIDEST, _PAGE // len(chapter.steps)))
    longest = max(len(step.action) for step in chapter.steps)
    top = _ABOVE + round(longest * _PER_LETTER)
    at = {lane.key: top + place * _LANE + _LANE // 2 for place, lane in enumerate(lanes)}
    bottom = top + len(lanes) * _LANE
    labels = [Label(at[lane.key] + 4, lane.title, lane.title, f"lane-{lane.key}") for lane in lanes]
    heads: list[Label] = []
    rows: list[Row] = []
    y = bottom
    if chapter.counters:
        y += _GAP
        heads.append(Label(y - 5, "counters", "counters", ""))
        for track in chapter.counters:
            labels.append(_label(track, y + 14))
            boxes = _boxes(track.live, first, column, y + 1, _COUNTER - 2, "value")
            rows.append(Row(track.name, tuple(boxes)))
            y += _COUNTER
    if chapter.prompts:
        y += _GAP
        heads.append(Label(y - 5, what, what, ""))
        for track in chapter.prompts:
            labels.append(_label(track, y + 13))
            strips = (
                *_boxes(track.live, first, column, y, _LIVE, "live"),
                *_boxes(track.rows, first, column, y + _LIVE + 2, _ROWS, "rows"),
                *_boxes(track.disk, first, column, y + _LIVE + _ROWS + 4, _DISK, "disk"),
            )
            rows.append(Row(track.name, strips))
            y += _PROMPT if track.rows or track.disk else _LIVE + 7
    steps = chapter.steps
    return Figure(
        first=first,
        column=column,
        width=len(steps) * column + _LEAN,
        height=y + 6,
        lanes_top=top,
        lanes_bottom=bottom,
        labels=tuple(labels),
        heads=tuple(heads),
        lines=tuple(at.values()),
        columns=tuple(
            Column(
                x := (step.number - first) * column,
                x + column // 2,
                at.get(step.lane, bottom - _LANE // 2),
                step,
            )
            for step in steps
        ),
        rows=tuple(rows),
        washes=tuple(
            Wash(
                (band.first - first) * column,
                (band.last - band.first + 1) * column,
                band.kind,
                band.label,
            )
            for band in chapter.bands
        ),
        loop=None
        if loop is None
        else ((loop + 1 - first) * column, (steps[-1].number - first + 1) * column),
    )


def _label(track: Track, y: int) -> Label:
    name = track.name
    if len(name) > _LETTERS:
        # Ids differ at their ends.
        name = f"{name[:6]}…{name[-(_LETTERS - 7) :]}"
    return Label(y, name, track.name, "breach" if track.breach else "")


def _boxes(
    spans: Sequence[Span], first: int, column: int, y: int, height: int, strip: str
) -> Iterator[Box]:
    for span in spans:
        x = (span.first - first) * column
        columns = span.last - span.first + 1
        if strip == "rows":
            css, text, told = f"rows-{span.state}", "", f"{span.state} rows in the plane"
        elif strip == "value":
            css, text, told = "value", span.state, span.state
        else:
            known = state(span.state)
            number = _NUMBER.fullmatch(span.note)
            css, text = f"state-{slug(span.state)}", known.letter + (number[1] if number else "")
            told = f"{span.state}, {span.note}" if span.note else span.state
            told += "" if span.state in STATES else " (unknown)"
        width = columns * column - 2
        start = _INSET if strip == "value" else column // 2
        fits = strip != "value" or len(text) * _LETTER <= width + _INSET
        yield Box(
            x=x + 1,
            y=y,
            width=width,
            height=height,
            css=css,
            strip=strip,
            span=span,
            told=told,
            texts=tuple(
                Text(x + again * column + start, y + height - (4 if height > _DISK else 2), text)
                for again in range(0, columns, _AGAIN)
                if text and fits
            ),
        )
