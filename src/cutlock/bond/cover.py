"""Every transition of a protocol's model, taken on its code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from cutlock.bond import walks
from cutlock.bond.bond import PLANES, Bond, S, Setting, require_variables
from cutlock.bond.coverage import Diverged, Done, ModelPaths, account, take_walk
from cutlock.errors import ConformanceError
from cutlock.tlc.check import check_model
from cutlock.tlc.graph import Graph
from cutlock.tlc.itf import Counterexample
from cutlock.tlc.run import Toolchain

__all__ = ["cover", "explored"]


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
    plane: str = PLANES[0],
    seed: int = 0,
    save: Path | None = None,
    on_divergence: Callable[[Counterexample, Diverged], None] = lambda walk, diverged: None,
) -> ModelPaths:
    """Take every edge of a graph on the code, and compare the whole state after every step.

    An action of the alphabet that no edge takes is a reason in `ModelPaths.why_not`, unless the
    model lists it under `never`.

    Args:
        model: the row of the manifest that the graph is of.
        save: directory for the walk of a divergence.
        on_divergence: told of the shortest walk on which something differs, up to there.

    Raises:
        ConfigError: there is no such model or plane.
        ConformanceError: an action or argument is not of the alphabet, or the observation has
            other variables.
    """
    row = bond.model(model)
    plan = walks.every_step(walks.cover(graph))
    setting = Setting(model=model, constants=bond.constants(row), plane=plane, seed=seed)
    for edge in graph.edges:
        bond.alphabet.check(edge.action)

    def replay(on_done: Callable[[Done], None]) -> None:
        for number, planned in enumerate(plan):
            edges = [graph.edges[edge] for edge in planned.path]
            steps = [(edge.action, graph.nodes[edge.target].state) for edge in edges]
            start = graph.nodes[edges[0].source].state
            calls = tuple(call for call, _ in steps)
            with bond.begin(replace(setting, calls=calls)) as subject:
                require_variables(subject, start, f"the graph of {model}")
                on_done(take_walk(number, steps, subject, start=start, explain=bond.explain))

    found = account(model, graph, plan, replay, save=save, on_divergence=on_divergence)
    unseen = tuple(_unseen(bond, row.never, graph))
    return msgspec.structs.replace(found, why_not=(*found.why_not, *unseen))


def _unseen(bond: Bond[S], never: tuple[str, ...], graph: Graph) -> Iterator[str]:
    taken = {edge.action.name for edge in graph.edges}
    for action in bond.alphabet.actions:
        if action not in taken and action not in never:
            yield f"no edge takes {action}; widen the bounds, or list it under `never`"
