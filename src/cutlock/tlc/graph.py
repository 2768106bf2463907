"""The reachable states of a model, and every transition between them with its action.

TLC's graph names no arguments of actions, and under a `VIEW` that leaves the history variable
out it shows only one of the actions that lead to a state. So an ACTION_CONSTRAINT prints
`ToString(act')` of each transition; with one worker this happens in the order of the edges in
the graph file, and the two are put together line by line.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from cutlock.errors import ToolError
from cutlock.tlc.action import ACT, ActionCall, read_action
from cutlock.tlc.itf import value_from_itf, value_to_itf
from cutlock.tlc.outcome import Outcome, Progress, Verdict
from cutlock.tlc.output import assignments
from cutlock.tlc.run import GRAPH_FILE, Job, Toolchain
from cutlock.tlc.values import Value, parse_value, to_tla

__all__ = [
    "Edge",
    "Graph",
    "Node",
    "explore",
    "graph_from_json",
    "graph_to_json",
    "read_graph",
]

_NODE = re.compile(r'(-?\d+) \[label="((?:[^"\\]|\\.)*)"(,style = filled)?\];?$')
_EDGE = re.compile(r'(-?\d+) -> (-?\d+) \[label="[^"]*".*\];$')
_FRAME = ("strict digraph ", "nodesep=", "subgraph ", "color=", "{rank = same;", "}")
_ESCAPE = re.compile(r"\\(.)")
_ADVICE = (
    "the ACTION_CONSTRAINT has to print `PrintT(ToString(act'))` once, "
    "after every other constraint, and nothing else may print strings"
)
_SAVED = "write it again with `cutlock check NAME --graphs FOLDER`"
_UNREADABLE = "is it a TLC of another version? `cutlock doctor` says which there is"


@dataclass(frozen=True)
class Node:
    """A reachable state; its values are read when they are asked for."""

    text: str
    """As TLC writes it, with the history variable of the first way into it if it is known."""

    @cached_property
    def state(self) -> Mapping[str, Value]:
        """The variables, without the history variable."""
        return {name: parse_value(value) for name, value in assignments(self.text) if name != ACT}

    @property
    def first_action(self) -> ActionCall:
        """The action by which the state was found."""
        for name, value in assignments(self.text):
            if name == ACT:
                return read_action(parse_value(value))
        raise ToolError(
            f"no variable {ACT} in the state {self.text!r}; declare and set it in the spec"
        )


@dataclass(frozen=True)
class Edge:
    """A transition between two nodes, given by their indexes."""

    source: int
    action: ActionCall
    target: int


@dataclass(frozen=True)
class Graph:
    """Nodes in the order in which they were found; `initial` are indexes of nodes."""

    nodes: tuple[Node, ...]
    initial: tuple[int, ...]
    edges: tuple[Edge, ...]


def explore(
    toolchain: Toolchain, job: Job, on_progress: Callable[[Progress], None] | None = None
) -> tuple[Outcome, Graph | None]:
    """Run the job and read its graph; None if the run did not end in success.

    Raises:
        ToolError: graph and printed actions do not fit together.
    """
    with tempfile.TemporaryDirectory(prefix="cutlock-graph-") as made:
        work = Path(made)
        outcome = toolchain.run(replace(job, dump=True, workers=1), on_progress, work)
        if outcome.verdict is not Verdict.SUCCESS:
            return outcome, None
        with (work / GRAPH_FILE).open(encoding="utf-8") as lines:
            graph = read_graph(lines, outcome.printed)
    if len(graph.nodes) != outcome.distinct:
        raise ToolError(
            f"{len(graph.nodes)} states in the graph, TLC counts {outcome.distinct}; use no VIEW "
            "or SYMMETRY in a model whose graph is taken"
        )
    return outcome, graph


def read_graph(dot: Iterable[str], printed: Sequence[str]) -> Graph:
    """Put the graph file and the printed actions together.

    Args:
        dot: lines of `-dump dot,actionlabels`.
        printed: lines that the run printed; those that are strings are the actions.

    Raises:
        ToolError: a line cannot be read, or the two do not fit together.
    """
    actions = (line for line in printed if line.startswith('"'))
    nodes: list[Node] = []
    numbers: dict[str, int] = {}
    initial: list[int] = []
    # The target of an edge is written after the edge, so edges keep names until the end.
    edges: list[tuple[str, ActionCall, str]] = []
    for raw in dot:
        line = raw.strip()
        if node := _NODE.match(line):
            if node[1] in numbers:
                raise ToolError(f"state {node[1]} is in the graph twice; {_UNREADABLE}")
            numbers[node[1]] = len(nodes)
            found = Node(_ESCAPE.sub(_meant, node[2]))
            if node[3]:
                initial.append(len(nodes))
            elif not edges or edges[-1][2] != node[1] or edges[-1][1] != found.first_action:
                raise ToolError(
                    f"state {node[1]} was found by {found.first_action}, the edge before it is "
                    f"{edges[-1][1] if edges else 'none'}; {_ADVICE}"
                )
            nodes.append(found)
        elif edge := _EDGE.match(line):
            edges.append((edge[1], _next_action(actions), edge[2]))
        elif line and not line.startswith(_FRAME):
            raise ToolError(f"not a line of a TLC graph: {line[:200]!r}; {_UNREADABLE}")
    if next(actions, None) is not None:
        raise ToolError(f"more than {len(edges)} actions were printed for as many edges; {_ADVICE}")
    lost = {name for source, _, target in edges for name in (source, target)} - numbers.keys()
    if lost:
        raise ToolError(
            f"edges of states that the graph lacks: {', '.join(sorted(lost))}; {_UNREADABLE}"
        )
    return Graph(
        tuple(nodes),
        tuple(initial),
        tuple(Edge(numbers[source], action, numbers[target]) for source, action, target in edges),
    )


def graph_to_json(graph: Graph) -> bytes:
    """The graph as JSON, values in the Informal Trace Format; one node or edge a line."""
    names = sorted(graph.nodes[0].state) if graph.nodes else []
    nodes = ([value_to_itf(node.state[name]) for name in names] for node in graph.nodes)
    edges = (
        [
            edge.source,
            edge.action.name,
            {name: value_to_itf(value) for name, value in edge.action.arguments.items()},
            edge.target,
        ]
        for edge in graph.edges
    )
    parts = [
        f' "vars": {json.dumps(names)}',
        f' "initial": {json.dumps(graph.initial)}',
        ' "nodes": [\n' + _rows(nodes) + "\n ]",
        ' "edges": [\n' + _rows(edges) + "\n ]",
    ]
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def graph_from_json(data: bytes) -> Graph:
    """Read what `graph_to_json` wrote; the nodes do not know by which action they were found.

    Raises:
        ToolError: it is something else; says what is wrong.
    """
    try:
        read = msgspec.json.decode(data, type=_Saved)
        nodes = tuple(Node(_text(read.vars, row)) for row in read.nodes)
        edges = tuple(
            Edge(source, ActionCall(name, {key: _value(raw) for key, raw in given.items()}), target)
            for source, name, given, target in read.edges
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise ToolError(f"not a graph that was saved as JSON: {error}; {_SAVED}") from error
    ends = {*read.initial, *(end for edge in edges for end in (edge.source, edge.target))}
    if lost := ends - set(range(len(nodes))):
        raise ToolError(
            f"not a graph: it has {len(nodes)} nodes and names number {max(lost)}; {_SAVED}"
        )
    return Graph(nodes, read.initial, edges)


class _Saved(msgspec.Struct):
    vars: tuple[str, ...]
    initial: tuple[int, ...]
    nodes: list[list[msgspec.Raw]]
    edges: list[tuple[int, str, dict[str, msgspec.Raw], int]]


def _text(names: Sequence[str], row: Sequence[msgspec.Raw]) -> str:
    values = zip(names, row, strict=True)
    return "\n".join(f"/\\ {name} = {_tla(bytes(value))}" for name, value in values)


@lru_cache(maxsize=1 << 17)
def _tla(raw: bytes) -> str:
    """Most values of a graph are those of another state too."""
    return to_tla(value_from_itf(json.loads(raw)))


def _value(raw: msgspec.Raw) -> Value:
    return value_from_itf(json.loads(bytes(raw)))


def _rows(rows: Iterable[Any]) -> str:
    return ",\n".join(f"  {json.dumps(row, sort_keys=True)}" for row in rows)


def _next_action(actions: Iterator[str]) -> ActionCall:
    line = next(actions, None)
    if line is None:
        raise ToolError(f"more edges than printed actions; {_ADVICE}")
    text = parse_value(line)
    assert isinstance(text, str)
    return read_action(parse_value(text))


def _meant(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]
