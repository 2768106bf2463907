from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from cutlock.alphabet import Action
from cutlock.bond import ModelPaths, Processes
from cutlock.bond import cover as cover_on
from cutlock.bond.walks import Planned, cover, every_step, first_times
from cutlock.conformance.protocol import CUTLOCK, one_thread
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.tlc.action import ActionCall
from cutlock.tlc.graph import Graph
from cutlock.tlc.itf import from_itf
from tests.replay.paths_graphs import graph_of_run
from tests.replay.script import Script


@dataclass
class Run:
    graph: Graph
    bounds: Bounds

    @property
    def length(self) -> int:
        return len(self.graph.edges)

    def at(self, action: Action) -> int:
        return next(n for n, edge in enumerate(self.graph.edges) if edge.action.name == action)


@pytest.fixture
def run(ram_path: Path) -> Run:
    """A run with a save, a crash and a restart."""
    with Script(ram_path / "run") as script:
        script.start().save().to(Action.RAISE_VERSION).to(Action.SYNC_WEIGHTS).save()
        script.do(Action.CRASH)
        script.finish()
    return Run(graph_of_run(script), script.bounds)


def check_paths(graph: Graph, bounds: Bounds, plan: Sequence[Planned], **more: Any) -> ModelPaths:
    return cover_on(
        CUTLOCK, "small", graph, plan=plan, constants=bounds.constants, every_action=False, **more
    )


def checked(graph: Graph, run: Run) -> ModelPaths:
    return check_paths(graph, run.bounds, first_times(cover(graph)))


def test_every_edge_is_replayed_and_equal(run: Run) -> None:
    found = checked(run.graph, run)
    assert (found.states, found.edges, found.covered) == (run.length + 1, run.length, run.length)
    assert (found.walks, found.steps, found.diverged) == (1, run.length, 0)
    assert found.divergence is None
    assert found.ok


def test_every_step_can_be_compared(run: Run) -> None:
    plan = every_step(cover(run.graph))
    assert check_paths(run.graph, run.bounds, plan).covered == run.length


@pytest.mark.parametrize("narrow", [True, False])
def test_what_was_saved_is_the_same_however_late_it_is_looked_at(
    ram_path: Path, narrow: bool
) -> None:
    """Rows that have gone leave their places in the store to others, which are saved next."""
    with Script(ram_path / "run", narrow=narrow, units=("u1",), window=0) as script:
        script.start()
        for _ in range(2):
            script.to(Action.COMMIT_GROUP, without=(Action.REQUEST_CUT,)).save()
        script.finish()
    graph = graph_of_run(script)
    (walk,) = cover(graph)
    writes = [n for n, call in enumerate(script.done) if call.name == Action.WRITE_POLICY]
    assert len(writes) > 1
    plan = [Planned(walk, frozenset({place})) for place in writes]
    found = check_paths(graph, script.bounds, plan)
    assert found.divergence is None


def test_several_processes_find_the_same(run: Run) -> None:
    plan = first_times(cover(run.graph)) * 5
    seen: list[tuple[int, int]] = []
    with Processes(2, one_thread) as processes:
        found = check_paths(
            run.graph,
            run.bounds,
            plan,
            processes=processes,
            watch=lambda covered, walks: seen.append((covered, walks)),
        )
    assert (found.covered, found.walks, found.steps) == (run.length, 5, 5 * run.length)
    assert [walks for _, walks in seen] == [1, 2, 3, 4, 5]


def altered(run: Run, at: int) -> Graph:
    """The graph with another target of one edge: the state before it."""
    edges = list(run.graph.edges)
    edges[at] = replace(edges[at], target=edges[at].source)
    return replace(run.graph, edges=tuple(edges))


def test_a_divergence_is_found_and_named(run: Run) -> None:
    at = run.at(Action.RESERVE_BATCH)
    graph = altered(run, at)
    plan = [first_times([tuple(range(at + 1))])[0]]
    found = check_paths(graph, run.bounds, plan)
    assert not found.ok
    assert (found.covered, found.walks, found.steps, found.diverged) == (at, 1, at, 1)
    assert found.divergence is not None
    assert (found.divergence.step, found.divergence.action) == (
        at + 1,
        str(run.graph.edges[at].action),
    )
    assert found.divergence.variables == ("led", "pos")
    assert found.divergence.text.splitlines()[1:] == [
        '  led[<<1, 1>>]: spec "none", code "RESERVED"',
        "  pos: spec 0, code 1",
        "  likely: the loader's position and what was done with its batch differ.",
    ]
    assert found.divergence.trace is None


def test_an_action_that_the_code_does_not_do_is_a_divergence(run: Run) -> None:
    at = run.at(Action.RESERVE_BATCH)
    edges = list(run.graph.edges)
    edges[at] = replace(edges[at], action=ActionCall(Action.CLOSE_CUT))
    found = checked(replace(run.graph, edges=tuple(edges)), run)
    assert found.divergence is not None
    assert (found.divergence.step, found.divergence.variables) == (at + 1, ())
    assert "CloseCut(): the code does not do it: nobody stands before" in found.divergence.text


def test_an_initial_state_that_differs_is_step_0(run: Run) -> None:
    nodes = list(run.graph.nodes)
    nodes[0] = nodes[1]
    found = checked(replace(run.graph, nodes=tuple(nodes)), run)
    assert (found.covered, found.steps) == (0, 0)
    assert found.divergence is not None
    assert (found.divergence.step, found.divergence.action) == (0, "Init()")


def test_the_shortest_of_several_divergences_is_shown(run: Run) -> None:
    late, early = run.at(Action.OPEN_CUT), run.at(Action.BEGIN_RUN)
    edges = list(run.graph.edges)
    for at in (early, late):
        edges.append(replace(edges[at], target=0))
    graph = replace(run.graph, edges=tuple(edges))
    paths = [(*range(late), run.length + 1), (run.length,)]
    found = check_paths(graph, run.bounds, first_times(paths))
    assert found.diverged == 2
    assert found.divergence is not None
    assert found.divergence.step == early + 1


def test_a_divergence_is_saved_as_the_walk_up_to_it(run: Run, tmp_path: Path) -> None:
    at = run.at(Action.SELECT_GROUPS)
    plan = first_times([tuple(range(at + 1))])
    found = check_paths(altered(run, at), run.bounds, plan, save=tmp_path)
    path = tmp_path / f"small_SelectGroups_{at + 1}.itf.json"
    assert found.divergence is not None
    assert found.divergence.trace == str(path)
    saved = from_itf(path.read_bytes())
    assert saved.model == "small"
    assert [step.action for step in saved.steps[1:]] == [
        edge.action for edge in run.graph.edges[: at + 1]
    ]
    states = [node.state for node in run.graph.nodes[: at + 1]]
    assert [step.state for step in saved.steps] == [*states, states[-1]]
