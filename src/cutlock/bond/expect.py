"""What has to hold of a protocol, its model and its code; what does not is told step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cutlock.bond.bond import PLANES, Bond, S
from cutlock.bond.cover import Diverged, ModelPaths, cover
from cutlock.bond.logs import Accepted, accept
from cutlock.bond.replay import Ending, Replayed, replay
from cutlock.bond.table import step_table
from cutlock.errors import ConformanceError, DivergenceError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.check import Checked, check_models
from cutlock.tlc.graph import Graph
from cutlock.tlc.itf import Counterexample
from cutlock.tlc.manifest import Mode
from cutlock.tlc.mutants import counterexample_file, example_of
from cutlock.tlc.run import Toolchain
from cutlock.tlc.selftest import self_test

__all__ = ["expect_accepted", "expect_breaks", "expect_checked", "expect_covered", "expect_holds"]


def expect_checked(bond: Bond[S], toolchain: Toolchain, traces: Path | None = None) -> None:
    """TLC finds every model as the manifest says, mutants included; a self-test comes first.

    Args:
        traces: folder of counterexamples, which have to be those that TLC finds.

    Raises:
        ConformanceError: naming each model that is not as expected, and why.
        ToolError: the checker fails its self-test.
    """
    self_test(toolchain)
    wrong: list[str] = []

    def look(checked: Checked) -> None:
        wrong.extend(f"{checked.result.name}: {reason}" for reason in checked.result.why_not)
        if traces is None or checked.model.mode is not Mode.MUTANT:
            return
        path, example = counterexample_file(traces, checked.model), example_of(checked)
        if example is not None and (not path.is_file() or path.read_bytes() != example):
            wrong.append(f"{checked.result.name}: {path} is not the counterexample that TLC finds")

    check_models(toolchain, bond.models, bond.models.models, on_checked=look)
    if wrong:
        raise ConformanceError(
            f"not as {bond.manifest} says: {'; '.join(wrong)}; see `cutlock check --manifest "
            f"{bond.manifest}`, and write traces anew with `cutlock mutants --manifest "
            f"{bond.manifest} --traces {traces} --write`"
        )


def expect_covered(
    bond: Bond[S],
    model: str,
    graph: Graph,
    *,
    plane: str = PLANES[0],
    seed: int = 0,
    save: Path | None = None,
) -> ModelPaths:
    """The code does every edge of a graph, and comes to the same states; see `cover`.

    Raises:
        DivergenceError: it does not; with the steps up to there.
        ConformanceError: an action of the alphabet is on no edge; and see `cover`.
    """
    told: list[str] = []

    def tell(walk: Counterexample, diverged: Diverged) -> None:
        last = len(walk.steps) - 1
        head, *notes = diverged.text.splitlines()
        told.append(f"{model}, {head}{_first(diverged.variables)}")
        told.append(step_table(walk.steps, last, [note.strip() for note in notes]))

    found = cover(bond, model, graph, plane=plane, seed=seed, save=save, on_divergence=tell)
    if found.divergence is not None:
        if found.divergence.trace is not None:
            told.append(f"kept in {found.divergence.trace}")
        raise DivergenceError("\n".join(told))
    if found.why_not:
        raise ConformanceError(
            f"{model}: {'; '.join(found.why_not)}; widen the model's bounds until it happens, or "
            "list the action under `never` of its row"
        )
    return found


def expect_breaks(
    bond: Bond[S], example: Counterexample, *, plane: str = PLANES[0], seed: int = 0
) -> Replayed:
    """With the fault switched in the code goes through every state, and breaks in the same step.

    Raises:
        DivergenceError: it does not; with the steps up to there.
    """
    found = replay(bond, example, faulty=True, plane=plane, seed=seed)
    if not found.breaks_as_told:
        raise DivergenceError(_told(example, found, "the code with the fault"))
    return found


def expect_holds(
    bond: Bond[S], example: Counterexample, *, plane: str = PLANES[0], seed: int = 0
) -> Replayed:
    """The code as it is refuses a step of the counterexample, or keeps the promise.

    Raises:
        DivergenceError: it breaks the promise; with the steps up to there.
    """
    found = replay(bond, example, plane=plane, seed=seed)
    if found.ending is Ending.BROKEN:
        raise DivergenceError(_told(example, found, "the code as it is"))
    return found


def expect_accepted(
    bond: Bond[S], logs: Mapping[str, Sequence[ActionCall]], toolchain: Toolchain
) -> tuple[Accepted, ...]:
    """Every log is a behaviour of the specification; see `accept`.

    Raises:
        DivergenceError: naming the first event of each that is not.
    """
    found = accept(bond, logs, toolchain)
    refused = [str(log) for log in found if not log.ok]
    if refused:
        raise DivergenceError("\n".join(refused))
    return found


_ENDS = {
    Ending.BROKEN: "breaks {promise} in",
    Ending.NOTICED: "ends by a check of its own in",
    Ending.REFUSED: "refuses",
    Ending.KEPT: "keeps {promise} to the end,",
}


def _told(example: Counterexample, found: Replayed, which: str) -> str:
    """What has come of a replay, and the steps up to where it is clear."""
    ends = f"{_ENDS[found.ending].format(promise=found.promise)} {_step(example, found.step)}"
    if found.diverged is None:
        head = f"{example.model}: {which} {ends}"
        return f"{head}\n{step_table(example.steps, found.step, [found.why])}"
    names = [line.partition(":")[0] for line in found.differences]
    apart = f"is in another state after {_step(example, found.diverged)}{_first(names)}"
    later = f"later it {ends}: " if found.step > found.diverged else ""
    notes = [*found.differences, f"{later}{found.why}"]
    table = step_table(example.steps, found.diverged, notes)
    return f"{example.model}: {which} {apart}\n{table}"


def _step(example: Counterexample, number: int) -> str:
    return f"step {number} of {len(example.steps) - 1}, {example.steps[number].action}"


def _first(variables: Sequence[str]) -> str:
    return f"; the first that differs is {variables[0]}" if variables else ""
