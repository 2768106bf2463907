"""Walks through real state graphs, done on the real code and compared after every step."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from pathlib import Path

import pytest

import cutlock
from cutlock.bond import cover
from cutlock.bond.walks import every_step
from cutlock.conformance.protocol import CUTLOCK
from cutlock.tlc.graph import Graph, explore
from cutlock.tlc.run import Job, find_toolchain
from cutlock.tlc.values import Value, to_tla

SPEC = Path(cutlock.__file__).parents[2] / "spec"

SMALL: dict[str, Value] = {
    "Batches": 1,
    "PerEpoch": 1,
    "Member": frozenset({1}),
    "Window": 1,
    "Sampler": "in_order",
    "SpareMark": 0,
    "MaxFailures": 0,
    "MaxCrashes": 0,
    "CrashAnywhere": False,
    "Capacity": 8,
    "Ordered": True,
    "Units": frozenset({"u1"}),
    "Narrow": False,
}

BOUNDED = ("Steps", "MayFail", "MayCrash", "Chosen", "Recorded")

MODELS: dict[str, dict[str, Value]] = {
    "crashes and failures anywhere": {"MaxFailures": 1, "MaxCrashes": 1, "CrashAnywhere": True},
    "pairs in two units": {"Member": frozenset({1, 2}), "Units": frozenset({"u1", "u2"})},
    "stale groups": {"Batches": 2, "PerEpoch": 2, "Sampler": "windowed", "Window": 0},
}


def explored(folder: Path, constants: dict[str, Value]) -> Graph:
    config = folder / "model.cfg"
    lines = [f" {name} = {to_tla(value)}" for name, value in constants.items()]
    lines += [f" {name} <- MC{name}" for name in BOUNDED]
    config.write_text(
        "\n".join(["CONSTANTS", *lines, "SPECIFICATION LabelledSpec", "VIEW View"])
        + "\nACTION_CONSTRAINT Prints\n"
    )
    job = Job(module=SPEC / "LabelledCutlock.tla", config=config, deadlock=False, tiny=True)
    outcome, graph = explore(find_toolchain(), job)
    assert graph is not None, outcome
    return graph


def shortest_to_each_action(graph: Graph) -> list[list[int]]:
    """Edges of a shortest walk that ends in the action, for every action of the graph."""
    out = by_source(graph)
    ways: dict[int, list[int]] = {node: [] for node in graph.initial}
    found: dict[str, list[int]] = {}
    queue = deque(graph.initial)
    while queue:
        node = queue.popleft()
        for edge in out[node]:
            way = [*ways[node], edge]
            found.setdefault(graph.edges[edge].action.name, way)
            if graph.edges[edge].target not in ways:
                ways[graph.edges[edge].target] = way
                queue.append(graph.edges[edge].target)
    return list(found.values())


def at_random(graph: Graph, count: int, longest: int) -> list[list[int]]:
    out, chance = by_source(graph), random.Random(7)
    walks = []
    for _ in range(count):
        node, walk = graph.initial[0], list[int]()
        while out[node] and len(walk) < longest:
            walk.append(chance.choice(out[node]))
            node = graph.edges[walk[-1]].target
        walks.append(walk)
    return walks


def by_source(graph: Graph) -> dict[int, list[int]]:
    out: dict[int, list[int]] = defaultdict(list)
    for number, edge in enumerate(graph.edges):
        out[edge.source].append(number)
    return out


@pytest.mark.tlc
@pytest.mark.parametrize("model", MODELS)
def test_the_code_walks_where_the_specification_does(model: str, tmp_path: Path) -> None:
    constants = {**SMALL, **MODELS[model]}
    graph = explored(tmp_path, constants)
    walks = [*shortest_to_each_action(graph), *at_random(graph, 30, 150)]
    plan = every_step(map(tuple, walks))
    found = cover(CUTLOCK, "a model", graph, plan=plan, constants=constants, every_action=False)
    assert found.ok, found.divergence
    assert found.walks == len(walks)
