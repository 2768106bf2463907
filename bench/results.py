"""The results of a group, and where they are kept."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from bench.harness import Measurement, Size
from bench.machine import Machine
from cutlock.cli.command import write_json

__all__ = ["KEPT", "BenchReport", "Results", "kept_results", "missed", "write_results"]

KEPT = Path(__file__).parent / "results"
"""One file per group; the page is made from them."""


class Results(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one run of a group has measured."""

    group: str
    command: str
    """The one that measures this again."""
    size: Size
    machine: Machine
    seconds: float
    measurements: tuple[Measurement, ...]


class BenchReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of `cutlock bench` has measured."""

    ok: bool
    """Every goal is reached."""
    groups: tuple[Results, ...]


def write_results(results: Results, folder: Path = KEPT) -> None:
    """Keep the results of a group in place of its earlier ones."""
    write_json(folder / f"{results.group}.json", results)


def kept_results(groups: Iterable[str], folder: Path = KEPT) -> list[Results]:
    """What is kept of these groups, in their order; a group that was never kept is left out."""
    paths = [folder / f"{group}.json" for group in groups]
    return [msgspec.json.decode(path.read_bytes(), type=Results) for path in paths if path.exists()]


def missed(results: Iterable[Results]) -> list[Measurement]:
    """The measurements that do not reach their goals."""
    return [m for result in results for m in result.measurements if m.holds is False]
