"""The kept traces; `python -m tests.stateful.regressions` makes their states anew.

The moves stay as they are: for a variable that the specification has got, or lost.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from cutlock.bond import Setting
from cutlock.bond.walk import take
from cutlock.conformance.free.moves import MACHINE_MOVES
from cutlock.conformance.free.pair import Pair, constants_of_trace
from cutlock.conformance.protocol import FREE
from cutlock.conformance.reference.model import Reference
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.tlc.itf import Counterexample, from_itf, to_itf
from cutlock.tlc.manifest import load_manifest

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "traces" / "regressions"


def kept() -> list[Path]:
    return sorted(TRACES.glob("*.itf.json"))


def read(path: Path) -> tuple[Counterexample, Bounds]:
    """A trace of a pair has its bounds in it; any other names its row of the manifest."""
    trace = from_itf(path.read_bytes())
    if trace.model.startswith("["):
        return trace, Bounds.of(constants_of_trace(trace))
    manifest = load_manifest(ROOT / "model_check" / "manifest.toml")
    [model] = manifest.select([trace.model])
    return trace, Bounds.read(manifest.config(model).path)


def take_again(trace: Counterexample, bounds: Bounds) -> None:
    """Make the moves of a trace on a new run, and compare every state."""
    first, *rest = trace.steps
    calls = tuple(step.action for step in rest)
    with FREE.begin(Setting(model=trace.model, constants=bounds.constants, calls=calls)) as run:
        steps = [(step.action, step.state) for step in rest]
        take(steps, run, start=first.state, explain=run.explain)


def main() -> None:
    for path in kept():
        trace, bounds = read(path)
        with (
            tempfile.TemporaryDirectory() as made,
            Stepper(bounds, Path(made) / "run", moves=MACHINE_MOVES) as stepper,
        ):
            pair = Pair(Reference(bounds, max_crashes=len(trace.steps)), stepper)
            pair.make([step.action for step in trace.steps[1:]])
            path.write_bytes(to_itf(pair.trace()))
        print(path.name)


if __name__ == "__main__":
    main()
