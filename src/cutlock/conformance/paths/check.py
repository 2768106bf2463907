"""The check of a model by paths: its graph is covered, replayed, and accounted for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from cutlock.conformance.paths.cover import Planned
from cutlock.conformance.paths.replay import Done, Replayers
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.planes import PlaneHost
from cutlock.tlc.action import ActionCall
from cutlock.tlc.graph import Graph
from cutlock.tlc.itf import Counterexample, Step, to_itf

__all__ = ["Divergence", "ModelPaths", "PathsReport", "check_paths", "total", "trace_of"]

_BROKEN = "conformance"  # stands where a counterexample names its property


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The shortest walk on which specification and code have parted."""

    step: int
    """From 1; 0 is the initial state."""
    action: str
    """With its arguments."""
    variables: tuple[str, ...]
    """Those that differ; none if the code does not do the action, or breaks."""
    text: str
    """Both values of each, and the likely cause."""
    trace: str | None
    """The file with the walk up to there, if it was saved."""


class ModelPaths(msgspec.Struct, frozen=True, kw_only=True):
    """What the replay of one graph has shown."""

    name: str
    states: int
    edges: int
    covered: int
    """Edges after which the whole state of the code was that of the graph."""
    walks: int
    steps: int
    """Actions that the code has done, in all walks."""
    seconds: float
    """Of the replay alone."""
    diverged: int
    """Walks on which the two have parted."""
    divergence: Divergence | None
    why_not: tuple[str, ...] = ()
    """Why the graph is not the one that the manifest means."""

    @property
    def ok(self) -> bool:
        """Whether nothing differs; of a sample that says little about edges left out."""
        return not self.diverged and not self.why_not

    @property
    def rate(self) -> float:
        """Edges a second."""
        return self.covered / max(self.seconds, 1e-9)


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


def check_paths(
    name: str,
    graph: Graph,
    bounds: Bounds,
    plan: Sequence[Planned],
    replayers: Replayers,
    *,
    host: PlaneHost | None = None,
    save: Path | None = None,
    watch: Callable[[int, int], None] = lambda covered, walks: None,
) -> ModelPaths:
    """Replay the walks of a plan and count.

    Args:
        name: of the model.
        host: see `Replayers.replay`.
        save: directory for the walk of a divergence.
        watch: told how many edges and walks are done.

    Raises:
        ToolError: a process has died.
    """
    covered: set[int] = set()
    diverged: list[Done] = []
    walks = steps = 0
    began = time.monotonic()

    def on_done(done: Done) -> None:
        nonlocal walks, steps
        walks, steps = walks + 1, steps + max(0, done.steps)
        planned = plan[done.number]
        covered.update(planned.path[at] for at in planned.compared if at < done.steps)
        if done.diverged is not None:
            diverged.append(done)
        watch(len(covered), walks)

    replayers.replay(graph, bounds, plan, on_done, host)
    return ModelPaths(
        name=name,
        states=len(graph.nodes),
        edges=len(graph.edges),
        covered=len(covered),
        walks=walks,
        steps=steps,
        seconds=round(time.monotonic() - began, 2),
        diverged=len(diverged),
        divergence=_shortest(name, graph, plan, diverged, save),
    )


def _shortest(
    name: str,
    graph: Graph,
    plan: Sequence[Planned],
    diverged: Sequence[Done],
    save: Path | None,
) -> Divergence | None:
    if not diverged:
        return None
    done = min(diverged, key=lambda done: (done.steps, done.number))
    at = done.diverged
    assert at is not None
    step = done.steps + 1
    trace = None
    if save is not None:
        path = save / f"{name}_{at.call.name}_{step}.itf.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_itf(trace_of(name, graph, plan[done.number], step)))
        trace = str(path)
    return Divergence(
        step=step, action=str(at.call), variables=at.variables, text=at.text, trace=trace
    )


def trace_of(name: str, graph: Graph, planned: Planned, steps: int) -> Counterexample:
    """The first steps of a walk as a trace: what the specification says of them."""
    edges = [graph.edges[edge] for edge in planned.path]
    first = Step(ActionCall("Init"), graph.nodes[edges[0].source].state)
    rest = [Step(edge.action, graph.nodes[edge.target].state) for edge in edges[:steps]]
    return Counterexample(name, _BROKEN, (first, *rest))


def total(
    models: Sequence[ModelPaths], plane: str, sample: int | None, exit_code: int
) -> PathsReport:
    """All of them together."""
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
