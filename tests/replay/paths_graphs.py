"""Small graphs for the tests of paths."""

from __future__ import annotations

from cutlock.tlc.action import ActionCall
from cutlock.tlc.graph import Edge, Graph, Node
from cutlock.tlc.values import to_tla
from tests.replay.script import Script


def graph_of(*ends: tuple[int, int], initial: tuple[int, ...] = (0,)) -> Graph:
    """A graph of these edges, without states."""
    nodes = 1 + max((node for edge in ends for node in edge), default=0)
    return Graph(
        tuple(Node("") for _ in range(nodes)),
        initial,
        tuple(Edge(source, ActionCall("Go"), target) for source, target in ends),
    )


def graph_of_run(script: Script) -> Graph:
    """The states that a run of the real code has gone through, in a row."""
    nodes = tuple(
        Node("\n".join(f"/\\ {name} = {to_tla(value)}" for name, value in sorted(state.items())))
        for state in script.states
    )
    edges = tuple(Edge(at, call, at + 1) for at, call in enumerate(script.done))
    return Graph(nodes, (0,), edges)
