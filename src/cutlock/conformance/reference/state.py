"""A state of the reference: the variables of the spec, as plain Python values.

Source: variables, `NoCapture` and `Nothing` of `spec/State.tla`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeVar, cast

from cutlock.conformance.observation.words import record
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.tlc.values import Function, Value

__all__ = [
    "Bundle",
    "Capture",
    "LedgerRead",
    "Prompt",
    "Prompts",
    "Rows",
    "State",
    "altered",
    "initial_state",
    "prompts_of",
]

Prompt: TypeAlias = tuple[int, Value]
"""`<<batch, member>>`."""
Prompts: TypeAlias = frozenset[Prompt]
Rows: TypeAlias = frozenset[tuple[Prompt, Value]]

K = TypeVar("K")
V = TypeVar("V")

_ARTIFACTS = ("cursor", "loader", "pool", "index", "ledger", "rows")


@dataclass(frozen=True, kw_only=True)
class LedgerRead:
    """What the last read of a cut takes: the ledger and what belongs to it."""

    led: Mapping[Prompt, str]
    idx: Mapping[Prompt, int]
    wt: Mapping[Prompt, int]
    short: Mapping[int, int]
    dropped: Prompts
    version: int
    trained: Mapping[Prompt, int]

    def value(self) -> Function:
        """As the spec has it."""
        fields = {field: _value(getattr(self, field)) for field in ("led", "idx", "wt", "short")}
        weights = record(version=self.version, trained=_value(self.trained))
        return record(**fields, dropped=self.dropped, weights=weights)


@dataclass(frozen=True, kw_only=True)
class Capture:
    """`cap`: what the open save has captured; None is not read yet."""

    cursor: int | None = None
    loader: tuple[int, int] | None = None
    """(pos, epoch)."""
    pool: Prompts | None = None
    index: Prompts | None = None
    ledger: LedgerRead | None = None
    order: tuple[Prompt, ...] = ()
    keys: Prompts = frozenset()
    rows: Rows = frozenset()
    derived: Prompts = frozenset()
    files: frozenset[Value] = frozenset()

    @cached_property
    def value(self) -> Function:
        """As the spec has it."""
        loader = None
        if self.loader is not None:
            loader = record(pos=self.loader[0], epoch=self.loader[1])
        ledger = None if self.ledger is None else self.ledger.value()
        read = {
            "cursor": self.cursor,
            "loader": loader,
            "pool": self.pool,
            "index": self.index,
            "ledger": ledger,
        }
        return record(
            **{name: _read(value) for name, value in read.items()},
            order=self.order,
            keys=self.keys,
            rows=self.rows,
            derived=self.derived,
            files=self.files,
        )


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """`disk`: the published bundle."""

    version: int
    cursor: int
    pos: int
    epoch: int
    pool: Prompts
    index: Prompts
    order: tuple[Prompt, ...]
    led: Mapping[Prompt, str]
    idx: Mapping[Prompt, int]
    wt: Mapping[Prompt, int]
    short: Mapping[int, int]
    keys: Prompts
    rows: Rows
    derived: Prompts
    trained: Mapping[Prompt, int]
    dropped: Prompts
    files: frozenset[Value]
    of: Mapping[str, int]
    """The step whose save each artifact is of."""

    @staticmethod
    def of_save(version: int) -> Mapping[str, int]:
        """`of` of a bundle whose artifacts are all of one save."""
        return dict.fromkeys(_ARTIFACTS, version)

    @cached_property
    def value(self) -> Function:
        """As the spec has it."""
        return record(**{f.name: _value(getattr(self, f.name)) for f in dataclasses.fields(self)})


@dataclass(frozen=True, kw_only=True)
class State:
    """The variables, in the order of the spec. Never changed: see `altered`."""

    up: str
    pos: int
    epoch: int
    raising: bool
    pool: Prompts
    led: Mapping[Prompt, str]
    idx: Mapping[Prompt, int]
    wt: Mapping[Prompt, int]
    task: Mapping[Prompt, str]
    gate: bool
    cursor: int
    index: Prompts
    order: tuple[Prompt, ...]
    rows: Rows
    derived: Prompts
    deferred: Prompts
    claimed: Prompts
    version: int
    short: Mapping[int, int]
    tp: str
    computed: Prompts
    sv: str
    door: str
    cap: Capture
    disk: Bundle
    saved: int
    trained: Mapping[Prompt, int]
    dropped: Prompts
    failures: int
    crashes: int

    @cached_property
    def variables(self) -> Mapping[str, Value]:
        """By name, as TLC has them; what is observed of the code is compared with this."""
        return {f.name: _value(getattr(self, f.name)) for f in dataclasses.fields(self)}


def altered(function: Mapping[K, V], keys: Iterable[K], value: V) -> Mapping[K, V]:
    """`With` of the spec: the function with that value for these arguments."""
    return {**function, **dict.fromkeys(keys, value)}


def prompts_of(bounds: Bounds) -> tuple[Prompt, ...]:
    """`Prompts` of the spec, in the order in which the loader hands them out."""
    return tuple((b, m) for b in range(1, bounds.batches + 1) for m in bounds.members)


def initial_state(bounds: Bounds) -> State:
    """`Init` of the spec."""
    prompts = prompts_of(bounds)
    nobody: Prompts = frozenset()
    no_rows: Rows = frozenset()
    start = {
        "version": 0,
        "cursor": -1,
        "pos": 0,
        "epoch": 0,
        "pool": nobody,
        "index": nobody,
        "order": (),
        "led": dict.fromkeys(prompts, "none"),
        "idx": dict.fromkeys(prompts, -1),
        "wt": dict.fromkeys(prompts, -1),
        "short": dict.fromkeys(bounds.steps, 0),
        "rows": no_rows,
        "derived": nobody,
        "trained": dict.fromkeys(prompts, 0),
        "dropped": nobody,
    }
    nothing = Bundle(
        **start,  # type: ignore[arg-type]
        keys=nobody,
        files=frozenset(),
        of=dict.fromkeys(_ARTIFACTS, -1),
    )
    return State(
        **start,  # type: ignore[arg-type]
        up="down",
        raising=False,
        task=dict.fromkeys(prompts, "none"),
        gate=False,
        deferred=nobody,
        claimed=nobody,
        tp="idle",
        computed=nobody,
        sv="none",
        door="open",
        cap=Capture(),
        disk=nothing,
        saved=-1,
        failures=0,
        crashes=0,
    )


def _value(value: object) -> Value:
    match value:
        case Capture() | Bundle():
            return value.value
        case Mapping():
            return Function(value)
    return cast(Value, value)


def _read(value: Value | None) -> Function:
    return record(set=False) if value is None else record(set=True, v=value)
