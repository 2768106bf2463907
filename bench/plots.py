"""SVG plots of results: one per measurement that was taken at several sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.harness import Measurement
from bench.page import plot_name, series
from bench.results import Results
from cutlock.errors import ConfigError

__all__ = ["draw"]


def draw(result: Results, folder: Path) -> list[Path]:
    """Draw all plots of a group; equal results give equal files.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ConfigError(
            "plots need matplotlib; install the extra: pip install 'cutlock[bench]'"
        ) from error
    mpl.use("svg")
    # Text stays text, and names of elements do not change from one time to the next.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cutlock"})
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, measurements in series(result).items():
        paths.append(folder / plot_name(result, name))
        _draw(name, measurements, paths[-1])
    return paths


def _draw(name: str, measurements: Sequence[Measurement], path: Path) -> None:
    from matplotlib.figure import Figure

    first = measurements[0]
    ((key, _),) = first.at.items()
    sizes = [float(m.at[key]) for m in measurements]
    figure = Figure(figsize=(7, 3), layout="constrained")
    times, ratios = figure.subplots(1, 2)
    times.plot(sizes, [m.ours for m in measurements], "o-", color="#1f5fa8", label="ours")
    times.plot(
        sizes, [m.alternative for m in measurements], "s--", color="#8a8a8a", label="alternative"
    )
    times.set(xscale="log", yscale="log", xlabel=key, ylabel=first.unit, title=name)
    times.legend(frameon=False)
    low = [m.ratio - m.spread[0] for m in measurements]
    high = [m.spread[1] - m.ratio for m in measurements]
    ratios.errorbar(
        sizes, [m.ratio for m in measurements], [low, high], fmt="o-", color="#1f5fa8", capsize=3
    )
    if first.goal is not None:
        ratios.axhline(first.goal.limit, color="#b03030", linestyle=":", label=f"goal {first.goal}")
        ratios.legend(frameon=False)
    ratios.set(xscale="log", xlabel=key, title="ratio, with quartiles")
    ratios.set_ylim(bottom=0)
    for axes in (times, ratios):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
