"""The transitions of a protocol's model, taken on its code in walks and accounted for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from cutlock.bond import walks
from cutlock.bond.bond import PLANES, Bond, Constants, S, Setting, require_variables
from cutlock.bond.processes import Processes
from cutlock.bond.walk import INITIAL, WalkError, take
from cutlock.bond.walks import Planned
from cutlock.errors import ConformanceError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.check import check_model
from cutlock.tlc.graph import Graph, Node
from cutlock.tlc.itf import Counterexample, Step, to_itf
from cutlock.tlc.manifest import Model
from cutlock.tlc.run import Toolchain

__all__ = ["Diverged", "Divergence", "ModelPaths", "cover", "explored"]

_BROKEN = "conformance"  # stands where a counterexample names its property


@dataclass(frozen=True)
class Diverged:
    """Where a walk and the code have parted."""

    call: ActionCall
    variables: tuple[str, ...]
    """Those that differ; none if the code does not do the action, or breaks."""
    text: str
    """All of it, for a person."""


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
    """What the walks through one graph have shown."""

    name: str
    states: int
    edges: int
    covered: int
    """Edges after which the whole state of the code was that of the graph."""
    walks: int
    steps: int
    """Actions that the code has done, in all walks."""
    seconds: float
    """Of the walks alone."""
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


def explored(bond: Bond[S], model: str, toolchain: Toolchain) -> Graph:
    """The reachable graph of a model of mode `graph`, as TLC finds it.

    Raises:
        ConfigError: there is no such model.
        ConformanceError: it has no graph, or another one than the manifest says.
    """
    row = bond.model(model)
    checked = check_model(toolchain, bond.models, row)
    if checked.graph is None or checked.result.why_not:
        why = "; ".join(checked.result.why_not) or f"its mode is {row.mode.value}, not graph"
        raise ConformanceError(f"no graph of {model} to go by: {why}; see `cutlock check {model}`")
    return checked.graph


def cover(
    bond: Bond[S],
    model: str,
    graph: Graph,
    *,
    plan: Sequence[Planned] | None = None,
    constants: Constants | None = None,
    plane: str = PLANES[0],
    seed: int = 0,
    every_action: bool = True,
    processes: Processes | None = None,
    save: Path | None = None,
    watch: Callable[[int, int], None] = lambda covered, walks: None,
    on_divergence: Callable[[Counterexample, Diverged], None] = lambda walk, diverged: None,
) -> ModelPaths:
    """Take the edges of a graph on the code, and compare the whole states.

    Args:
        model: the row of the manifest that the graph is of.
        plan: the walks, and where states are compared; left out, every edge is taken, and every
            step compared.
        constants: of the model; left out, those of its row in the manifest.
        every_action: whether an action of the alphabet that no edge takes is a reason in
            `ModelPaths.why_not`, unless the model lists it under `never`.
        processes: that do the walks, each with a stepper of its own; with several of them the
            bond has to be one that can be pickled.
        save: directory for the walk of a divergence.
        watch: told how many edges and walks are done.
        on_divergence: told of the shortest walk on which something differs, up to there.

    Raises:
        ConfigError: there is no such model or plane.
        ConformanceError: an action or argument is not of the alphabet, or the observation has
            other variables.
        ToolError: a process has died.
    """
    unseen: tuple[str, ...] = ()
    if every_action:
        unseen = tuple(_unseen(bond, bond.model(model), graph))
    if constants is None:
        constants = bond.constants(bond.model(model))
    for call in _kinds(edge.action for edge in graph.edges):
        bond.alphabet.check(call)
    if plan is None:
        plan = walks.every_step(walks.cover(graph))
    setting = Setting(model=model, constants=constants, plane=plane, seed=seed)
    if plan:
        with bond.begin(setting) as subject:
            start = graph.nodes[graph.edges[plan[0].path[0]].source].state
            require_variables(subject, start, f"the graph of {model}")
    account = _Account(plan, watch)
    began = time.monotonic()
    # As it was made: what a bond has read is not worth sending to another process.
    work = partial(_take, replace(bond), setting)
    planned = [_walk(graph, number, walk) for number, walk in enumerate(plan)]
    (processes or Processes()).do(work, planned, account.note)
    seconds = time.monotonic() - began
    divergence = None
    if (shortest := account.shortest()) is not None:
        at, step = shortest.diverged, shortest.steps + 1
        assert at is not None
        walk = _trace_of(model, graph, plan[shortest.number], step)
        on_divergence(walk, at)
        divergence = Divergence(
            step=step,
            action=str(at.call),
            variables=at.variables,
            text=at.text,
            trace=_saved(walk, at, save),
        )
    return ModelPaths(
        name=model,
        states=len(graph.nodes),
        edges=len(graph.edges),
        covered=len(account.covered),
        walks=account.walks,
        steps=account.steps,
        seconds=round(seconds, 2),
        diverged=len(account.diverged),
        divergence=divergence,
        why_not=unseen,
    )


def _kinds(calls: Iterable[ActionCall]) -> Iterable[ActionCall]:
    """One call of each action, and of each set of arguments."""
    return {(call.name, *call.arguments): call for call in calls}.values()


def _unseen(bond: Bond[S], row: Model, graph: Graph) -> Iterator[str]:
    taken = {edge.action.name for edge in graph.edges}
    for action in bond.alphabet.actions:
        if action not in taken and action not in row.never:
            yield f"no edge takes {action}; widen the bounds, or list it under `never`"


# One walk, by whatever process.


class _Walk(NamedTuple):
    number: int
    """Its place in the plan, from 0."""
    start: Node
    steps: list[tuple[ActionCall, Node | None]]
    """Each with the state to compare; None if nothing is compared."""


class _Done(NamedTuple):
    """What came of one walk."""

    number: int
    steps: int
    """Actions that were done before anything differed."""
    diverged: Diverged | None = None
    """What happened in the next step; if `steps` is -1, in the initial state."""


def _walk(graph: Graph, number: int, planned: Planned) -> _Walk:
    edges = [graph.edges[edge] for edge in planned.path]
    # As they were read, without values: hashes differ from process to process.
    steps = [
        (edge.action, replace(graph.nodes[edge.target]) if at in planned.compared else None)
        for at, edge in enumerate(edges)
    ]
    return _Walk(number, replace(graph.nodes[edges[0].source]), steps)


def _take(bond: Bond[S], setting: Setting, walk: _Walk) -> _Done:
    """Do one walk to its end or to the first difference."""
    steps = [(call, None if node is None else node.state) for call, node in walk.steps]
    setting = replace(setting, calls=tuple(call for call, _ in steps))
    with bond.begin(setting) as subject:
        try:
            take(steps, subject, start=walk.start.state, explain=subject.explain)
        except WalkError as error:
            diverged = Diverged(error.call, tuple(sorted(error.variables)), str(error))
            return _Done(walk.number, error.number - 1, diverged)
    return _Done(walk.number, len(steps))


# All of them.


class _Account:
    """What has come of the walks of a plan."""

    def __init__(self, plan: Sequence[Planned], watch: Callable[[int, int], None]) -> None:
        self._plan = plan
        self._watch = watch
        self.covered: set[int] = set()
        self.diverged: list[_Done] = []
        self.walks = 0
        self.steps = 0

    def note(self, done: _Done) -> None:
        self.walks, self.steps = self.walks + 1, self.steps + max(0, done.steps)
        planned = self._plan[done.number]
        self.covered.update(planned.path[at] for at in planned.compared if at < done.steps)
        if done.diverged is not None:
            self.diverged.append(done)
        self._watch(len(self.covered), self.walks)

    def shortest(self) -> _Done | None:
        """The walk on which the two have parted soonest."""
        return min(self.diverged, key=lambda done: (done.steps, done.number), default=None)


def _saved(walk: Counterexample, at: Diverged, folder: Path | None) -> str | None:
    if folder is None:
        return None
    path = folder / f"{walk.model}_{at.call.name}_{len(walk.steps) - 1}.itf.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_itf(walk))
    return str(path)


def _trace_of(name: str, graph: Graph, planned: Planned, steps: int) -> Counterexample:
    """The first steps of a walk as a trace: what the specification says of them."""
    edges = [graph.edges[edge] for edge in planned.path]
    first = Step(INITIAL, graph.nodes[edges[0].source].state)
    rest = [Step(edge.action, graph.nodes[edge.target].state) for edge in edges[:steps]]
    return Counterexample(name, _BROKEN, (first, *rest))
