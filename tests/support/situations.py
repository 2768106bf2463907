"""Every state in which a cut may find a run, as a script that brings it about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from cutlock.alphabet import Action
from cutlock.records import Phase, Snapshot
from tests.support.mutations import FAILS, SPARES
from tests.support.rig import Incarnation, Rig

SAMPLERS = ("windowed", "ready_first", "weight_fifo", "in_order")

EVERY_STEP = {"every": 1}
"""A bundle after every step."""

CREDITING = ("ready_first", "in_order")
"""Samplers whose step waits for a known number of groups."""


@dataclass(frozen=True)
class Situation:
    """How a run gets there, and what its cut then holds.

    Args:
        prepare: puts up holds before the start.
        arrange: does the rest while the train pump stands before the cut.
        holds: checks that the cut is of this situation; gets the sampler's name.
    """

    name: str
    arrange: Callable[[Incarnation], Awaitable[object]]
    holds: Callable[[Snapshot, str], bool]
    prepare: Callable[[Incarnation], Awaitable[object]] | None = None
    step: int = 1
    changes: dict[str, Any] = field(default_factory=dict)
    resumed_with: dict[str, Any] | None = None
    """Another configuration for the resumed run."""
    with_rows: bool = True
    failing: tuple[int, ...] = ()
    """Numbers, in the order of the loader, of the groups whose rollouts fail for good."""

    def __str__(self) -> str:
        return self.name

    def configure(self, rig: Rig, sampler: str) -> None:
        rig.configure(**with_sampler(self.changes, sampler))

    def script(self, rig: Rig, run: Incarnation) -> None:
        """Make fail what fails in every run of this situation."""
        for number in self.failing:
            run.generator.fail(rig.served[number])

    async def reach(self, rig: Rig) -> Incarnation:
        """Start a run and bring it to where its train pump stands before the cut."""

        async def prepare(run: Incarnation) -> None:
            self.script(rig, run)
            if self.prepare is not None:
                await self.prepare(run)

        run = await rig.run_to(self.step, prepare)
        await self.arrange(run)
        await run.quiet()
        return run


def narrow(situation: Situation) -> Situation:
    """The same, saved by a narrow cut."""
    checkpoint = {**situation.changes.get("checkpoint", {}), "cut": "narrow"}
    return replace(situation, changes={**situation.changes, "checkpoint": checkpoint})


def with_sampler(changes: dict[str, Any], sampler: str) -> dict[str, Any]:
    # `windowed` evicts what is older than its window; this one is wide enough for all.
    window = 3 if sampler == "windowed" else 1
    given = changes.get("sampler", {})
    return {**changes, "sampler": {"name": sampler, "window": window, **given}}


def _holding(action: Action, **where: Any) -> Callable[[Incarnation], Awaitable[None]]:
    async def prepare(run: Incarnation) -> None:
        run.pump_hold = run.holds.hold(action, **where)

    return prepare


async def _at_the_hold(run: Incarnation) -> None:
    await run.at(run.pump_hold)


async def _in_flight(run: Incarnation) -> None:
    for group in run.rig.batch(1):
        await run.logged(Action.LAUNCH_GROUP, group=group)


async def _partly_finished(run: Incarnation) -> None:
    first, second = run.rig.batch(1)
    run.generator.finish(first)
    await run.logged(Action.COMMIT_GROUP, group=first)
    await run.logged(Action.LAUNCH_GROUP, group=second)


async def _finished(run: Incarnation) -> None:
    run.generator.finish(*run.rig.batch(1))
    for group in run.rig.batch(1):
        await run.logged(Action.COMMIT_GROUP, group=group)


async def _exhausted(run: Incarnation) -> None:
    await run.logged(Action.RESERVE_BATCH, admission=3)


async def _spares(run: Incarnation) -> None:
    await run.logged(Action.FILL_SPARE_POOL)


async def _short(run: Incarnation) -> None:
    lost, other = run.rig.batch(1)
    run.generator.finish(lost)
    await run.logged(Action.DROP_GROUP, group=lost)
    await run.logged(Action.LAUNCH_GROUP, group=other)


def _phases(snapshot: Snapshot, phase: Phase) -> int:
    return sum(record.phase is phase for record in snapshot.ledger)


SITUATIONS = (
    Situation(
        "empty buffer",
        _at_the_hold,
        lambda cut, _: not cut.index and not cut.ledger,
        _holding(Action.RESERVE_BATCH, skip=1),
    ),
    Situation(
        "partly filled step",
        _partly_finished,
        lambda cut, _: len(cut.index) == 1 and _phases(cut, Phase.ADMITTED) >= 1,
    ),
    Situation(
        "batch reserved, not admitted",
        _at_the_hold,
        lambda cut, _: (
            not cut.index
            and len(cut.ledger) == _phases(cut, Phase.RESERVED) == 2
            and len({record.admission_id for record in cut.ledger}) == 1
        ),
        _holding(Action.COMMIT_ADMISSION, admission=1),
    ),
    Situation(
        "admitted, in flight",
        _in_flight,
        lambda cut, _: not cut.index and _phases(cut, Phase.ADMITTED) >= 2,
    ),
    Situation(
        "finished step",
        _finished,
        lambda cut, _: len(cut.index) == 2,
    ),
    Situation(
        "epoch boundary",
        _at_the_hold,
        lambda cut, _: (cut.loader.epoch, cut.loader.position) == (1, 0),
        _holding(Action.RESERVE_BATCH, skip=2),
        changes={"task": {"prompts": 4}, "epochs": 2},
    ),
    Situation(
        "exhausted loader with a short tail",
        _exhausted,
        lambda cut, _: cut.loader.exhausted and len(cut.ledger) == 3,
        step=2,
        changes={"task": {"prompts": 7}},
    ),
    Situation(
        "spare pool filled",
        _spares,
        lambda cut, _: len(cut.spare_pool) == 2,
        changes={"buffer": SPARES},
    ),
    Situation(
        "shortfall on the current step",
        _short,
        lambda cut, sampler: (
            cut.dropped == 1 and cut.shortfall == (((1, 1),) if sampler in CREDITING else ())
        ),
        changes={"failures": FAILS},
        failing=(2,),
    ),
    Situation(
        "saved without rows",
        _partly_finished,
        lambda cut, _: not cut.index and _phases(cut, Phase.ADMITTED) >= 2,
        changes={"checkpoint": {"rows": False}},
    ),
    Situation(
        "resumed without rows",
        _partly_finished,
        lambda cut, _: len(cut.index) == 1,
        with_rows=False,
    ),
)


def more_groups_than_places(sampler: str) -> Situation:
    """Six groups are in flight at the cut; the resumed run has fewer places."""

    async def all_in_flight(run: Incarnation) -> None:
        for group in (*run.rig.batch(1), *run.rig.batch(2), *run.rig.batch(3)):
            await run.logged(Action.LAUNCH_GROUP, group=group)

    before: dict[str, Any]
    after: dict[str, Any]
    if sampler == "windowed":
        # Its capacity does not follow from its window.
        before = {"buffer": {"capacity": 6}}
        after = {"buffer": {"capacity": 2}}
    else:
        before, after = {"sampler": {"window": 2}}, {"sampler": {"window": 1}}
    return Situation(
        "more unfinished groups than places",
        all_in_flight,
        lambda cut, _: _phases(cut, Phase.ADMITTED) == 6,
        changes=before,
        resumed_with=after,
    )
