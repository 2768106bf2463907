"""The event logs of a run, or one of them, as a story."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from cutlock.alphabet import ARGUMENTS, Action
from cutlock.audit.account import Account
from cutlock.audit.history import COMPLETE, Event, History, read_history
from cutlock.report.pages.data import Breach, Chapter, Fact, Step, Story
from cutlock.report.pages.lanes import doing
from cutlock.run.directory import RunFacts
from cutlock.show.events import Follower, Saved, groups_of
from cutlock.show.moments import Told, chapter, listed, with_changes
from cutlock.show.promises import PROMISES

__all__ = ["Logs", "Refused", "story_of_logs"]

_FEW, _MANY = 60, 160
"""Events of a chapter: from so many on it ends with a training step, at the most it has."""
_BREACHES = 12
"""Problems that are explained; every one is marked in its step."""


@dataclass(frozen=True)
class Refused:
    """The first event of a run that the specification does not allow, found by somebody else."""

    where: str
    """File, line and action."""
    what: str
    """In a few words, for the title."""
    told: tuple[str, ...]


@dataclass(frozen=True)
class Logs:
    """What there is to tell a story from."""

    paths: dict[int, Path]
    """Logs by incarnation."""
    source: str
    only: int | None = None
    """The incarnation that is told; None for all of them."""
    facts: RunFacts | None = None
    """None if there is no `run.json` beside the logs."""
    refused: Refused | None = None
    accepted: bool = False
    """Whether the specification allows all of it, as somebody else has found."""
    torn: tuple[int, ...] = field(default=())
    """Incarnations whose log ends in the middle of a line."""


_CHECKS = {
    "Fates": (
        "P2",
        "Every prompt goes from one owner to the next, in the order of the protocol.",
        "A prompt that two owners have is trained twice, one that nobody has is lost.",
    ),
    "Admissions": (
        "P3",
        "Cursor, stamps, loader position and epoch move together, and a save reads them as they "
        "are.",
        "A restart goes on counting from the saved values: a stamp is given twice, or an epoch is "
        "served again.",
    ),
    "Attempts": (
        "P2",
        "Every rollout is launched, and then committed, rolled back, failed or aborted.",
        "Rows belong to no attempt, or an attempt is counted twice.",
    ),
    "Steps": (
        "P5",
        "A training step selects, computes advantages, trains, clears and raises the version.",
        "What the step trains is not what the history says.",
    ),
    "Saves": (
        "P1",
        "A save does its steps in their order, and nothing moves while its window is open.",
        "The bundle holds values of two moments: prompts are lost or repeated after a restart.",
    ),
    "Restores": (
        "P6",
        "A restore brings back all of the saved state, in its order, before anything runs.",
        "The run goes on from something else than what was saved.",
    ),
}


def story_of_logs(logs: Logs) -> Story:
    """The story of a run, or of one start of it.

    Raises:
        AuditError: a log is not one, or the logs do not hang together.
    """
    history = read_history(logs.paths)
    whole = logs.facts is not None
    teller = _Teller(logs, history)
    for incarnation in sorted(history.logs):
        teller.tell(incarnation)
    breaches = teller.breaches() if whole else []
    told = teller.told
    return Story(
        kind="log",
        title=_title(logs, history, told, breaches),
        lead=_lead(logs, history, told),
        source=logs.source,
        facts=tuple(_facts(logs, history, told)),
        notes=tuple(_notes(logs, history)),
        breaches=tuple(breaches[:_BREACHES]),
        chapters=tuple(_chapters(teller, breaches)),
    )


class _Teller:
    """Walks through all starts, and keeps what is to be told."""

    def __init__(self, logs: Logs, history: History) -> None:
        self._logs, self._history = logs, history
        self.told: list[Told] = []
        self.starts: list[int] = []
        """The start that each of the steps is of."""
        self._bundles: dict[tuple[int, str], Saved] = {}
        self._disk: Saved | None = None
        self._noticed: list[tuple[str, str]] = []
        facts = logs.facts
        events = [event for log in history.logs.values() for event in log]
        known = max(
            (_epoch_of(group) + 1 for event in events for group in groups_of(event)), default=1
        )
        self._prompts = facts.prompts if facts is not None else _named_in(events)
        epochs = facts.config.get("epochs") if facts is not None else 0
        self._epochs = max(known, epochs if isinstance(epochs, int) else 0)

    def tell(self, incarnation: int) -> None:
        logs, history = self._logs, self._history
        parent = history.parent(incarnation)
        past: Iterable[Event] = []
        if parent is not None and logs.facts is not None:
            past = history.until(parent.args.incarnation, parent.args.log_records)
        account = Account(self._prompts, self._epochs, past)
        follower = Follower(account, self._bundles, self._disk, resumes=parent is not None)
        shown = logs.only in {None, incarnation}
        told: list[Told] = []
        before = len(self.told) if logs.only is None else 0
        events = history.logs[incarnation]
        for place, event in enumerate(events, 1):
            self._noticed += follower.follow(event)
            if shown:
                told.append(Told(_step(before + place, event, events[0].t), follower.moment()))
        if shown and logs.only is None and _killed(events) and incarnation < history.newest:
            told.append(_crash(before + len(events) + 1, follower))
        self._disk = follower.disk
        self.told += with_changes(told)
        self.starts += [incarnation] * len(told)

    def breaches(self) -> list[Breach]:
        """What does not fit, in the order of the steps."""
        numbers = {one.step.where: one.step.number for one in self.told}
        noticed: list[Breach] = []
        for check, problem in self._noticed:
            where, _, text = problem.partition(": ")
            if where in numbers:
                noticed.append(_noticed(numbers[where], check, text))
        noticed.sort(key=lambda breach: breach.step)
        refused = self._logs.refused
        if refused is None or refused.where not in numbers:
            return noticed
        number = numbers[refused.where]
        there = [breach for breach in noticed if breach.step == number]
        first = _refused(number, refused, there)
        return [first, *(breach for breach in noticed if breach not in there)]


def _noticed(number: int, check: str, text: str) -> Breach:
    promise, meaning, consequence = _CHECKS[check]
    return Breach(
        step=number,
        promise=promise,
        promise_text=PROMISES[promise],
        check=f"cutlock audit, {check.lower()}",
        meaning=meaning,
        contradictions=(text,),
        consequence=consequence,
    )


def _refused(number: int, refused: Refused, there: Sequence[Breach]) -> Breach:
    """A refusal, with what the audit says of that very step."""
    if not there:
        return Breach(
            step=number,
            promise="",
            promise_text="every event of a log is a step of the specification",
            check="cutlock validate",
            meaning="TLC takes the events one by one, and names the first that does not fit.",
            contradictions=refused.told,
            consequence="The log is not that of a run that keeps the promises.",
        )
    return msgspec.structs.replace(
        there[0],
        check=f"cutlock validate; {there[0].check}",
        contradictions=(*refused.told, *(text for b in there for text in b.contradictions)),
    )


def _step(number: int, event: Event, began: float) -> Step:
    known = doing(event.action)
    return Step(
        number=number,
        action=str(event.action),
        lane=known.lane,
        meaning=known.meaning,
        arguments=tuple(
            Fact(name, _text(getattr(event.args, name))) for name in ARGUMENTS[event.action]
        ),
        where=event.where.rpartition(" ")[0] + f" {event.action}",
        time_s=round(event.t - began, 6),
    )


def _crash(number: int, follower: Follower) -> Told:
    known = doing(Action.CRASH)
    step = Step(number=number, action=str(Action.CRASH), lane=known.lane, meaning=known.meaning)
    return Told(step, follower.crash())


def _text(value: Any) -> str:
    if isinstance(value, list):
        return listed(value) if value else "none"
    return "none" if value is None else str(value)


def _killed(events: Sequence[Event]) -> bool:
    return not events or events[-1].action is not Action.END_RUN


def _epoch_of(group: str) -> int:
    epoch = group.rpartition("@")[2]
    return int(epoch) if epoch.isdecimal() else 0


def _named_in(events: Iterable[Event]) -> tuple[str, ...]:
    groups = (group for event in events for group in groups_of(event))
    return tuple(dict.fromkeys(group.rpartition("@")[0] for group in groups))


def _chapters(teller: _Teller, breaches: Sequence[Breach]) -> Iterable[Chapter]:
    broken: dict[int, list[str]] = {}
    for breach in breaches:
        broken.setdefault(breach.step, []).append(
            f"{breach.promise} {breach.check}: {'; '.join(breach.contradictions)}".strip()
        )
    part: list[Told] = []
    pairs = list(zip(teller.told, teller.starts, strict=True))
    for place, (one, start) in enumerate(pairs):
        if one.step.number in broken:
            marked = msgspec.structs.replace(one.step, broken=tuple(broken[one.step.number]))
            one = Told(marked, one.moment)
        part.append(one)
        last = place + 1 == len(pairs) or pairs[place + 1][1] != start
        whole = one.step.action == Action.SYNC_WEIGHTS and len(part) >= _FEW
        if last or len(part) >= _MANY or (whole and len(pairs) - place > _FEW // 2):
            yield chapter(_chapter_title(part, start), part, resting=True)
            part = []


def _chapter_title(part: Sequence[Told], start: int) -> str:
    trained = [one for one in part if one.step.action == Action.TRAIN_STEP]
    steps = [fact.value for one in trained for fact in one.step.arguments if fact.name == "step"]
    what = "no training step"
    if steps:
        what = (
            f"training step {steps[0]}"
            if len(steps) == 1
            else f"training steps {steps[0]} to {steps[-1]}"
        )
    return f"Start {start}, {what}"


def _title(logs: Logs, history: History, told: Sequence[Told], breaches: Sequence[Breach]) -> str:
    if breaches:
        what = logs.refused.what if logs.refused is not None else breaches[0].contradictions[0]
        return f"Step {breaches[0].step} does not fit: {what}"
    trained = sum(one.step.action == Action.TRAIN_STEP for one in told)
    saved = sum(one.step.action == Action.PUBLISH_BUNDLE for one in told)
    what = f"trained {_count(trained, 'step')} and published {_count(saved, 'bundle')}"
    if logs.only is None:
        return f"{_count(len(history.logs), 'start')} of a run {what}"
    return f"Start {logs.only} {what}"


def _lead(logs: Logs, history: History, told: Sequence[Told]) -> str:
    shown = [logs.only] if logs.only is not None else sorted(history.logs)
    ends = []
    for incarnation in shown:
        events = history.logs[incarnation]
        parent = history.parent(incarnation)
        begun = f"resumed from {parent.args.bundle}" if parent is not None else "began from nothing"
        if not _killed(events):
            reason = str(events[-1].args.reason)
            end = f"ended ({reason})" if reason in COMPLETE else f"failed ({reason})"
        elif incarnation < max(history.logs):
            end = "was killed"
        else:
            end = "was killed, or still runs"
        ends.append(f"start {incarnation} {begun} and {end}")
    return f"{_count(len(told), 'event')}. " + "S" + "; ".join(ends)[1:] + "."


def _facts(logs: Logs, history: History, told: Sequence[Told]) -> Iterable[Fact]:
    first = next((log[0] for log in history.logs.values() if log), None)
    if logs.facts is not None:
        yield Fact("run", logs.facts.run_id)
        yield Fact("data set", f"{logs.facts.data_set}, {len(logs.facts.prompts)} prompts")
    if first is not None and first.action is Action.BEGIN_RUN:
        yield Fact("sampler", first.args.sampler)
        yield Fact("prompts per step", str(first.args.prompts_per_step))
        yield Fact("epochs", str(first.args.epochs))
    yield Fact("names", "a group is PROMPT@EPOCH")
    yield Fact("loader", "epoch:prompts handed out in it")


def _notes(logs: Logs, history: History) -> Iterable[str]:
    for incarnation in logs.torn:
        yield (
            f"The last line of the log of start {incarnation} is torn: the machine died, or the "
            "run is writing it now. It is left out."
        )
    if logs.facts is None:
        yield (
            "There is no run.json beside this log, so nothing was checked: owners are told as the "
            "log names them. Put the log back into the directory of its run, or give that "
            "directory."
        )
    if logs.accepted:
        yield "TLC has accepted the logs of this run as a behaviour of the specification."
    missing = sorted(set(range(1, max(history.logs) + 1)) - set(history.logs))
    if missing and logs.facts is not None:
        yield f"The log of start {listed(map(str, missing))} is missing."


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
