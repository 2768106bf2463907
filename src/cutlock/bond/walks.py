"""Walks that together take every edge of a state graph.

A walk begins in an initial state and may end anywhere. From where it stands it goes to the
nearest edge that no walk has taken yet, and it ends where none can be reached any more: most
of a walk's steps lead to its first such edge, so walks are made long.

Source: design, section 13.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cutlock.errors import ConformanceError
from cutlock.tlc.graph import Graph

__all__ = ["EdgePath", "Planned", "cover", "every_step", "first_times", "sample"]

EdgePath = tuple[int, ...]
"""Indexes of edges, each of which begins where the one before it ends."""


@dataclass(frozen=True)
class Planned:
    """A walk, and after which of its edges the states are compared."""

    path: EdgePath
    compared: frozenset[int]
    """Places in the path, from 0."""


def cover(graph: Graph) -> list[EdgePath]:
    """Walks that together take every edge; equal graphs give equal walks.

    Raises:
        ConformanceError: an edge cannot be reached from an initial state.
    """
    return _Cover(graph).walks()


def first_times(paths: Iterable[EdgePath]) -> list[Planned]:
    """Compare where an edge is taken for the first time, and at the end of each walk."""
    taken: set[int] = set()
    planned = []
    for path in paths:
        compared = {len(path) - 1}
        for place, edge in enumerate(path):
            if edge not in taken:
                taken.add(edge)
                compared.add(place)
        planned.append(Planned(path, frozenset(compared)))
    return planned


def every_step(paths: Iterable[EdgePath]) -> list[Planned]:
    """Compare everywhere."""
    return [Planned(path, frozenset(range(len(path)))) for path in paths]


def sample(paths: Sequence[EdgePath], count: int) -> list[EdgePath]:
    """So many of the walks, spread evenly; all of them if there are no more."""
    count = min(count, len(paths))
    return [paths[number * len(paths) // count] for number in range(count)]


class _Cover:
    """One graph, whose edges are taken until none is left."""

    def __init__(self, graph: Graph) -> None:
        self._source = [edge.source for edge in graph.edges]
        self._target = [edge.target for edge in graph.edges]
        self._out: list[list[int]] = [[] for _ in graph.nodes]
        for edge, source in enumerate(self._source):
            self._out[source].append(edge)
        self._spent: set[int] = set()
        """Nodes from which nothing that is left can be reached; they stay so."""
        self._left: list[list[int]] = [[] for _ in graph.nodes]
        """By node the edges that are to be taken, the next one last."""
        self._reached, _ = self._search(graph.initial)
        depth: dict[int, int] = {}
        for node, by in self._reached.items():
            depth[node] = 0 if by is None else depth[self._source[by]] + 1

        def late(edge: int) -> tuple[bool, int, int]:
            # A loop costs a walk nothing; what leads back, like a crash, ends most of its hopes.
            loop = self._source[edge] == self._target[edge]
            return loop, depth.get(self._target[edge], 0), -edge

        self._left = [sorted(edges, key=late) for edges in self._out]

    def walks(self) -> list[EdgePath]:
        found = []
        for node in self._reached:
            while self._left[node]:
                found.append(self._walk(node))
        if left := sum(map(len, self._left)):
            raise ConformanceError(
                f"{left} edges of the graph cannot be reached from an initial state; "
                "export it again"
            )
        return found

    def _walk(self, first: int) -> EdgePath:
        """The way to that node, and on from there as long as anything is left."""
        walk = self._way(self._reached, first)
        node: int | None = first
        while node is not None:
            walk.append(self._left[node].pop())
            reached, node = self._search([self._target[walk[-1]]])
            if node is None:
                self._spent.update(reached)
            else:
                walk += self._way(reached, node)
        return tuple(walk)

    def _search(self, begin: Iterable[int]) -> tuple[dict[int, int | None], int | None]:
        """Go to the nearest node that has an edge left.

        Returns:
            The nodes on the way, nearest first, each with the edge that it was reached by; and
            that node, None if there is none.
        """
        reached: dict[int, int | None] = dict.fromkeys(begin)
        queue = deque(reached)
        while queue:
            node = queue.popleft()
            if self._left[node]:
                return reached, node
            for edge in self._out[node]:
                target = self._target[edge]
                if target not in reached and target not in self._spent:
                    reached[target] = edge
                    queue.append(target)
        return reached, None

    def _way(self, reached: dict[int, int | None], node: int) -> list[int]:
        """The edges by which a search has come to a node."""
        way: list[int] = []
        while (edge := reached[node]) is not None:
            way.append(edge)
            node = self._source[edge]
        return way[::-1]
