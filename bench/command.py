"""`cutlock bench`, as far as it needs what only a clone has: the groups and their results."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from pathlib import Path

from bench import GROUPS, described
from bench.harness import Measurement, Session, Size, figure
from bench.machine import describe_machine
from bench.results import BenchReport, Results, kept_results, missed, write_results
from cutlock.cli.command import current_terminal, write_result
from cutlock.errors import ConfigError
from cutlock.report.progress import Progress
from cutlock.report.terminal import Terminal, table

__all__ = ["listed", "run", "select", "write_page"]


def listed() -> None:
    """Print the groups."""
    current_terminal().show(
        table("Groups", ("group", "measures"), [(g, described(g)[0]) for g in GROUPS])
    )


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


def run(names: Sequence[str], size: Size, *, keep: bool) -> int:
    """Measure groups, show the figures, and return the exit code: 1 if a goal was missed."""
    terminal = current_terminal()
    results = []
    with terminal.progress() as progress:
        groups = select(names)
        progress.total = len(groups)
        for group in groups:
            results.append(_measured(group, size, progress))
            progress.item(f"{group}: {len(results[-1].measurements)} figures")
            if keep:
                write_results(results[-1])
    for result in results:
        _show(terminal, result)
    report = BenchReport(ok=not missed(results), groups=tuple(results))
    write_result(report)
    return 0 if report.ok else 1


def write_page(folder: Path) -> None:
    """Write the page and its plots from the results that are kept."""
    from bench.page import page
    from bench.plots import draw

    results = kept_results(GROUPS)
    for result in results:
        draw(result, folder / "performance")
    (folder / "performance.md").write_text(page(results))
    current_terminal().show(f"{folder / 'performance.md'}: {len(results)} groups")


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


def _show(terminal: Terminal, results: Results) -> None:
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
    terminal.show(table(f"{results.group}: {described(results.group)[0]}", columns, rows))
