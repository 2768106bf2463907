"""cutlock's own protocol, and its barrier, as users of the bond that others use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cutlock.bond import Ending, explored, read_trace, replay
from cutlock.bond.expect import expect_covered
from cutlock.conformance.faults import FAULTS, WITHOUT_A_FAULT
from cutlock.conformance.protocol import CUTLOCK
from cutlock.conformance.replay.barrier import BARRIER
from cutlock.errors import ConformanceError
from cutlock.shipped import shipped
from cutlock.tlc.itf import Counterexample
from cutlock.tlc.run import Toolchain
from tests.replay.test_counterexamples import BARRIER as REAL_BARRIER
from tests.replay.test_counterexamples import EXPECTED

# What is told as the check of a start that refuses is, without the commands' own words for it,
# a start that comes no further.
REFUSED_LATER = {
    "places_not_checked",
    "digest_binds_too_little",
    "touched_plane",
    "foreign_rows_in_plane",
}
NOT_TOLD = {"mixed_bundle_restored"}
"""Those whose start refuses in the last step of the counterexample."""


def example_of(mutant: str) -> Counterexample:
    return read_trace(shipped("traces", "counterexamples", f"{mutant}.itf.json"))


def test_every_fault_is_one_of_the_bond() -> None:
    assert set(CUTLOCK.faults) == {mutant for fault in FAULTS.values() for mutant in fault.mutants}
    assert not set(CUTLOCK.faults) & set(WITHOUT_A_FAULT)
    assert {*CUTLOCK.faults, *WITHOUT_A_FAULT} >= set(BARRIER.faults)


@pytest.mark.parametrize("mutant", EXPECTED)
def test_the_run_breaks_and_holds_as_by_the_command(mutant: str) -> None:
    example, expected = example_of(mutant), EXPECTED[mutant]
    assert replay(CUTLOCK, example, faulty=True).breaks_as_told
    found = replay(CUTLOCK, example)
    assert found.diverged == expected.apart
    if mutant in REFUSED_LATER:
        assert (found.ending, found.step) == (Ending.REFUSED, expected.real_step + 1)
    elif mutant in NOT_TOLD:
        assert (found.ending, found.step) == (Ending.KEPT, expected.real_step)
    else:
        assert (found.ending, found.step) == (expected.real, expected.real_step)


@pytest.mark.parametrize("mutant", REAL_BARRIER)
def test_the_barrier_breaks_and_holds_as_by_the_command(mutant: str) -> None:
    assert replay(BARRIER, example_of(mutant), faulty=True).breaks_as_told
    found = replay(BARRIER, example_of(mutant))
    assert (found.ending, found.step, found.diverged) == REAL_BARRIER[mutant]


def test_a_trace_of_the_barrier_is_none_of_the_run() -> None:
    with pytest.raises(ConformanceError, match="the alphabet knows no action 'EnterFast'"):
        replay(CUTLOCK, example_of("barrier_leaks_a_count"))


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
