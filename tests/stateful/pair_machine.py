"""The state machine: what the spec allows is drawn, done in the code, and compared.

There is one rule, so it is a plain loop. Hypothesis mixes numbers that it finds in the source
of all loaded modules into what it draws; booleans alone make a seed mean the same schedules
whatever else is loaded.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from cutlock.alphabet import Action
from cutlock.conformance.free.moves import MACHINE_MOVES
from cutlock.conformance.free.pair import LOSSES, Pair
from cutlock.conformance.reference.model import Reference
from cutlock.conformance.reference.state import prompts_of
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.moves import MOVES
from cutlock.conformance.stepping.planes import PlaneHost
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.errors import DivergenceError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.itf import to_itf
from tests.stateful.regressions import TRACES, kept

SAVE_REGRESSIONS = "CUTLOCK_SAVE_REGRESSIONS"
T = TypeVar("T")

UNITS = ("u1", "u2")
MEMORY = Path("/dev/shm")

SEED = 4
STEPS = 200
DEFAULT = settings(
    max_examples=100,
    deadline=None,
    database=None,
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
UNSHRUNK = settings(DEFAULT, phases=[Phase.generate])

# What is drawn next, the first as what a failure is simplified to. A slow rollout ends in `any`.
GO, ANY, LOSE, FAIL, FORBIDDEN, CRASH = "go", "any", "lose", "fail", "forbidden", "crash"
MOODS = {
    "calm": (GO,) * 80 + (ANY,) * 10 + (FORBIDDEN,) * 10,
    "rough": (GO,) * 80 + (ANY,) * 10 + (LOSE,) * 16 + (FAIL,) * 2 + (FORBIDDEN,) * 8 + (CRASH,),
    "stormy": (GO,) * 60
    + (ANY,) * 10
    + (LOSE,) * 30
    + (FAIL,) * 3
    + (FORBIDDEN,) * 6
    + (CRASH,) * 2,
}
REFUSED = "refused"
HELD_BACK = {Action.BEGIN_COMMIT, Action.STORE_ROW, Action.PUT_ROWS, Action.COMMIT_GROUP}


@st.composite
def one_of(draw: st.DrawFn, items: Sequence[T]) -> T:
    """An item; a failure is simplified towards the first."""
    bits = (len(items) - 1).bit_length() + 2
    number = sum(draw(st.booleans()) << bit for bit in range(bits))
    return items[number * len(items) >> bits]


@st.composite
def all_bounds(draw: st.DrawFn) -> Bounds:
    """Larger than a model's: two to four prompts a step, up to six batches in two epochs."""
    sampler = draw(one_of(("in_order", "windowed", "ready_first", "weight_fifo")))
    size = draw(one_of((2, 3, 4)))
    per_epoch = draw(one_of((2, 1, 3)))
    batches = per_epoch * draw(one_of((1, 2)))
    window = draw(one_of((0, 0, 1) if sampler == "windowed" else (1, 0, 2)))
    least = size if sampler == "windowed" else size * (window + 1)
    more = draw(one_of((size * batches, size, 1, 0)))
    return Bounds(
        batches=batches,
        per_epoch=per_epoch,
        members=tuple(range(1, size + 1)),
        window=window,
        sampler=sampler,
        spare_mark=draw(one_of((0, 2, 1))),
        max_failures=draw(one_of((6, 3))),
        capacity=least + more,
        units=UNITS[: draw(one_of((1, 2)))],
        narrow=draw(one_of((False, True))),
    )


class PairMachine:
    """One run: bounds, a mood, slow rollouts, and then one move after another.

    Args:
        done: counts the moves.
        host: of two units; None for stores in memory, of as many units as are drawn.
    """

    def __init__(
        self, data: st.DataObject, root: Path, done: Counter[str], host: PlaneHost | None
    ) -> None:
        self._data = data
        self._done = done
        bounds = data.draw(all_bounds(), "bounds")
        if host is not None:
            bounds = replace(bounds, units=UNITS, narrow=False)
        self._mood = MOODS[self._draw(sorted(MOODS))]
        prompts = prompts_of(bounds)
        self._slow = {self._draw(prompts), self._draw(prompts), self._draw(prompts)}
        crashes = self._draw((4, 2, 1))
        self.stepper = Stepper(bounds, root / "run", moves=MACHINE_MOVES, host=host)
        self.pair = Pair(Reference(bounds, max_crashes=crashes), self.stepper)

    def _draw(self, items: Sequence[T]) -> T:
        return self._data.draw(one_of(items))

    def move(self) -> bool:
        """Make one; False at the end of the run."""
        kind = self._draw((GO, CRASH) if self._is_well_saved() else self._mood)
        if kind == FORBIDDEN:
            self._try_forbidden()
            return True
        calls = self._choices(kind)
        if kind == LOSE:
            name = self._draw(sorted({call.name for call in calls}))
            calls = [call for call in calls if call.name == name]
        call = self._draw(calls)
        self.pair.do(call, gives_up=call.name in LOSSES and self._draw((False, True)))
        self._done[call.name] += 1
        return call.name != Action.END_RUN or self._draw((False, False, False, True))

    def _is_well_saved(self) -> bool:
        """Right after a save in the middle of a run, when a crash costs least and shows most."""
        state, disk = self.pair.state, self.pair.state.disk
        rich = disk.version > 0 or disk.index or any(disk.short.values())
        return state.sv == "published" and bool(rich) and not self.pair.terms.settled

    def _choices(self, kind: str) -> list[ActionCall]:
        options = self.pair.options()
        losses = [call for call in options if call.name in LOSSES]
        failures = [call for call in options if call.name == Action.FAIL_SAVE]
        crash = [call for call in options if call.name == Action.CRASH]
        progress = [call for call in options if call not in (*losses, *failures, *crash)]
        if self.pair.steps[-1].action.name == Action.END_RUN:
            return crash or progress
        chosen = {
            GO: [call for call in progress if not self._is_slow(call)],
            ANY: progress,
            LOSE: losses,
            FAIL: failures,
            CRASH: crash,
        }
        return chosen[kind] or progress

    def _is_slow(self, call: ActionCall) -> bool:
        return call.name in HELD_BACK and call.arguments["group"] in self._slow

    def _try_forbidden(self) -> None:
        calls = self.pair.tempting()
        if not calls or self._draw((False, True)):
            calls = self.pair.forbidden(Action(self._draw(sorted(MOVES))))
        if calls:
            self.pair.refuse(self._draw(calls))
            self._done[REFUSED] += 1


def run(
    profile: settings, seed: int = SEED, steps: int = STEPS, host: PlaneHost | None = None
) -> Counter[str]:
    """Run the machine; what it did, by move. A failure is kept as a trace if that is asked for.

    Args:
        steps: the most moves of one run.
        host: see `PairMachine`.
    """
    done: Counter[str] = Counter()
    last: list[Pair] = []

    @profile
    @hypothesis.seed(seed)
    @given(st.data())
    def walk(data: st.DataObject) -> None:
        memory = MEMORY if MEMORY.is_dir() else None
        with tempfile.TemporaryDirectory(dir=memory) as made:
            machine = PairMachine(data, Path(made), done, host)
            last[:] = [machine.pair]
            try:
                for _ in range(steps):
                    if not machine.move():
                        break
            finally:
                note(machine.pair.walk())
                machine.stepper.close()

    try:
        walk()
    except DivergenceError:
        if os.environ.get(SAVE_REGRESSIONS):
            TRACES.mkdir(parents=True, exist_ok=True)
            path = TRACES / f"machine_{len(kept()) + 1}.itf.json"
            path.write_bytes(to_itf(last[0].trace()))
        raise
    return done
