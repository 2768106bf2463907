"""`cutlock bench`, as far as it needs what only a clone has: the groups and their results."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from bench import GROUPS, described
from bench.harness import Measurement, Session, Size, figure
from bench.machine import describe_machine
from bench.results import Results, kept_results, missed, write_results
from cutlock.errors import ConfigError
from cutlock.report.terminal import Progress, table

__all__ = ["listed", "run", "select", "write_page"]

_console = Console(markup=False, emoji=False, highlight=False)
_errors = Console(stderr=True, markup=False, emoji=False, highlight=False)


def listed() -> None:
    """Print the groups."""
    _console.print(table("Groups", ("group", "measures"), [(g, described(g)[0]) for g in GROUPS]))


def select(names: Sequence[str]) -> tuple[str, ...]:
    """The named groups in their usual order, or all.

    Raises:
        ConfigError: a name is no group's.
    """
    unknown = sorted(set(names) - set(GROUPS))
    if unknown:
        raise ConfigError(
            f"no group is called {', '.join(map(repr, unknown))}; choose from {', '.join(GROUPS)}"
        )
    return tuple(group for group in GROUPS if not names or group in names)


def run(
    names: Sequence[str], size: Size, *, json_path: Path | None, to_stdout: bool, keep: bool
) -> int:
    """Measure groups, show the figures, and return the exit code: 1 if a goal was missed."""
    results = []
    progress = Progress(_errors)
    try:
        for group in select(names):
            results.append(_measured(group, size, progress))
            if keep:
                write_results(results[-1])
    finally:
        progress.close()
    data = msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n"
    if json_path is not None:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_bytes(data)
    if to_stdout:
        print(data.decode(), end="")
    else:
        for result in results:
            _show(result)
    return 1 if missed(results) else 0


def write_page(folder: Path) -> None:
    """Write the page and its plots from the results that are kept."""
    from bench.page import page
    from bench.plots import draw

    results = kept_results(GROUPS)
    for result in results:
        draw(result, folder / "performance")
    (folder / "performance.md").write_text(page(results))
    _console.print(f"{folder / 'performance.md'}: {len(results)} groups", soft_wrap=True)


def _measured(group: str, size: Size, progress: Progress) -> Results:
    machine = describe_machine()
    began = time.monotonic()
    session = Session(size, lambda text: progress.show(group, text))
    progress.show(group)
    measurements: list[Measurement] = []
    for measurement in importlib.import_module(f"bench.{group}").measure(session):
        measurements.append(measurement)
        progress.show(group, f"{measurement.name}: {measurement.ratio:g}")
    return Results(
        group=group,
        command=f"cutlock bench {group}{'' if size is Size.FULL else f' --{size}'}",
        size=size,
        machine=machine,
        seconds=round(time.monotonic() - began, 1),
        measurements=tuple(measurements),
    )


def _show(results: Results) -> None:
    rows = [
        (
            m.title,
            f"{figure(m.ours)} {m.unit}",
            f"{figure(m.alternative)} {m.unit}",
            figure(m.ratio),
            "" if m.goal is None else f"{m.goal}{'' if m.holds else ' NO'}",
        )
        for m in results.measurements
    ]
    columns = ("measurement", "ours", "beside", "ratio", "goal")
    _console.print(table(f"{results.group}: {described(results.group)[0]}", columns, rows))
