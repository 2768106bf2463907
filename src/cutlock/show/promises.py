"""Broken promises in words: what is asked for, what contradicts it, and what becomes of it.

Sources: `spec/Invariants.tla`, `spec/Barrier.tla`; the promises of the README.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from cutlock.report.pages.data import Breach
from cutlock.show.contradictions import FINDERS, Found
from cutlock.show.evidence import evidence
from cutlock.tlc.itf import Counterexample

__all__ = ["PROMISES", "breach_of", "contradictions"]

State = Mapping[str, Any]

PROMISES = {
    "P1": "one cut: all saved values are of one reachable state",
    "P2": "one owner: every prompt is in exactly one place, live and on disk",
    "P3": "cursor, stamps, loader position and epoch agree",
    "P4": "the rows in the plane are the rows of the index",
    "P5": "exactly once: no prompt is lost, none is trained twice",
    "P6": "all or nothing: a restore brings back the whole saved state, or refuses it",
    "P7": "it moves: no deadlock, and everything that waits gets its turn",
    "P8": "a bundle that can be found is complete",
}


class _Promise(NamedTuple):
    number: str
    asks: str
    consequence: str


_DEADLOCK = (
    "P7",
    "Something can always go on until the run is at its end.",
    "The run stands still. A stall watchdog can say so; only a restart ends it, and a restart "
    "that comes to the same state stands still again.",
)

_PROMISES: dict[str, _Promise] = {
    name: _Promise(*row)
    for name, row in {
        "TypeOK": (
            "P1",
            "Every variable has a value of its kind.",
            "Nothing else that is promised can be relied on.",
        ),
        "OneOwner": (
            "P2",
            "In the running process every prompt that was handed out has exactly one owner.",
            "Two owners mean that it is trained twice, none that it is lost.",
        ),
        "DiskOneOwner": (
            "P2",
            "In the bundle every prompt that was handed out has exactly one owner.",
            "After a restart, a prompt that is there twice is trained twice, and one that is there "
            "nowhere is lost: nobody has it, and nobody reads it again.",
        ),
        "DiskCursor": (
            "P3",
            "The saved cursor is at least every saved stamp.",
            "A restart goes on counting from the saved cursor and gives the same stamp once more. "
            "Two batches then claim one training step: the step takes one of them, and the "
            "other one is dropped without a word.",
        ),
        "DiskStamps": (
            "P3",
            "A stamp is given once: no more prompts have it than a step takes.",
            "The step takes as many as it needs, and the others are dropped.",
        ),
        "OneAdmission": (
            "P3",
            "A batch is admitted whole, with one stamp.",
            "Its prompts are meant for different steps, and each of these steps waits for groups "
            "that nobody generates.",
        ),
        "DiskEpoch": (
            "P3",
            "The saved epoch is the one that the saved position belongs to.",
            "A restart serves an epoch again, or leaves one out.",
        ),
        "DiskRows": (
            "P4",
            "Every row of the saved index is in the saved store, and listed.",
            "A restart finds an entry in the index without all of its rows: it has to refuse the "
            "bundle, or would train on less than the index says.",
        ),
        "SavedRows": (
            "P4",
            "When a bundle is published, every row of its index is in its store, and listed.",
            "A restart has to refuse the bundle, in whichever way it cuts itself.",
        ),
        "LiveRows": (
            "P4",
            "Between two slots the plane holds the rows of the index and of the open step, no "
            "others.",
            "Rows that nobody owns are never cleared: the plane fills up, and the inventory check "
            "of the next save or restore fails.",
        ),
        "Inventory": (
            "P4",
            "When the rows are saved, they are the rows of the index that was read.",
            "The save stops at its inventory check. Without the check the bundle would hold rows "
            "that no entry owns, or entries without rows.",
        ),
        "FreshAdvantages": (
            "P5",
            "A step trains with advantages that were computed in that step.",
            "The step learns from numbers of another moment; nothing says so.",
        ),
        "NoTwice": (
            "P5",
            "No prompt is trained twice in the history that survives.",
            "The policy has learned from it once more than from the others; the data is not what "
            "a run without a restart would have seen.",
        ),
        "NoLoss": (
            "P5",
            "At the end of the run every prompt is trained, or dropped for a reason.",
            "Nobody trains it any more.",
        ),
        "NoBatchDropped": (
            "P5",
            "A whole batch is not dropped.",
            "Their rollouts were paid for and are thrown away; the run goes on as if they had "
            "never been.",
        ),
        "NoRefusal": (
            "P6",
            "What is published can be restored.",
            "The run cannot go on from its last bundle.",
        ),
        "Complete": (
            "P8",
            "A bundle that can be found has all of its files.",
            "If the machine dies now, the newest bundle cannot be resumed from, and older ones "
            "may already be gone.",
        ),
        "RestoresOneSave": (
            "P6",
            "All files of a bundle that is restored are of one save.",
            "Cursor, loader, pool, index and ledger of two moments are put together, and prompts "
            "are lost or repeated.",
        ),
        "CutExcludes": (
            "P1",
            "No slot that lasts is held while a window is open.",
            "What changes in the slot is saved by halves.",
        ),
        "GateBound": (
            "P3",
            "The cursor is at most the trainer's version plus the gate window.",
            "Rollouts are generated with older weights than the sampler promises.",
        ),
        "deadlock": _DEADLOCK,
        "CutIsTaken": (
            "P7",
            "A cut that was asked for is taken in the end.",
            "The run never saves again: all that it trains is lost with the process.",
        ),
        "SlotEnters": (
            "P7",
            "A slot that waits enters in the end.",
            "What waits in the slot, a commit for example, never happens.",
        ),
        "DeferredEnds": (
            "P7",
            "A clear that waited for a save is done in the end.",
            "Rows of trained groups stay in the plane for ever.",
        ),
        "AdmittedEnds": (
            "P7",
            "Every admitted group is trained or dropped in the end.",
            "Its step waits for ever.",
        ),
        "RestoreEnds": (
            "P7",
            "A restart comes to running pumps.",
            "The run is stuck.",
        ),
        "RunEnds": ("P7", "The run comes to its end.", "The run is stuck."),
        "Exclusion": (
            "P1",
            "An open cut excludes every slot and every other cut.",
            "The save reads values while they change: what it writes is of no one moment.",
        ),
        "Balance": (
            "P7",
            "The counts of the barrier are those of its holders.",
            "A place that nobody holds is never given back: the next cut waits for ever.",
        ),
        "EachQueuedOnce": (
            "P7",
            "Who waits is in the queue once, and nobody else is.",
            "A place is handed to somebody who has gone, and is never given back.",
        ),
        "NoIdlePlace": (
            "P7",
            "Nobody waits for a place that is free.",
            "The waiter may wait for ever.",
        ),
    }.items()
}


def contradictions(check: str, state: State) -> list[Found]:
    """What contradicts what in a state that breaks a check; empty if the check is not known."""
    return list(FINDERS[check](state)) if check in FINDERS else []


def breach_of(example: Counterexample) -> tuple[Breach, tuple[str, ...]] | None:
    """The broken promise of a counterexample, and the rows that show it.

    None for a walk that breaks none.
    """
    check = example.property
    known = _PROMISES.get(check)
    if known is None:
        return None
    last = len(example.steps) - 1
    found = [*contradictions(check, example.steps[-1].state), *evidence(example)]
    return (
        Breach(
            step=last,
            promise=known.number,
            promise_text=PROMISES[known.number],
            check=check,
            meaning=known.asks,
            contradictions=tuple(one.text for one in found),
            consequence=known.consequence,
        ),
        tuple(dict.fromkeys(row for one in found for row in one.rows)),
    )
