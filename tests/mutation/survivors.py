"""The mutants that may survive, each with the reason; the list is `survivors.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

FILE = Path(__file__).with_name("survivors.toml")


class Change(msgspec.Struct, frozen=True, order=True):
    """What a mutant is, in a form that outlives edits elsewhere in its function."""

    function: str
    """Dotted, without the package: `ledger.Ledger.restore`."""
    was: str
    """The lines that the mutant replaces, in one line."""
    now: str
    """What stands there instead; empty if nothing does."""


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why some mutants cannot be told from the code, or need not be."""

    why: str
    mutants: tuple[Change, ...]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: tuple[Reason, ...]


def accepted() -> tuple[Reason, ...]:
    return msgspec.convert(tomllib.loads(FILE.read_text()), _File).reason


def changes(reasons: Iterable[Reason]) -> list[Change]:
    return [change for reason in reasons for change in reason.mutants]


def markdown(reasons: Iterable[Reason]) -> Iterator[str]:
    """The list as it stands in the documentation."""
    for reason in reasons:
        yield f"**{reason.why}**"
        yield ""
        for change in reason.mutants:
            now = f"`{change.now}`" if change.now else "nothing"
            yield f"- `{change.function}`: `{change.was}` → {now}"
        yield ""
