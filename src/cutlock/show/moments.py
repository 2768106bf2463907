"""What is true at one moment, in words, and what has changed from one moment to the next.

Traces and logs come to the same kind of moment, so that both are told and drawn alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from cutlock.report.pages.data import Band, Change, Chapter, Span, Step, Track

__all__ = [
    "HELD",
    "NOTHING",
    "Moment",
    "Owner",
    "Told",
    "changes",
    "chapter",
    "listed",
    "with_changes",
]

HELD = "save holds: "
"""Begins the names of what a save holds in its hands; that it lets go of it is not told."""
_NAMED = 6
"""Names of one list that are spelled out."""


@dataclass(frozen=True)
class Owner:
    """Who owns a prompt, and what else is known of it, e.g. its stamp."""

    state: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.state} ({self.note})" if self.note else self.state


T = TypeVar("T")

NOTHING = Owner("")
"""Nobody knows of the prompt: there is no process, or no bundle."""
_ROWS = {name: Owner(name) for name in ("", "all", "part")}
_TOLD = {"": "no", "all": "all", "part": "a part"}


@dataclass(frozen=True)
class Moment:
    """A state in words; an empty value is not shown."""

    owners: Mapping[str, Owner]
    """By prompt."""
    rows: Mapping[str, str] = field(default_factory=dict)
    """By prompt: `all` or `part` of its rows are in the plane."""
    disk: Mapping[str, Owner] = field(default_factory=dict)
    """By prompt: its owner in the published bundle."""
    counters: Mapping[str, str] = field(default_factory=dict)
    """Numbers that have a row of their own."""
    details: Mapping[str, str] = field(default_factory=dict)
    """What is told where it changes, and has no row."""
    bands: Mapping[str, str] = field(default_factory=dict)
    """What goes on, by kind, with its label."""


@dataclass(frozen=True)
class Told:
    """A step, and the moment after it."""

    step: Step
    moment: Moment


def changes(before: Moment, after: Moment) -> Iterator[Change]:
    """What has changed, prompts that change alike taken together."""
    yield from _owners("", before.owners, after.owners)
    yield from _owners("in the bundle on disk, ", before.disk, after.disk)
    for prompts, was, now in _alike(before.rows, after.rows, ""):
        yield Change(f"rows in the plane of {listed(prompts)}", _TOLD[was], _TOLD[now])
    yield from _values(before.counters, after.counters)
    yield from _values(before.details, after.details)


def _values(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    for name in {**before, **after}:
        was, now = before.get(name, ""), after.get(name, "")
        let_go = not now and name.startswith((HELD, "save: "))
        if was != now and not let_go:
            yield Change(name, was or "none", now or "none")


def _owners(
    prefix: str, before: Mapping[str, Owner], after: Mapping[str, Owner]
) -> Iterator[Change]:
    for prompts, was, now in _alike(before, after, NOTHING):
        yield Change(prefix + listed(prompts), str(was) or "nothing", str(now) or "nothing")


def _alike(
    before: Mapping[str, T], after: Mapping[str, T], nothing: T
) -> Iterator[tuple[list[str], T, T]]:
    """The prompts that change, those together that change alike."""
    if before is after:
        return
    alike: dict[tuple[T, T], list[str]] = {}
    for prompt in after if before.keys() == after.keys() else {**before, **after}:
        was, now = before.get(prompt, nothing), after.get(prompt, nothing)
        if was is not now and was != now:
            alike.setdefault((was, now), []).append(prompt)
    for (was, now), prompts in alike.items():
        yield prompts, was, now


def listed(names: Iterable[str]) -> str:
    """Names for a sentence; of many, the first ones and a number."""
    found = list(names)
    if len(found) <= _NAMED:
        return ", ".join(found) or "none"
    return f"{', '.join(found[: _NAMED - 1])} and {len(found) - _NAMED + 1} more"


def chapter(
    title: str, told: Sequence[Told], breach: Iterable[str] = (), *, resting: bool = False
) -> Chapter:
    """Steps that are drawn together.

    Args:
        told: in their order; the first one's moment is where the picture begins.
        breach: prompts and counters that contradict each other.
        resting: leave out the prompts of which nothing becomes in these steps.
    """
    numbers = [one.step.number for one in told]
    moments = [one.moment for one in told]
    contradicting = frozenset(breach)
    prompts = list(dict.fromkeys(prompt for moment in moments for prompt in moment.owners))
    tracks = [
        Track(
            name=prompt,
            live=_spans(numbers, [m.owners.get(prompt, NOTHING) for m in moments]),
            rows=_spans(numbers, [_ROWS[m.rows.get(prompt, "")] for m in moments]),
            disk=_spans(numbers, [m.disk.get(prompt, NOTHING) for m in moments]),
            breach=prompt in contradicting,
        )
        for prompt in prompts
    ]
    drawn = [t for t in tracks if not resting or t.breach or _moves(t, numbers)]
    names = dict.fromkeys(name for moment in moments for name in moment.counters)
    counters = [
        Track(
            name=name,
            live=_spans(numbers, [Owner(m.counters.get(name, "")) for m in moments]),
            breach=name in contradicting,
        )
        for name in names
    ]
    return Chapter(
        title=title,
        steps=tuple(one.step for one in told),
        prompts=tuple(drawn),
        counters=tuple(track for track in counters if track.live),
        bands=tuple(_bands(numbers, moments)),
        resting=_resting(tracks, drawn),
    )


def _spans(numbers: Sequence[int], owners: Sequence[Owner]) -> tuple[Span, ...]:
    spans: list[Span] = []
    before = NOTHING
    for number, owner in zip(numbers, owners, strict=True):
        if owner.state and (owner is before or owner == before):
            spans[-1] = Span(spans[-1].first, number, owner.state, owner.note)
        elif owner.state:
            spans.append(Span(number, number, owner.state, owner.note))
        before = owner
    return tuple(spans)


def _moves(track: Track, numbers: Sequence[int]) -> bool:
    """Whether anything becomes of a prompt."""
    return any(
        len(spans) > 1 or (spans and (spans[0].first, spans[0].last) != (numbers[0], numbers[-1]))
        for spans in (track.live, track.rows)
    )


def _bands(numbers: Sequence[int], moments: Sequence[Moment]) -> Iterator[Band]:
    for kind in dict.fromkeys(kind for moment in moments for kind in moment.bands):
        labels = [Owner(moment.bands.get(kind, "")) for moment in moments]
        for span in _spans(numbers, labels):
            yield Band(span.first, span.last, kind, span.state)


def _resting(tracks: Sequence[Track], drawn: Sequence[Track]) -> str:
    moving = {track.name for track in drawn}
    counts: dict[str, int] = {}
    for track in tracks:
        if track.name not in moving:
            state = track.live[-1].state if track.live else "not known yet"
            counts[state] = counts.get(state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def with_changes(told: Sequence[Told], start: Moment | None = None) -> list[Told]:
    """The same steps, each with what it has changed."""
    found = []
    before = start
    for one in told:
        if before is not None:
            changed = tuple(changes(before, one.moment))
            one = replace(one, step=msgspec.structs.replace(one.step, changes=changed))
        found.append(one)
        before = one.moment
    return found
