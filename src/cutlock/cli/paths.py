"""The command `paths`: every transition of small models is taken on the real code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import click
import msgspec

from cutlock.bond import walks
from cutlock.bond.cover import ModelPaths, cover
from cutlock.bond.processes import Processes
from cutlock.cli.command import ExitCode, ToolCommand, current_terminal, forget_result
from cutlock.cli.models import searched, toolchain_for
from cutlock.cli.options import (
    complete_models,
    jar_option,
    json_option,
    manifest_option,
    quiet_option,
    time_option,
)
from cutlock.conformance.protocol import (
    CUTLOCK,
    CutlockStepper,
    bounds_of,
    one_thread,
    plane_host,
)
from cutlock.errors import ConfigError
from cutlock.report.progress import Progress
from cutlock.report.terminal import Terminal, listing
from cutlock.tlc.check import check_model, worst_exit
from cutlock.tlc.graph import Graph, graph_from_json
from cutlock.tlc.manifest import Manifest, Mode, Model, TimeClass, load_manifest
from cutlock.tlc.outcome import Progress as SearchProgress
from cutlock.tlc.run import Toolchain

__all__ = ["PathsReport", "paths"]

_REGRESSIONS = Path("traces", "regressions")
_SAMPLE = 4
_PLANES = {"memory": "memory", "transfer-queue": "transfer_queue"}
_PLANS = {"first": walks.first_times, "all": walks.every_step}
_NO_GRAPH = Graph((), (), ())


class PathsReport(msgspec.Struct, frozen=True, kw_only=True):
    """All models together."""

    ok: bool
    plane: str
    sample: int | None
    """Walks of each model that were replayed; None for all."""
    edges: int
    covered: int
    walks: int
    steps: int
    seconds: float
    models: tuple[ModelPaths, ...]
    exit_code: int


@click.command(
    cls=ToolCommand,
    result=PathsReport,
    examples=(
        "cutlock paths",
        "cutlock paths graph_crash --json out/paths.json",
        "cutlock paths --class full --graphs out/graphs",
    ),
    exits={
        ExitCode.OK: "the code does what the specification says, on every walk",
        ExitCode.FAILED: "a divergence, or a graph that is not the one of the manifest",
        ExitCode.USAGE: "wrong usage",
        ExitCode.TOOL_MISSING: "Java or TLC is missing",
        ExitCode.TOOL_FAILED: "a specification or the checker itself failed",
        ExitCode.OUT_OF_TIME: "out of time without a graph",
        ExitCode.INTERRUPTED: "interrupted; walks that were saved are kept",
    },
    kept="no result is written; walks that were saved are whole; run it again",
)
@click.argument("names", metavar="[MODEL]...", nargs=-1, shell_complete=complete_models(Mode.GRAPH))
@time_option("Take the graphs of")
@click.option(
    "--graphs",
    type=click.Path(file_okay=False, path_type=Path),
    help="Read the graphs that `cutlock check --graphs` wrote there, and start no TLC.",
)
@click.option(
    "--plane",
    type=click.Choice([*_PLANES]),
    default="memory",
    show_default=True,
    help="Where rows live. A real TransferQueue takes seconds to start, once for every start "
    "of a run: only a sample is replayed, in one process.",
)
@click.option(
    "--compare",
    type=click.Choice([*_PLANS]),
    default="first",
    show_default=True,
    help="Compare the states when an edge is taken for the first time, or after every step.",
)
@click.option(
    "--sample",
    "count",
    type=click.IntRange(min=1),
    help="Replay so many walks of each model, spread evenly, instead of all.  "
    f"[default with transfer-queue: {_SAMPLE}]",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=os.cpu_count(),
    show_default="one a core",
    help="Processes that replay.",
)
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=Path),
    default=_REGRESSIONS,
    show_default=True,
    help="Write the walk that leads to a divergence into this directory.",
)
@manifest_option
@jar_option
@quiet_option
@json_option
def paths(
    names: tuple[str, ...],
    time: str,
    graphs: Path | None,
    plane: str,
    compare: str,
    count: int | None,
    workers: int,
    save: Path,
    manifest_path: Path,
    jar: Path | None,
) -> PathsReport:
    """Take every edge of the models' state graphs on the real code, and compare the states.

    Walks from the initial state that together take every edge are done action by action, with
    crashes and restarts; after each edge the whole state of controller, store and disk has to
    be that of the graph.
    """
    manifest = load_manifest(manifest_path)
    models = manifest.select(names, TimeClass(time), (Mode.GRAPH,))
    source: _Source = (
        _Read(graphs) if graphs is not None else _Explored(toolchain_for(jar), manifest)
    )
    forget_result()
    if plane != "memory":
        workers, count = 1, count or _SAMPLE
    done: list[ModelPaths] = []
    codes: set[int] = set()
    terminal = current_terminal()
    bond = replace(CUTLOCK, manifest=manifest_path)
    with terminal.progress() as progress, Processes(workers, one_thread) as processes:
        watching = _Watching(progress)
        progress.total = len(models)
        for model in models:
            watching.model(model)
            graph, why_not, code = source.graph(model, watching)
            chosen = walks.cover(graph)
            watching.replay(graph)
            # One store serves all walks, one after another: a real one takes seconds to start.
            with plane_host(_PLANES[plane], bounds_of(bond.constants(model))) as host:
                found = cover(
                    replace(bond, stepper=partial(CutlockStepper, host=host)),
                    model.name,
                    graph,
                    plan=_PLANS[compare](chosen if count is None else walks.sample(chosen, count)),
                    every_action=False,
                    processes=processes,
                    save=save,
                    watch=watching.replayed,
                )
            done.append(msgspec.structs.replace(found, why_not=(*why_not, *found.why_not)))
            watching.done(done[-1])
            codes |= {code, int(not found.ok)}
    report = _total(done, plane, count, _worst(codes))
    _show(terminal, report)
    return report


class _Watching:
    """Shows what is done to which model."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._stage = ""
        self._edges = 0

    def model(self, model: Model) -> None:
        """The next one."""
        self._stage = model.name
        self._progress.show(self._stage)

    def explored(self, model: Model, progress: SearchProgress | None) -> None:
        """TLC is at work."""
        detail = "TLC" if progress is None else f"TLC, {searched(progress)}"
        self._progress.show(self._stage, detail)

    def replay(self, graph: Graph) -> None:
        """The walks begin."""
        self._edges = len(graph.edges)
        self._progress.show(self._stage, f"{self._edges:,} edges")

    def replayed(self, covered: int, walks: int) -> None:
        """So many edges and walks are done."""
        self._progress.show(self._stage, f"{covered:,} of {self._edges:,} edges, {walks:,} walks")

    def done(self, model: ModelPaths) -> None:
        """The model is finished."""
        counts = f"{model.covered:,} of {model.edges:,} edges equal, {model.diverged} differ"
        self._progress.item(f"{model.name}: {counts}, {model.seconds:.1f} s")


class _Made(NamedTuple):
    graph: Graph
    why_not: tuple[str, ...]
    exit_code: int


class _Source(Protocol):
    """Where graphs come from."""

    def graph(self, model: Model, watching: _Watching) -> _Made: ...


class _Explored:
    """TLC makes them."""

    def __init__(self, toolchain: Toolchain, manifest: Manifest) -> None:
        self._toolchain = toolchain
        self._manifest = manifest

    def graph(self, model: Model, watching: _Watching) -> _Made:
        checked = check_model(self._toolchain, self._manifest, model, watching.explored)
        result = checked.result
        return _Made(checked.graph or _NO_GRAPH, result.why_not, worst_exit([result]))


class _Read:
    """`cutlock check --graphs` has written them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def graph(self, model: Model, watching: _Watching) -> _Made:
        path = self._folder / f"{model.name}.json"
        try:
            graph = graph_from_json(path.read_bytes())
        except FileNotFoundError as error:
            raise ConfigError(
                f"{path} is not there; write it with "
                f"`cutlock check {model.name} --graphs {self._folder}`"
            ) from error
        if len(graph.nodes) == model.distinct:
            return _Made(graph, (), 0)
        why_not = f"{path} has {len(graph.nodes)} states, the manifest says {model.distinct}"
        return _Made(graph, (why_not,), 1)


def _total(
    models: Sequence[ModelPaths], plane: str, sample: int | None, exit_code: int
) -> PathsReport:
    return PathsReport(
        ok=exit_code == 0,
        plane=plane,
        sample=sample,
        edges=sum(model.edges for model in models),
        covered=sum(model.covered for model in models),
        walks=sum(model.walks for model in models),
        steps=sum(model.steps for model in models),
        seconds=round(sum(model.seconds for model in models), 2),
        models=tuple(models),
        exit_code=exit_code,
    )


def _worst(codes: set[int]) -> int:
    return min(codes - {0}, default=0)


def _show(terminal: Terminal, report: PathsReport) -> None:
    rows = [
        (
            model.name,
            f"{model.states:,}",
            f"{model.edges:,}",
            f"{model.covered:,}",
            f"{model.walks:,}",
            f"{model.seconds:.0f}",
            f"{model.rate:,.0f}",
            model.diverged or "none",
        )
        for model in report.models
    ]
    columns = ("model", "states", "edges", "equal", "walks", "s", "/s", "differ")
    terminal.show(listing("Paths", columns, rows))
    for model in report.models:
        for reason in model.why_not:
            terminal.show(f"{model.name}: {reason}")
        if (found := model.divergence) is not None:
            terminal.show(f"{model.name}: {found.text}")
            terminal.show(f"  the walk up to there: {found.trace}")
    what = "every walk" if report.sample is None else f"{report.sample} walks of each model"
    terminal.show(
        f"{report.covered:,} of {report.edges:,} edges equal in {report.seconds:.1f} s; "
        f"{what}, plane {report.plane}.",
    )
