"""What pages are drawn from, and what `cutlock show --json` writes.

A story is a sequence of numbered steps. What is true over several of them is a span: the owner
of a prompt, the value of a counter, an open window. First and last step are both part of it.
"""

from __future__ import annotations

import msgspec

__all__ = [
    "Band",
    "Breach",
    "Bundle",
    "Change",
    "Chapter",
    "Fact",
    "Part",
    "Restart",
    "RunPage",
    "Save",
    "Span",
    "Start",
    "Step",
    "Story",
    "Track",
    "Trained",
]


class Fact(msgspec.Struct, frozen=True):
    """A name and a value."""

    name: str
    value: str


class Change(msgspec.Struct, frozen=True):
    """What a step has changed."""

    what: str
    before: str
    after: str


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One action."""

    number: int
    action: str
    lane: str
    """Key of the lane, see `lanes.LANES`."""
    meaning: str
    """What the action does, in a sentence."""
    arguments: tuple[Fact, ...] = ()
    changes: tuple[Change, ...] = ()
    broken: tuple[str, ...] = ()
    """What does not hold after it."""
    where: str = ""
    """File and line of a log."""
    time_s: float | None = None
    """Seconds since the start of its process."""


class Span(msgspec.Struct, frozen=True):
    """What holds from one step to another."""

    first: int
    last: int
    state: str
    """Key of the state, see `lanes.STATES`; of a counter, its value."""
    note: str = ""
    """What else is known, e.g. the stamp."""


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """Something that has a state at every step: a prompt, a counter, a waiting task."""

    name: str
    live: tuple[Span, ...]
    rows: tuple[Span, ...] = ()
    """Of a prompt: whether its rows are in the plane."""
    disk: tuple[Span, ...] = ()
    """Of a prompt: its owner in the published bundle."""
    breach: bool = False
    """Whether it is part of what contradicts."""


class Band(msgspec.Struct, frozen=True):
    """Something that goes on beside the steps: a window, a dead process, a loop."""

    first: int
    last: int
    kind: str
    label: str


class Breach(msgspec.Struct, frozen=True, kw_only=True):
    """A broken promise."""

    step: int
    promise: str
    """P1 to P10, or empty."""
    promise_text: str
    check: str
    """The invariant or check that has noticed it."""
    meaning: str
    """What the check asks for, in words."""
    contradictions: tuple[str, ...]
    """Which values do not go together."""
    consequence: str
    """What becomes of it, after a restart above all."""


class Chapter(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that are drawn in one picture."""

    title: str
    steps: tuple[Step, ...]
    prompts: tuple[Track, ...]
    counters: tuple[Track, ...]
    bands: tuple[Band, ...]
    resting: str = ""
    """Prompts that are left out of the picture because nothing becomes of them."""


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """A page of steps."""

    kind: str
    """`trace` or `log`."""
    title: str
    """What has happened, in one sentence."""
    lead: str
    """Where it is from, in a sentence or two."""
    source: str
    facts: tuple[Fact, ...]
    notes: tuple[str, ...]
    """What is missing, and what that means for the page."""
    breaches: tuple[Breach, ...]
    chapters: tuple[Chapter, ...]
    loop: int | None = None
    """The step that the last one goes back to, if the behaviour never ends."""


class Trained(msgspec.Struct, frozen=True):
    """One training step of a run."""

    step: int
    reward_mean: float
    loss: float
    groups: int
    staleness_max: int
    """Versions of the trainer between the start of a rollout and its use, at most."""


class Save(msgspec.Struct, frozen=True):
    """One published save; times in milliseconds."""

    bundle: str
    start: int
    """Number of the start of the controller that has made it."""
    drain_ms: float
    exclusive_ms: float
    rest_ms: float
    kept: bool
    """Whether its bundle is still there."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One start of the controller; times on its own clock, from its first record."""

    number: int
    seconds: float
    ended: str
    """How it has ended, in words."""
    alive: bool
    """Whether it has come to its end, or has not ended yet."""
    steps: int
    """Training steps that it has done."""
    resumed_from: str
    """The bundle; empty for a start from nothing."""
    saves: tuple[float, ...]
    """When its bundles were published."""
    failed_saves: tuple[float, ...]


class Restart(msgspec.Struct, frozen=True):
    """A restart, on the axis of training steps."""

    start: int
    step: int
    """Training goes on with this step."""


class Part(msgspec.Struct, frozen=True):
    """A number of prompts with the same fate."""

    fate: str
    """Key of the state, see `lanes.STATES`."""
    count: int
    reasons: tuple[Fact, ...] = ()
    prompts: tuple[str, ...] = ()
    """Some of them, where a reader may want to look them up."""


class Bundle(msgspec.Struct, frozen=True):
    """A bundle that can be resumed from."""

    name: str
    megabytes: float
    verdict: str


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """The page of a run."""

    title: str
    lead: str
    source: str
    ok: bool
    facts: tuple[Fact, ...]
    notes: tuple[str, ...]
    problems: tuple[str, ...]
    prompts: int
    """Occurrences: prompts of the data set times epochs."""
    fates: tuple[Part, ...]
    trained: tuple[Trained, ...]
    restarts: tuple[Restart, ...]
    starts: tuple[Start, ...]
    saves: tuple[Save, ...]
    bundles: tuple[Bundle, ...]
