"""cutlock's own protocol, and its barrier, as users of the bond that others use."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cutlock.bond import explored, read_trace, replay
from cutlock.bond.expect import expect_covered
from cutlock.conformance.barrier import BARRIER
from cutlock.conformance.faults import FAULTS, WITHOUT_A_FAULT
from cutlock.conformance.protocol import CUTLOCK, FREE
from cutlock.errors import NoPlaceError
from cutlock.shipped import shipped
from cutlock.tlc.itf import Counterexample
from cutlock.tlc.run import Toolchain


def example_of(mutant: str) -> Counterexample:
    return read_trace(shipped("traces", "counterexamples", f"{mutant}.itf.json"))


def test_every_fault_is_one_of_the_bond() -> None:
    assert set(CUTLOCK.faults) == {mutant for fault in FAULTS.values() for mutant in fault.mutants}
    assert not set(CUTLOCK.faults) & set(WITHOUT_A_FAULT)
    assert {*CUTLOCK.faults, *WITHOUT_A_FAULT} >= set(BARRIER.faults)


@pytest.mark.parametrize("mutant", WITHOUT_A_FAULT)
def test_what_has_no_place_in_the_code_is_told_apart(mutant: str) -> None:
    example = replace(example_of("cursor_early"), model=mutant)
    with pytest.raises(NoPlaceError, match=re.escape(WITHOUT_A_FAULT[mutant])):
        replay(CUTLOCK, example)


def test_a_trace_of_the_barrier_is_none_of_the_run() -> None:
    with pytest.raises(NoPlaceError, match="it is of the barrier alone, and is replayed on the"):
        replay(CUTLOCK, example_of("barrier_leaks_a_count"))


def test_the_bond_goes_to_other_processes() -> None:
    for bond in (CUTLOCK, FREE):
        again = pickle.loads(pickle.dumps(bond))
        assert (again.name, again.alphabet, again.faults) == (bond.name, bond.alphabet, bond.faults)


GRAPH = """\
---- MODULE BarrierGraph ----
EXTENDS LabelledBarrier, TLC
Prints == PrintT(ToString(act'))
====
"""
CONFIG = """\
CONSTANTS
  Writers = {"w1", "w2", "w3"}
  Savers = {"s1", "s2"}
SPECIFICATION LabelledSpec
VIEW View
INVARIANTS TypeOK Exclusion Balance EachQueuedOnce NoIdlePlace
ACTION_CONSTRAINT Prints
"""


@pytest.mark.tlc
def test_the_barrier_does_every_transition_of_its_model(
    toolchain: Toolchain, tmp_path: Path
) -> None:
    (tmp_path / "BarrierGraph.tla").write_text(GRAPH)
    (tmp_path / "graph.cfg").write_text(CONFIG)
    (tmp_path / "manifest.toml").write_text(
        f'modules = [".", "{shipped("spec")}"]\nconfigs = "."\n[[models]]\nname = "graph"\n'
        'module = "BarrierGraph"\nconfig = "graph.cfg"\nmode = "graph"\ntime = "quick"\n'
        'distinct = 631\nwhy = "five in a queue of both kinds"\n'
    )
    barrier = replace(BARRIER, manifest=tmp_path / "manifest.toml")
    found = expect_covered(barrier, "graph", explored(barrier, "graph", toolchain))
    assert (found.edges, found.covered) == (3576, 3576)
