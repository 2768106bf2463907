from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlock.bond.walks import EdgePath, cover, every_step, first_times, sample
from cutlock.errors import ConformanceError
from cutlock.tlc.graph import Graph
from tests.replay.paths_graphs import graph_of

RANDOM_EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=30)


def require_cover(graph: Graph, walks: list[EdgePath]) -> None:
    assert set().union(*walks) == set(range(len(graph.edges)))
    for walk in walks:
        edges = [graph.edges[edge] for edge in walk]
        assert edges[0].source in graph.initial
        assert all(a.target == b.source for a, b in itertools.pairwise(edges))


def test_a_chain_is_one_walk() -> None:
    assert cover(graph_of((0, 1), (1, 2), (2, 3))) == [(0, 1, 2)]


def test_a_graph_without_edges_needs_no_walk() -> None:
    assert cover(graph_of()) == []


def test_every_branch_is_taken() -> None:
    graph = graph_of((0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5))
    walks = cover(graph)
    require_cover(graph, walks)
    assert sorted(map(len, walks)) == [3, 4]


def test_cycles_that_meet_are_one_walk() -> None:
    assert cover(graph_of((0, 1), (1, 0), (0, 2), (2, 0))) == [(0, 1, 2, 3)]


def test_a_self_loop_is_taken_on_the_way() -> None:
    assert cover(graph_of((0, 1), (1, 1), (1, 2), (2, 2))) == [(0, 1, 2, 3)]


def test_parallel_edges_are_all_taken() -> None:
    graph = graph_of((0, 1), (0, 1), (1, 2))
    walks = cover(graph)
    require_cover(graph, walks)
    assert sum(map(len, walks)) == 3


def test_every_initial_state_is_begun_from() -> None:
    graph = graph_of((0, 2), (1, 2), (2, 3), initial=(0, 1))
    walks = cover(graph)
    require_cover(graph, walks)
    assert {graph.edges[walk[0]].source for walk in walks} == {0, 1}


def test_what_leads_back_is_taken_last() -> None:
    graph = graph_of((0, 1), (1, 0), (1, 2), (2, 3))
    assert cover(graph)[0] == (0, 2, 3)


def test_the_steps_are_close_to_the_fewest() -> None:
    # In a square lattice each edge but those of the border is taken about once.
    size = 12
    ends = [(x * size + y, x * size + y + 1) for x in range(size) for y in range(size - 1)]
    ends += [(x * size + y, x * size + y + size) for x in range(size - 1) for y in range(size)]
    graph = graph_of(*ends)
    walks = cover(graph)
    require_cover(graph, walks)
    assert sum(map(len, walks)) < 2 * len(ends)


@given(RANDOM_EDGES)
def test_any_graph_is_covered_from_where_all_can_be_reached(ends: list[tuple[int, int]]) -> None:
    graph = graph_of(*ends, initial=tuple(sorted({source for source, _ in ends})))
    walks = cover(graph)
    require_cover(graph, walks)
    assert cover(graph) == walks


def test_the_order_of_edges_does_not_decide_what_is_covered() -> None:
    ends = [(a, b) for a in range(6) for b in range(6)]
    random.Random(3).shuffle(ends)
    graph = graph_of(*ends)
    require_cover(graph, cover(graph))


def test_an_edge_that_no_walk_can_come_to_is_an_error() -> None:
    with pytest.raises(ConformanceError, match="1 edges of the graph cannot be reached"):
        cover(graph_of((0, 1), (2, 3)))


def test_an_edge_is_compared_when_it_is_first_taken_and_a_walk_at_its_end() -> None:
    planned = first_times([(0, 1, 2), (0, 1, 3, 1)])
    assert [sorted(walk.compared) for walk in planned] == [[0, 1, 2], [2, 3]]


def test_everything_can_be_compared() -> None:
    assert [sorted(walk.compared) for walk in every_step([(0, 1), (0,)])] == [[0, 1], [0]]


def test_a_sample_is_spread_over_all_walks() -> None:
    walks = [(number,) for number in range(10)]
    assert sample(walks, 3) == [(0,), (3,), (6,)]
    assert sample(walks, 20) == walks
