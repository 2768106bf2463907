"""The check of a model by walks: its graph is covered, replayed, and accounted for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cutlock.bond.subject import Subject
from cutlock.bond.walk import INITIAL, Explain, Walk, WalkError, take
from cutlock.bond.walks import Planned
from cutlock.tlc.action import ActionCall
from cutlock.tlc.graph import Graph
from cutlock.tlc.itf import Counterexample, Step, to_itf
from cutlock.tlc.values import Value

__all__ = [
    "Diverged",
    "Divergence",
    "Done",
    "ModelPaths",
    "account",
    "take_walk",
    "trace_of",
]

_BROKEN = "conformance"  # stands where a counterexample names its property


@dataclass(frozen=True)
class Diverged:
    """Where a walk and the code have parted."""

    call: ActionCall
    variables: tuple[str, ...]
    """Those that differ; none if the code does not do the action, or breaks."""
    text: str
    """All of it, for a person."""


@dataclass(frozen=True)
class Done:
    """What came of one walk."""

    number: int
    """Its place in the plan, from 0."""
    steps: int
    """Actions that were done before anything differed."""
    diverged: Diverged | None = None
    """What happened in the next step; if `steps` is -1, in the initial state."""


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


def take_walk(
    number: int,
    steps: Walk,
    subject: Subject,
    *,
    start: Mapping[str, Value] | None = None,
    explain: Explain = lambda call, variables: "",
) -> Done:
    """Do one walk to its end or to the first difference.

    Args:
        subject: in its initial state.
    """
    try:
        take(steps, subject, start=start, explain=explain)
    except WalkError as error:
        diverged = Diverged(error.call, tuple(sorted(error.variables)), str(error))
        return Done(number, error.number - 1, diverged)
    return Done(number, len(steps))


def account(
    name: str,
    graph: Graph,
    plan: Sequence[Planned],
    replay: Callable[[Callable[[Done], None]], None],
    *,
    save: Path | None = None,
    watch: Callable[[int, int], None] = lambda covered, walks: None,
    on_divergence: Callable[[Counterexample, Diverged], None] = lambda walk, diverged: None,
) -> ModelPaths:
    """Have the walks of a plan replayed, and count.

    Args:
        name: of the model.
        replay: does all walks, and tells of every one, in any order.
        save: directory for the walk of a divergence.
        watch: told how many edges and walks are done.
        on_divergence: told of the shortest walk on which something differs, up to there.
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

    replay(on_done)
    seconds = time.monotonic() - began
    divergence = None
    if diverged:
        shortest = min(diverged, key=lambda done: (done.steps, done.number))
        at, step = shortest.diverged, shortest.steps + 1
        assert at is not None
        walk = trace_of(name, graph, plan[shortest.number], step)
        on_divergence(walk, at)
        divergence = Divergence(
            step=step,
            action=str(at.call),
            variables=at.variables,
            text=at.text,
            trace=_saved(walk, at, save),
        )
    return ModelPaths(
        name=name,
        states=len(graph.nodes),
        edges=len(graph.edges),
        covered=len(covered),
        walks=walks,
        steps=steps,
        seconds=round(seconds, 2),
        diverged=len(diverged),
        divergence=divergence,
    )


def _saved(walk: Counterexample, at: Diverged, folder: Path | None) -> str | None:
    if folder is None:
        return None
    path = folder / f"{walk.model}_{at.call.name}_{len(walk.steps) - 1}.itf.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_itf(walk))
    return str(path)


def trace_of(name: str, graph: Graph, planned: Planned, steps: int) -> Counterexample:
    """The first steps of a walk as a trace: what the specification says of them."""
    edges = [graph.edges[edge] for edge in planned.path]
    first = Step(INITIAL, graph.nodes[edges[0].source].state)
    rest = [Step(edge.action, graph.nodes[edge.target].state) for edge in edges[:steps]]
    return Counterexample(name, _BROKEN, (first, *rest))
