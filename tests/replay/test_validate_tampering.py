"""A log that says anything else than what happened is refused, at the right event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import pytest

from cutlock.conformance.validation.logs import RunLog, Validated, read_run, validate
from cutlock.run.directory import RunDirectory
from cutlock.tlc.run import Toolchain
from cutlock.tlc.values import Function, Value
from tests.support.kept_runs import TRACES

SPEC = Path(__file__).parents[2] / "spec"
RUNS = ("in_order", "windowed")
SOON = 25
"""Events after a tampered one."""

PUMP = {
    "ReserveBatch",
    "FillSparePool",
    "RaiseEpoch",
    "DrainSparePool",
    "OpenGate",
    "CommitAdmission",
}
"""What the rollout pump does; what is neither of it nor of one group is of the train pump."""

COMMUTES = {
    "two rollouts take their own steps": {
        "BeginCommit, BeginCommit",
        "BeginCommit, FailGroup",
        "BeginCommit, LaunchGroup",
        "BeginCommit, PutRows",
        "CommitGroup, FailGroup",
        "CommitGroup, PutRows",
        "CommitGroup, RollbackGroup",
        "DropGroup, BeginCommit",
        "LaunchGroup, BeginCommit",
        "LaunchGroup, FailGroup",
        "LaunchGroup, LaunchGroup",
        "LaunchGroup, PutRows",
        "LaunchGroup, RollbackGroup",
    },
    "a rollout goes on while the pump looks for more": {
        "CommitAdmission, FailGroup",
        "LaunchGroup, OpenGate",
        "RaiseEpoch, LaunchGroup",
    },
    "the watchdog aborts one rollout, another goes on": {
        "AbortStale, BeginCommit",
        "AbortStale, PutRows",
        "BeginCommit, AbortStale",
        "CommitGroup, AbortStale",
    },
    "a rollout goes on beside a step that does not take its group": {
        "BeginCommit, SelectGroups",
        "ClearRows, LaunchGroup",
        "ClearRows, PutRows",
        "CommitGroup, RaiseVersion",
        "CommitGroup, SyncWeights",
        "LaunchGroup, SelectGroups",
    },
    "the pump goes on beside a step that does not move the version": {
        "ClearRows, OpenGate",
        "SyncWeights, OpenGate",
    },
    "a slot that is held goes on while a cut waits for it": {
        "CommitGroup, RequestCut",
        "RequestCut, PutRows",
    },
    "generation starts and fails outside of every slot, also while a cut is open": {
        "FailGroup, SavePlane",
        "LaunchGroup, OpenCut",
        "ReadLedger, FailGroup",
        "RequestCut, FailGroup",
    },
    "the window is over, files are written beside everything": {
        "CommitGroup, WriteSidecars",
        "DropGroup, PublishBundle",
        "LaunchGroup, WriteManifest",
        "WriteManifest, FailGroup",
        "WritePolicy, BeginCommit",
        "WritePolicy, SubstituteGroup",
        "WriteSidecars, FailGroup",
    },
}
"""Neighbours that may change places, and why that is a behaviour again."""

SECOND_MAY_COME_FIRST = {
    "BeginCommit, Crash": "a kill may come at any time; what follows it has no process",
    "TrainStep, Crash": "a kill may come at any time; what follows it has no process",
    "BeginCommit, RaiseVersion": "the commit notes the version before",
    "BeginCommit, RequestCut": "the door is closed to the commit",
    "EvictGroups, RequestCut": "the door is closed to the train pump's own slot",
}
"""Neighbours of which the first is what does not fit when they have changed places."""

UNNOTICED = {
    "in_order": {"TrainStep", "EndRun"},
    "windowed": {"LaunchGroup", "BeginCommit", "CommitGroup", "ClearRows", "EndRun"},
}
"""What may be left out once: the last that is told of its subject before a kill or the end."""


def name_of(event: Value) -> str:
    assert isinstance(event, Function)
    name = event["name"]
    assert isinstance(name, str)
    return name


def named_in(event: Value) -> set[Value]:
    """The prompts that an event names."""
    assert isinstance(event, Function)
    found: set[Value] = set()
    for value in event.values():
        if isinstance(value, tuple):
            found.add(value)
        elif isinstance(value, frozenset):
            found |= value
    return found


def subject(event: Value) -> Value:
    """Whose step it is: a group's, the rollout pump's or the train pump's."""
    assert isinstance(event, Function)
    if "group" in event and name_of(event) != "AbortStale":
        return event["group"]
    return "pump" if name_of(event) in PUMP else "train"


def again(gone: Value, events: Sequence[Value], place: int) -> int | None:
    """Where the subject of an event that is gone is told of next, before the start ends.

    Who owns a group is told by every event that names it, how far its rollout is only by its
    own. A group that was evicted is told of by nothing; the next cut reads without it.
    """
    whose = {subject(gone)} if name_of(gone) != "EvictGroups" else set()
    owners = name_of(gone) in {"CommitGroup", "SubstituteGroup", "EvictGroups"}
    for i in range(place, len(events)):
        if name_of(events[i]) == "Crash":
            return None
        if subject(events[i]) in whose or (owners and named_in(events[i]) & named_in(gone)):
            return i
    return None


@dataclass(frozen=True)
class Tampered:
    """A good log with one thing changed."""

    how: str
    what: str
    """Names of the actions, or of an argument too."""
    place: int
    """Index of the first event that is not as it was."""
    events: tuple[Value, ...]
    gone: Value | None = None
    """The event that was left out."""


Found: TypeAlias = dict[str, list[tuple[Tampered, Validated]]]


def changed(
    event: Value, before: Sequence[Value], everyone: Iterable[Value]
) -> Iterator[tuple[str, Value]]:
    """The event with each of its arguments changed, one at a time."""
    assert isinstance(event, Function)
    for name, value in event.items():
        other: Value
        match value:
            case _ if name in ("name", "kept"):
                continue
            case int():
                other = value + 1
            case str():
                other = "max_steps"
            case frozenset():
                other = frozenset(sorted(value, key=str)[1:]) if value else frozenset({(1, 1)})
            case _:
                other = idle(value, before, everyone)
        yield str(name), Function({**event, name: other})


def idle(value: Value, before: Sequence[Value], everyone: Iterable[Value]) -> Value:
    """Another prompt, of which nothing can be told now: not admitted yet, or gone."""
    crash = max((i for i, event in enumerate(before) if name_of(event) == "Crash"), default=0)
    admitted, gone = set[Value](), set[Value]()
    for event in before[crash:]:
        assert isinstance(event, Function)
        match name_of(event):
            case "CommitAdmission" | "RestoreLedger" | "RestoreIndex":
                admitted |= named_in(event)
            case "SubstituteGroup":
                admitted.add(event["substitute"])
                gone.add(event["group"])
            case "TrainStep" | "DropGroup" | "AbortStale":
                gone |= named_in(event)
    others = {*everyone} - {value}
    return min((others - admitted) | (others & gone) or others, key=str)


def tampered(run: RunLog) -> Iterator[Tampered]:
    good = run.events
    for i, event in enumerate(good):
        before, after, name = tuple(good[:i]), tuple(good[i + 1 :]), name_of(event)
        for argument, other in changed(event, before, run.groups):
            yield Tampered("change", f"{name}.{argument}", i, (*before, other, *after))
        yield Tampered("drop", name, i, (*before, *after), gone=event)
        yield Tampered("repeat", name, i + 1, (*before, event, event, *after))
        if after and after[0] != event:
            following = name_of(after[0])
            swapped = (*before, after[0], event, *after[1:])
            yield Tampered("swap", f"{name}, {following}", i, swapped)


@pytest.fixture(scope="module")
def found(toolchain: Toolchain) -> Found:
    """The verdict on everything that can be done to the logs of two runs."""
    results = {}
    for name in RUNS:
        good = read_run(RunDirectory(TRACES / "runs" / name))
        forged = [*tampered(good)]
        # Most are refused soon; only what is not is read to its end.
        first = [with_events(good, each.events[: each.place + SOON]) for each in forged]
        verdicts = validate(toolchain, SPEC, first)
        rest = [i for i, verdict in enumerate(verdicts) if verdict.ok]
        whole = [with_events(good, forged[i].events) for i in rest]
        untouched, *later = validate(toolchain, SPEC, [good, *whole])
        assert untouched.ok
        for i, verdict in zip(rest, later, strict=True):
            verdicts[i] = verdict
        results[name] = [*zip(forged, verdicts, strict=True)]
    return results


def with_events(run: RunLog, events: tuple[Value, ...]) -> RunLog:
    return replace(run, events=events, places=tuple(map(str, range(len(events)))))


def refused_at(verdict: Validated) -> int | None:
    return None if verdict.refusal is None else int(verdict.refusal.where)


pytestmark = pytest.mark.tlc


@pytest.mark.parametrize("name", RUNS)
class TestEvery:
    def test_change_of_an_argument_is_refused_at_its_event(self, found: Found, name: str) -> None:
        wrong = [
            (forged.what, forged.place, refused_at(verdict))
            for forged, verdict in found[name]
            if forged.how == "change" and refused_at(verdict) != forged.place
        ]
        assert wrong == []

    def test_repetition_is_refused_at_its_event(self, found: Found, name: str) -> None:
        wrong = [
            (forged.what, forged.place, refused_at(verdict))
            for forged, verdict in found[name]
            if forged.how == "repeat" and refused_at(verdict) != forged.place
        ]
        assert wrong == []

    def test_gap_is_noticed_when_its_subject_is_told_of_again(
        self, found: Found, name: str
    ) -> None:
        unnoticed = set()
        for forged, verdict in found[name]:
            if forged.how != "drop":
                continue
            assert forged.gone is not None
            at, limit = refused_at(verdict), again(forged.gone, forged.events, forged.place)
            if at is None:
                assert limit is None, forged.what
                unnoticed.add(forged.what)
            else:
                assert forged.place <= at, forged.what
                assert limit is None or at <= limit, (forged.what, forged.place, at, limit)
        assert unnoticed == UNNOTICED[name]


def test_neighbours_that_depend_on_each_other_cannot_change_places(found: Found) -> None:
    swaps = [pair for name in RUNS for pair in found[name] if pair[0].how == "swap"]
    offsets: dict[int | None, set[str]] = {}
    for forged, verdict in swaps:
        at = refused_at(verdict)
        offsets.setdefault(None if at is None else at - forged.place, set()).add(forged.what)
        if at is None:
            first, second = forged.events[forged.place : forged.place + 2]
            assert subject(first) != subject(second)
    assert {*offsets} == {None, 0, 1}
    assert offsets[None] == set().union(*COMMUTES.values())
    assert offsets[1] == {*SECOND_MAY_COME_FIRST}


def test_nearly_all_is_noticed(found: Found) -> None:
    """What the tables above list is little."""
    for name in RUNS:
        accepted = Counter(forged.how for forged, verdict in found[name] if verdict.ok)
        total = Counter(forged.how for forged, _ in found[name])
        assert accepted["change"] == accepted["repeat"] == 0
        assert accepted["drop"] < total["drop"] / 10
        assert accepted["swap"] < total["swap"] / 3
