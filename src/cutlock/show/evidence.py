"""What the steps before a broken promise say about how it came to that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cutlock.show.contradictions import Found
from cutlock.show.moments import listed
from cutlock.show.spec_state import disk_owners, name_of, names_of, prompts_of
from cutlock.tlc.itf import Counterexample

__all__ = ["evidence"]

State = Mapping[str, Any]

_OF_A_SAVE = frozenset(
    {"DiskOneOwner", "DiskCursor", "DiskStamps", "DiskEpoch", "DiskRows", "Inventory"}
)


def evidence(example: Counterexample) -> Iterator[Found]:
    """What led to the broken promise of a counterexample, as far as it is of a known kind."""
    if example.property in _OF_A_SAVE:
        yield from _read_apart(example)
    if example.property == "NoTwice":
        yield from _trained_in(example)
    if example.property == "NoBatchDropped":
        yield from _stamped_twice(example)


def _read_apart(example: Counterexample) -> Iterator[Found]:
    """Values of the last save that were read at another moment than the rest, and had changed."""
    states: list[Any] = [step.state for step in example.steps]
    reads: dict[str, int] = {}
    for number, state in enumerate(states):
        for artifact in _LIVE:
            if state["cap"][artifact]["set"] and not states[number - 1]["cap"][artifact]["set"]:
                reads[artifact] = number
    if not reads:
        return
    last = max(reads.values())
    for artifact, number in sorted(reads.items(), key=lambda item: item[1]):
        then, later = _LIVE[artifact](states[number - 1]), _LIVE[artifact](states[last - 1])
        if number < last and then != later:
            yield Found(
                f"the save read the {_TITLES[artifact]} in step {number} ({then}) and the last of "
                f"its values in step {last}, when it was {later}: the two are of no one moment"
            )


def _trained_in(example: Counterexample) -> Iterator[Found]:
    """In which steps a prompt was trained, and as what a restore has brought it back."""
    restored = [n for n, step in enumerate(example.steps) if step.action.name == "VerifyBundle"]
    for prompt in prompts_of(example.steps[-1].state):
        trained = [
            number
            for number, step in enumerate(example.steps)
            if step.action.name == "TrainStep" and prompt in step.action.arguments["groups"]  # type: ignore[operator]
        ]
        if len(trained) > 1:
            told = f"{name_of(prompt)} is trained in {listed(f'step {n}' for n in trained)}"
            between = [n for n in restored if trained[0] < n < trained[-1]]
            if between:
                owners = disk_owners(example.steps[between[-1]].state, prompt)
                told += f"; the bundle that step {between[-1]} restores has it as {listed(owners)}"
            yield Found(told)


def _stamped_twice(example: Counterexample) -> Iterator[Found]:
    """Stamps that more than one admission has given."""
    given: dict[int, list[str]] = {}
    for number, step in enumerate(example.steps):
        if step.action.name == "CommitAdmission":
            groups: Any = step.action.arguments["groups"]
            state: Any = step.state
            stamp = max(state["idx"][prompt] for prompt in groups)
            told = f"in step {number} to {listed(names_of(groups))}"
            given.setdefault(stamp, []).append(told)
    for stamp, times in given.items():
        if len(times) > 1:
            yield Found(f"the stamp {stamp} was given {len(times)} times: {', and '.join(times)}")


def _owed(state: State) -> str:
    return listed(
        names_of(
            p for p in prompts_of(state) if state["led"][p] != "none" and p not in state["index"]
        )
    )


_TITLES = {
    "cursor": "cursor",
    "loader": "loader's position",
    "pool": "spare pool",
    "index": "index",
    "ledger": "ledger",
}
_LIVE: dict[str, Callable[[State], str]] = {
    "cursor": lambda state: str(state["cursor"]),
    "loader": lambda state: f"{state['pos']} batches, epoch {state['epoch']}",
    "pool": lambda state: listed(names_of(state["pool"])),
    "index": lambda state: listed(names_of(state["index"])),
    "ledger": _owed,
}
