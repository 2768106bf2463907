"""`docs/performance.md`, made from the results that are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench import described
from bench.harness import Measurement, figure
from bench.results import Results, missed

__all__ = ["page", "plot_name", "series"]

_HEAD = """\
# Performance

Written by `cutlock bench --page docs` from `bench/results/`; do not edit. `make bench` measures
everything anew.

Each figure stands beside its alternative: both are measured in turn within one run, a ratio is
taken in each turn, and the table gives its median and, in brackets, its quartiles. Ratios carry
over from machine to machine far better than times do; the times are those of the machine named
with each group. A ratio is ours to the alternative's: of times, less is better; of rates (1/s),
more is.
"""


def page(results: Sequence[Results]) -> str:
    """The whole page."""
    parts = [_HEAD, "## Goals\n", _goals(results)]
    parts += [_group(result) for result in results]
    return "\n".join(parts)


def plot_name(result: Results, name: str) -> str:
    """File of the plot of one series."""
    return f"{result.group}_{name}.svg"


def series(result: Results) -> dict[str, list[Measurement]]:
    """Measurements of one name that differ in a number: what a plot shows."""
    by_name: dict[str, list[Measurement]] = {}
    for measurement in result.measurements:
        if [type(value) for value in measurement.at.values()] == [int]:
            by_name.setdefault(measurement.name, []).append(measurement)
    return {name: found for name, found in by_name.items() if len(found) > 1}


def _goals(results: Sequence[Results]) -> str:
    judged = [(r, m) for r in results for m in r.measurements if m.goal is not None]
    failed = missed(results)
    lines = [f"{len(judged) - len(failed)} of {len(judged)} goals are reached.\n"]
    if failed:
        lines.append("Missed:\n")
        lines += _table(
            ("measurement", "goal", "ratio", "why"),
            (
                (f"{r.group}: {m.title}", str(m.goal), _ratio(m), m.note or _why(r))
                for r, m in judged
                if not m.holds
            ),
        )
    return "\n".join(lines) + "\n"


def _why(result: Results) -> str:
    return f"see [{result.group}](#{result.group})"


def _group(result: Results) -> str:
    title, text = described(result.group)
    machine = result.machine
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    loads = ", ".join(f"{load:.1f}" for load in machine.load)
    lines = [
        f"## {result.group}\n",
        f"{title}.\n\n{text}\n",
        *[f"![{name}](performance/{plot_name(result, name)})" for name in series(result)],
        "",
        *_table(
            ("measurement", "ours", "alternative", "unit", "ratio", "goal"),
            (
                (m.title, figure(m.ours), figure(m.alternative), m.unit, _ratio(m), _goal(m))
                for m in result.measurements
            ),
        ),
        "",
        *_words(result.measurements),
        "",
        f"`{result.command}`, {result.seconds:.0f} s, {_turns(result.measurements)} repetitions. "
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_gib:g} GiB, {machine.system}, "
        f"Python {machine.python}, {packages}; load at the start {loads}.",
    ]
    return "\n".join(lines) + "\n"


def _words(measurements: Iterable[Measurement]) -> Iterable[str]:
    """What each name means, once."""
    said: dict[str, str] = {}
    for m in measurements:
        note = f" ({m.note})" if m.note else ""
        said.setdefault(m.name, f"- `{m.name}`: {m.what}. Beside it: {m.beside}{note}.")
    return said.values()


def _turns(measurements: Sequence[Measurement]) -> str:
    turns = [m.repetitions for m in measurements]
    low, high = min(turns), max(turns)
    return f"{low}" if low == high else f"{low} to {high}"


def _ratio(m: Measurement) -> str:
    return f"{figure(m.ratio)} ({figure(m.spread[0])} to {figure(m.spread[1])})"


def _goal(m: Measurement) -> str:
    return "" if m.goal is None else f"{m.goal}, {'reached' if m.holds else '**missed**'}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = (columns, ("---", *["---:"] * (len(columns) - 1)), *rows)
    return [f"| {' | '.join(line)} |" for line in lines]
