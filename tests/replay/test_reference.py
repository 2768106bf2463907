"""The executable reference is the specification: the same graphs, edge by edge."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import cutlock
from cutlock.alphabet import Action
from cutlock.conformance.reference.actions import ACTIONS
from cutlock.conformance.reference.invariants import INVARIANTS, broken
from cutlock.conformance.reference.model import Reference
from cutlock.conformance.reference.state import State
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.moves import MOVES
from cutlock.errors import ConformanceError, NotEnabledError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.config import read_config
from cutlock.tlc.graph import Graph, explore
from cutlock.tlc.manifest import Mode, load_manifest
from cutlock.tlc.run import find_toolchain
from cutlock.tlc.values import Value

ROOT = Path(cutlock.__file__).parents[2]
MANIFEST = load_manifest(ROOT / "model_check" / "manifest.toml")
GRAPHS = [model for model in MANIFEST.models if model.mode is Mode.GRAPH]
QUICK = {"graph_crash", "graph_spares", "graph_narrow_fail"}

SMALL = Bounds(batches=2, per_epoch=2, members=(1, 2), max_failures=1)

Edge = tuple[Hashable, str, Hashable, Hashable]


def reference_of(config: Path) -> Reference:
    tokens = read_config(config)["constants"]
    given = dict(zip(tokens, tokens[2:], strict=False))
    return Reference(
        Bounds.read(config),
        max_crashes=int(given["MaxCrashes"]),
        crash_anywhere=given["CrashAnywhere"] == "TRUE",
    )


def key(state: Mapping[str, Value]) -> Hashable:
    return tuple(sorted(state.items()))


def edges_of_graph(graph: Graph) -> set[Edge]:
    keys = [key(node.state) for node in graph.nodes]
    return {
        (keys[e.source], e.action.name, key(e.action.arguments), keys[e.target])
        for e in graph.edges
    }


def edges_of_reference(reference: Reference) -> set[Edge]:
    start = reference.initial()
    known, todo, edges = {key(start.variables)}, [start], set[Edge]()
    while todo:
        state = todo.pop()
        here = key(state.variables)
        for call, after in reference.successors(state):
            there = key(after.variables)
            edges.add((here, call.name, key(call.arguments), there))
            if there not in known:
                known.add(there)
                todo.append(after)
        assert broken(reference.terms(state)) == []
    return edges


@pytest.mark.tlc
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(model.name, marks=[] if model.name in QUICK else [pytest.mark.long])
        for model in GRAPHS
    ],
)
def test_the_reference_has_the_edges_of_the_graph_and_no_others(name: str) -> None:
    [model] = MANIFEST.select([name])
    outcome, graph = explore(find_toolchain(), MANIFEST.job(model))
    assert graph is not None, outcome
    reference = reference_of(MANIFEST.config(model).path)
    assert graph.nodes[graph.initial[0]].state == reference.initial().variables
    assert edges_of_reference(reference) == edges_of_graph(graph)


# The parts that no graph shows.


def after(reference: Reference, *names: Action) -> State:
    """From the start, the first call of each name."""
    state = reference.initial()
    for name in names:
        call = next(c for c in reference.enabled(state) if c.name == name)
        state = reference.apply(state, call)
    return state


STARTED = (Action.BEGIN_RUN, Action.START_PUMPS, Action.SYNC_WEIGHTS)


def test_every_action_is_in_the_reference() -> None:
    assert set(ACTIONS) == set(MOVES)


def test_what_is_not_allowed_is_not_applied() -> None:
    reference = Reference(SMALL)
    state = after(reference, *STARTED)
    with pytest.raises(NotEnabledError, match=r"OpenCut\(\): the specification does not allow it"):
        reference.apply(state, ActionCall("OpenCut"))
    wrong: dict[str, Value] = {"groups": frozenset({(2, 1), (2, 2)})}
    with pytest.raises(NotEnabledError):
        reference.apply(state, ActionCall("ReserveBatch", wrong))
    with pytest.raises(ConformanceError, match="no action of that name"):
        reference.apply(state, ActionCall("CancelCommit"))


def test_open_choices_are_refused() -> None:
    with pytest.raises(ConformanceError, match="Ordered = FALSE"):
        Reference(replace(SMALL, ordered=False))


def test_a_step_can_be_short_of_no_more_than_it_has() -> None:
    bounds = replace(SMALL, batches=4, per_epoch=4, sampler="ready_first", window=2)
    reference = Reference(replace(bounds, max_failures=4, capacity=20))
    batch = (Action.RESERVE_BATCH, Action.OPEN_GATE, Action.COMMIT_ADMISSION)
    state = after(reference, *STARTED, *batch, *batch)
    lost = dict(state.task) | dict.fromkeys([(1, 1), (1, 2), (2, 1)], "failed")
    # Step 0 has been selected from others, so all that is lost goes to step 1 and on.
    state = replace(state, task=lost, tp="train")
    for group in ((1, 1), (1, 2), (2, 1)):
        state = reference.apply(state, ActionCall("DropGroup", {"group": group}))
    assert (state.short[1], state.short[2]) == (2, 1)


def test_every_invariant_of_the_specification_is_in_the_reference() -> None:
    text = (ROOT / "spec" / "Invariants.tla").read_text()
    safety = text.partition("(* P7, under")[0]
    defined = {line.split(" ==")[0] for line in safety.splitlines() if " ==" in line}
    helpers = {"OpenClaim"}
    named = {name for name in defined if name.isidentifier()}
    assert named - helpers == set(INVARIANTS)


@pytest.mark.parametrize(
    ("changes", "promise"),
    [
        ({"pos": 9}, "TypeOK"),
        ({"pos": 1}, "OneOwner"),
        ({"pool": frozenset({(1, 1)})}, "OneOwner"),
        ({"claimed": frozenset({(1, 1)}), "tp": "train"}, "FreshAdvantages"),
        ({"rows": frozenset({((1, 1), "u1")})}, "LiveRows"),
        ({"rows": frozenset({((1, 1), "u1")}), "sv": "plane"}, "Inventory"),
        ({"up": "refused"}, "NoRefusal"),
        ({"door": "shut", "raising": True}, "CutExcludes"),
        ({"cursor": 5}, "GateBound"),
        ({"trained": {**dict.fromkeys([(1, 1), (2, 1), (2, 2)], 0), (1, 2): 2}}, "NoTwice"),
        ({"pos": 2, "saved": 0}, "NoLoss"),
    ],
)
def test_a_state_that_breaks_a_promise_is_told(changes: dict[str, object], promise: str) -> None:
    reference = Reference(SMALL)
    state = replace(after(reference, *STARTED), **changes)
    assert promise in broken(reference.terms(state))


@pytest.mark.parametrize(
    ("changes", "promise"),
    [
        ({"pos": 1}, "DiskOneOwner"),
        ({"epoch": 1}, "DiskEpoch"),
        ({"cursor": 5}, "DiskCursor"),
        ({"files": frozenset({"policy"})}, "Complete"),
        ({"rows": frozenset({((1, 1), "u1")})}, "DiskRows"),
        ({"of": {"cursor": 0, "loader": 1}}, "RestoresOneSave"),
    ],
)
def test_a_bundle_that_breaks_a_promise_is_told(changes: dict[str, object], promise: str) -> None:
    reference = Reference(SMALL)
    start = reference.initial()
    state = replace(start, up="verified", disk=replace(start.disk, **changes))
    assert promise in broken(reference.terms(state))


def test_stamps_and_admissions_that_break_a_promise_are_told() -> None:
    reference = Reference(SMALL)
    admitted = (Action.OPEN_GATE, Action.COMMIT_ADMISSION)
    batches = (Action.RESERVE_BATCH, *admitted, Action.RESERVE_BATCH, Action.RAISE_EPOCH, *admitted)
    state = after(reference, *STARTED, *batches)
    apart = replace(state, idx={**state.idx, (1, 1): 1})
    assert broken(reference.terms(apart)) == ["OneAdmission"]
    disk = replace(state.disk, pos=2, epoch=1, cursor=1, led=state.led, idx=apart.idx)
    assert broken(reference.terms(replace(state, disk=disk))) == ["DiskStamps"]
