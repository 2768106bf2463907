"""The steps of a trace as a table, up to where specification and code part."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from cutlock.bond.compare import differences
from cutlock.tlc.itf import Step
from cutlock.tlc.values import to_tla

__all__ = ["step_table"]

_MARK = ">"
_ACTION = 24
_LINE = 96
_NO_BREAK = "\N{NO-BREAK SPACE}"


def step_table(steps: Sequence[Step], last: int, notes: Sequence[str]) -> str:
    """A line for each step up to the last one, with what the specification changes in it.

    Args:
        steps: the first is the initial state.
        last: number of the step that is marked, from 0.
        notes: shown under that step, one a line: what differs, or why it was not done.
    """
    lines = []
    for number, step in enumerate(steps[: last + 1]):
        mark = _MARK if number == last else " "
        begin = f"{mark}{number:4}  {step.action!s:{_ACTION}}  "
        lines += wrap(
            "; ".join(_whole(change) for change in _changes(steps, number)) or "-",
            width=_LINE,
            initial_indent=begin,
            subsequent_indent=" " * (7 + _ACTION + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
    lines = [line.replace(_NO_BREAK, " ") for line in lines]
    lines += [f"{'':7}{line}" for note in notes for line in note.splitlines()]
    return "\n".join(lines)


def _whole(change: str) -> str:
    return change.replace(" ", _NO_BREAK)


def _changes(steps: Sequence[Step], number: int) -> list[str]:
    state = steps[number].state
    if number == 0:
        return [f"{name} = {to_tla(value)}" for name, value in sorted(state.items())]
    found = differences(state, steps[number - 1].state)
    return [
        f"{change.path} = {'gone' if change.spec is None else to_tla(change.spec)}"
        for change in found
    ]
