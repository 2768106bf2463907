from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from cutlock.errors import ToolError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.graph import Edge, Graph, explore, graph_to_json, read_graph
from cutlock.tlc.outcome import Verdict
from cutlock.tlc.run import Job, Toolchain
from cutlock.tlc.values import ModelValue
from tests.tlc.conftest import SPECS
from tests.tlc.playback import RECORDED, Player, outcome_of

FILL_1, FILL_2 = ActionCall("Fill", {"units": 1}), ActionCall("Fill", {"units": 2})
DRAIN = ActionCall("Drain")
EDGES = (
    Edge(0, FILL_1, 1),
    Edge(0, FILL_2, 2),
    Edge(1, FILL_1, 2),
    Edge(1, FILL_2, 3),
    Edge(1, DRAIN, 4),
    Edge(2, FILL_1, 3),
    Edge(2, DRAIN, 1),
    Edge(3, DRAIN, 2),
    Edge(4, FILL_1, 1),
    Edge(4, FILL_2, 2),
)


def dot() -> list[str]:
    return (RECORDED / "graph.dot").read_text().splitlines()


def printed() -> list[str]:
    return list(outcome_of("graph").printed)


def recorded_graph() -> Graph:
    return read_graph(dot(), printed())


def test_every_edge_has_its_action_and_arguments() -> None:
    assert recorded_graph().edges == EDGES


def test_nodes_are_states_without_the_history() -> None:
    graph = recorded_graph()
    assert [node.state["level"] for node in graph.nodes] == [0, 1, 2, 3, 0]
    assert graph.nodes[4].state["used"] == frozenset({ModelValue("hose")})
    assert set(graph.nodes[0].state) == {"level", "used"}


def test_initial_states_are_marked() -> None:
    assert recorded_graph().initial == (0,)


def test_ways_into_a_known_state_are_not_lost() -> None:
    into = [edge.action for edge in recorded_graph().edges if edge.target == 2]
    assert into == [FILL_2, FILL_1, DRAIN, FILL_2]


def test_edges_lead_where_the_action_says() -> None:
    graph = recorded_graph()
    for edge in graph.edges:
        before, after = (graph.nodes[n].state["level"] for n in (edge.source, edge.target))
        change = edge.action.arguments.get("units", -1)
        assert isinstance(before, int)
        assert isinstance(change, int)
        assert after == before + change


def without(lines: Sequence[str], part: str) -> list[str]:
    place = next(i for i, line in enumerate(lines) if part in line)
    return [*lines[:place], *lines[place + 1 :]]


def test_an_edge_that_is_lost_is_noticed() -> None:
    with pytest.raises(ToolError, match="more than 9 actions were printed"):
        read_graph(dot()[:-7] + dot()[-6:], printed())


def test_an_action_that_is_lost_is_noticed() -> None:
    with pytest.raises(ToolError, match="more edges than printed actions"):
        read_graph(dot(), printed()[:-1])


def test_actions_in_another_order_are_noticed() -> None:
    first, second, *rest = printed()
    with pytest.raises(ToolError, match=r"was found by Fill\(units = 1\), the edge before it is"):
        read_graph(dot(), [second, first, *rest])


def test_a_state_that_is_lost_is_noticed() -> None:
    with pytest.raises(ToolError, match="edges of states that the graph lacks"):
        read_graph(without(dot(), "level = 3"), printed())


def test_a_state_that_comes_twice_is_noticed() -> None:
    line = next(line for line in dot() if "level = 3" in line)
    with pytest.raises(ToolError, match="twice"):
        read_graph([*dot(), line], printed())


def test_a_strange_line_is_noticed() -> None:
    with pytest.raises(ToolError, match="not a line of a TLC graph: 'node strange'"):
        read_graph([*dot(), "node strange"], printed())


def test_printed_lines_that_are_no_strings_are_passed_over() -> None:
    assert read_graph(dot(), ["<<1, 2>>", *printed(), "done"]).edges == EDGES


def test_escapes_of_the_graph_file_are_undone() -> None:
    lines = [
        r'1 [label="/\\ x = \"a\\\"b\\\\\\n\"\n/\\ act = [name |-> \"Init\"]",style = filled]',
    ]
    assert read_graph(lines, []).nodes[0].state == {"x": 'a"b\\\n'}


def test_the_graph_as_json_has_every_node_and_edge_on_a_line() -> None:
    written = graph_to_json(recorded_graph())
    read = json.loads(written)
    assert read["vars"] == ["level", "used"]
    assert read["initial"] == [0]
    assert read["nodes"][1] == [1, {"#set": ["hose_OF_MODEL"]}]
    assert read["edges"][1] == [0, "Fill", {"units": 2}, 2]
    assert (len(read["nodes"]), len(read["edges"])) == (5, 10)
    assert len(written.splitlines()) == 5 + 10 + 8


def test_a_run_that_is_no_success_has_no_graph(player: Player) -> None:
    job = Job(SPECS / "TankGraph.tla", SPECS / "Graph.cfg")
    outcome, graph = explore(player.plays("invariant"), job)
    assert (outcome.verdict, graph) == (Verdict.INVARIANT, None)


@pytest.mark.tlc
def test_tlc_gives_the_recorded_graph(toolchain: Toolchain) -> None:
    job = Job(SPECS / "TankGraph.tla", SPECS / "Graph.cfg", tiny=True)
    outcome, graph = explore(toolchain, job)
    assert outcome.verdict is Verdict.SUCCESS
    assert graph == recorded_graph()
