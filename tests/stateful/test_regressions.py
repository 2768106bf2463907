"""What was found once is not found again: every kept trace, on the real code."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutlock.conformance.free.moves import MACHINE_MOVES
from cutlock.conformance.free.pair import Pair
from cutlock.conformance.reference.model import Reference
from cutlock.conformance.stepping.stepper import Stepper
from tests.stateful.regressions import kept, read, take_again


def test_some_traces_are_kept() -> None:
    assert kept()


@pytest.mark.parametrize("path", kept(), ids=lambda path: path.name.partition(".")[0])
def test_the_code_goes_where_a_kept_trace_does(path: Path) -> None:
    take_again(*read(path))


@pytest.mark.parametrize("path", kept(), ids=lambda path: path.name.partition(".")[0])
def test_the_reference_goes_where_a_kept_trace_does(path: Path, ram_path: Path) -> None:
    trace, bounds = read(path)
    with Stepper(bounds, ram_path / "run", moves=MACHINE_MOVES) as stepper:
        pair = Pair(Reference(bounds, max_crashes=len(trace.steps)), stepper)
        pair.make([step.action for step in trace.steps[1:]])
        assert [dict(s.state) for s in pair.steps] == [dict(s.state) for s in trace.steps]
