"""The page about the early cursor says what the kept counterexample says."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

from cutlock.tlc.itf import Counterexample, from_itf

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "early-cursor.md"
TRACE = ROOT / "traces" / "counterexamples" / "story_cursor_early.itf.json"


def rows() -> list[list[str]]:
    found = re.findall(r"^\| (\d+) \| `(\w+)` \| (.*) \|$", PAGE.read_text(), re.M)
    return [[step, action, *rest.split(" | ")] for step, action, rest in found]


def finished(groups: Any) -> str:
    batches = Counter(batch for batch, _ in groups)
    return ", ".join(f"{batches[batch]} of batch {batch}" for batch in sorted(batches)) or "none"


def told(example: Counterexample, number: int) -> list[str]:
    step = example.steps[number]
    state: Any = step.state
    read, disk = state["cap"]["cursor"], state["disk"]
    return [
        str(number),
        step.action.name,
        str(state["version"]),
        str(state["cursor"]),
        str(read["v"]) if read["set"] else "",
        finished(state["index"]),
        f"{disk['cursor']}; {finished(disk['index'])}",
    ]


def test_every_row_is_a_step_of_the_counterexample() -> None:
    example = from_itf(TRACE.read_bytes())
    assert [[cell.strip() for cell in row] for row in rows()] == [
        told(example, int(row[0])) for row in rows()
    ]


def test_the_rows_leave_out_single_groups_only() -> None:
    example = from_itf(TRACE.read_bytes())
    shown = {int(row[0]) for row in rows()}
    left_out = {s.action.name for n, s in enumerate(example.steps) if n not in shown}
    assert left_out <= {"LaunchGroup", "BeginCommit", "PutRows", "CommitGroup"}


def test_the_story_has_the_numbers_that_it_starts_with_and_ends_with_a_lost_batch() -> None:
    example = from_itf(TRACE.read_bytes())
    first, last = example.steps[0].state, example.steps[-1].state
    assert (first["version"], first["cursor"]) == (7, 6)
    assert finished(last["dropped"]) == "4 of batch 9"
