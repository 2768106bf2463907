"""A counterexample or a walk in the Informal Trace Format as a story."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cutlock.report.pages.data import Breach, Fact, Step, Story
from cutlock.report.pages.lanes import doing
from cutlock.show.moments import Moment, Owner, Told, chapter, listed, with_changes
from cutlock.show.promises import breach_of
from cutlock.show.spec_state import moment, name_of, names_of, plain, prompts_of
from cutlock.tlc.itf import Counterexample
from cutlock.tlc.itf import Step as TraceStep
from cutlock.tlc.values import Value

__all__ = ["story_of_trace"]

_MANY = 12
"""Prompts from which on those are left out of the picture of which nothing becomes."""


def story_of_trace(example: Counterexample, source: str, why: str = "") -> Story:
    """The story of a trace.

    Args:
        why: what is broken in the model, as the manifest says it; empty if it is not known.
    """
    barrier = "led" not in example.steps[0].state
    found = breach_of(example)
    breach, rows = found if found is not None else (None, ())
    told = with_changes([_told(n, step, barrier=barrier) for n, step in enumerate(example.steps)])
    if breach is not None:
        broken = (f"{breach.promise} {breach.check}: {breach.meaning}",)
        last = told[-1]
        told[-1] = Told(msgspec.structs.replace(last.step, broken=broken), last.moment)
    many = len(told[0].moment.owners) > _MANY
    walk = example.model.startswith("[")
    return Story(
        kind="trace",
        title=_title(example, breach),
        lead=_lead(example, why, walk=walk),
        source=source,
        facts=tuple(_facts(example, barrier=barrier)),
        notes=(),
        breaches=() if breach is None else (breach,),
        chapters=(chapter("", told, rows, resting=many),),
        loop=None if _stands_still(example) else example.loop,
    )


def _title(example: Counterexample, breach: Breach | None) -> str:
    last = len(example.steps) - 1
    if breach is None:
        return f"A walk of {last} steps through the protocol"
    what = breach.contradictions[0] if breach.contradictions else breach.meaning.rstrip(".")
    if _stands_still(example):
        return f"After step {last} nothing can go on: {what}"
    if example.loop is not None:
        return f"Steps {example.loop + 1} to {last} repeat for ever, and {what}"
    return f"After step {last}, {what}"


def _stands_still(example: Counterexample) -> bool:
    """Whether it ends in a state that nothing leaves; TLC gives that as a loop of its own."""
    return example.property == "deadlock" or example.loop == len(example.steps) - 1


def _lead(example: Counterexample, why: str, *, walk: bool) -> str:
    if walk:
        return "A walk on which code and specification once differed; today they agree on it."
    broken = f" What is broken in it: {why.rstrip('.')}." if why else ""
    way = "A shortest way" if example.loop is None else "A way"
    return (
        f"{way} into a broken promise, found by TLC in the model {example.model}, which "
        f"lacks one protection that cutlock has.{broken}"
    )


def _facts(example: Counterexample, *, barrier: bool) -> list[Fact]:
    facts = [Fact("model", example.model), Fact("property", example.property)]
    facts.append(Fact("steps", str(len(example.steps) - 1)))
    if not barrier:
        first = prompts_of(example.steps[0].state)[0]
        facts.append(
            Fact("names", f"{name_of(first)}: prompt {plain(first[1])} of batch {first[0]}")
        )
        facts.append(Fact("cursor -1", "no batch has been admitted yet"))
    else:
        facts.append(Fact("names", "w1, w2 enter slots; s1, s2 are saves that ask for a cut"))
    return facts


def _told(number: int, step: TraceStep, *, barrier: bool) -> Told:
    name, state = step.action.name, step.state
    known = doing(name)
    lane = known.lane
    if barrier:
        who = step.action.arguments.get("who")
        lane = "cut" if who is not None and plain(who).startswith("s") else "slot"
    return Told(
        Step(
            number=number,
            action=name,
            lane=lane,
            meaning=known.meaning,
            arguments=tuple(
                Fact(key, _text(value)) for key, value in step.action.arguments.items()
            ),
        ),
        _barrier_moment(state) if barrier else moment(state),
    )


def _text(value: Value) -> str:
    match value:
        case frozenset():
            return listed(names_of(value))
        case (int(), _):
            return name_of(value)
    return plain(value)


def _barrier_moment(state: Mapping[str, Any]) -> Moment:
    people = sorted(state["state"].items(), key=lambda item: plain(item[0]), reverse=True)
    return Moment(
        owners={plain(who): Owner(at) for who, at in people},
        counters={"slots counted": str(state["slots"]), "queue length": str(len(state["queue"]))},
        details={"queue": ", ".join(map(plain, state["queue"])) or "empty"},
        bands={"window": "cut open"} if state["open"] else {},
    )
