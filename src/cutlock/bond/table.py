"""The steps of a trace as a table, up to where specification and code part."""

from __future__ import annotations

from collections.abc import Sequence

from cutlock.bond.compare import differences
from cutlock.tlc.itf import Step
from cutlock.tlc.values import to_tla

__all__ = ["step_table"]

_MARK = ">"
_WIDTH = 28


def step_table(steps: Sequence[Step], last: int, notes: Sequence[str]) -> str:
    """A line for each step up to the last one, with what the specification changes in it.

    Args:
        steps: the first is the initial state.
        last: number of the step that is marked, from 0.
        notes: shown under that step, one a line: what differs, or why it was not done.
    """
    lines = []
    for number, step in enumerate(steps[: last + 1]):
        changed = "; ".join(_changes(steps, number))
        mark = _MARK if number == last else " "
        lines.append(f"{mark}{number:4}  {step.action!s:{_WIDTH}}  {changed}".rstrip())
    lines += [f"{'':7}{line}" for note in notes for line in note.splitlines()]
    return "\n".join(lines)


def _changes(steps: Sequence[Step], number: int) -> list[str]:
    state = steps[number].state
    if number == 0:
        return [f"{name} = {to_tla(value)}" for name, value in sorted(state.items())]
    found = differences(state, steps[number - 1].state)
    return [
        f"{change.path} = {'gone' if change.spec is None else to_tla(change.spec)}"
        for change in found
    ]
