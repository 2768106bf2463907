"""What a run of TLC has shown."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from cutlock.tlc.values import Value

__all__ = ["COUNTEREXAMPLES", "Coverage", "Outcome", "Progress", "Step", "Verdict"]


class Verdict(enum.StrEnum):
    """How a run ended."""

    SUCCESS = "success"
    INVARIANT = "invariant"
    DEADLOCK = "deadlock"
    TEMPORAL = "temporal"
    ACTION_PROPERTY = "action_property"
    """Also the safety part of a refinement."""
    ASSUMPTION = "assumption"
    EVALUATION_ERROR = "evaluation_error"
    PARSE_ERROR = "parse_error"
    CONFIG_ERROR = "config_error"
    TOOL_ERROR = "tool_error"
    BUDGET = "budget"


COUNTEREXAMPLES = frozenset(
    {Verdict.INVARIANT, Verdict.DEADLOCK, Verdict.TEMPORAL, Verdict.ACTION_PROPERTY}
)
"""The verdicts that come with a behaviour which shows them."""


@dataclass(frozen=True)
class Step:
    """One state of a counterexample and the action that led to it."""

    action: str
    """As TLC names it, without arguments; `Init` for the first state."""
    state: Mapping[str, Value]


@dataclass(frozen=True)
class Coverage:
    """How often an action was taken."""

    distinct: int
    """Times that it led to a new state."""
    total: int


@dataclass(frozen=True)
class Progress:
    """How far a run has come."""

    depth: int
    generated: int
    distinct: int
    queue: int


@dataclass(frozen=True)
class Outcome:
    """What one run of TLC has shown."""

    verdict: Verdict
    property: str | None = None
    """The violated one, if TLC names it; an unnamed part of a property has its position."""
    generated: int | None = None
    distinct: int | None = None
    depth: int | None = None
    queue: int | None = None
    """States that were found and not explored; 0 if the search was complete."""
    coverage: Mapping[str, Coverage] = field(default_factory=dict)
    trace: tuple[Step, ...] = ()
    loop: int | None = None
    """Index of the step that the last one goes back to, in a temporal counterexample."""
    stuttering: bool = False
    """The counterexample stays in its last state for ever; then `loop` is its index."""
    liveness: bool = False
    """A temporal property was checked."""
    version: str = ""
    messages: tuple[str, ...] = ()
    """Errors in TLC's words, and what does not fit together in its output."""
    warnings: tuple[str, ...] = ()
    """What TLC advises against, like symmetry together with a temporal property."""
    printed: tuple[str, ...] = ()
    """Lines that the specification printed."""
    exit_code: int | None = None
    """None if the run was stopped at its limit."""
    seconds: float = 0.0
