"""Gate, order of launches, places and shortfall: what keeps a run within bounds, and going."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator

from cutlock.barrier import Slot
from cutlock.conformance.faults.switch import TRUSTS_THE_CUT, Fault, Patch, Switch, nothing
from cutlock.conformance.stepping.incarnation import Incarnation
from cutlock.ledger import Ledger
from cutlock.records import LedgerRecord
from cutlock.run import restore
from cutlock.run.config import parse_config
from cutlock.run.rollouts import PromptGroup, Rollouts
from cutlock.samplers.base import Admission, GatedSampler, GroupView
from cutlock.samplers.builtin import WeightFifoSampler
from cutlock.spare_pool import Shortfall

__all__ = ["DISPATCH_FAULTS", "RAISES_NO_CURSOR"]


async def _at_once(*arguments: object) -> None:
    """Wait for nothing."""


async def _reserved_first(engine: Rollouts) -> AsyncGenerator[PromptGroup]:
    """`Rollouts._owed` with its loops the other way round."""
    state = engine._state
    admitted = state.ledger.admitted()
    for admission_id, _ in state.ledger.reserved():
        async for group in engine._admit(admission_id):
            yield group
    for record in admitted:
        await state.permits.acquire()
        yield engine._place(record)
    while (next_id := await engine._next_batch()) is not None:
        async for group in engine._admit(next_id):
            yield group


def _raises_no_cursor() -> Switch:
    raises = GatedSampler.commit_admission

    def commit_admission(sampler: GatedSampler, slot: Slot, version: int) -> Admission:
        admission = raises(sampler, slot, version)
        sampler._cursor -= 1
        return admission

    return Switch(patches=(Patch(GatedSampler, "commit_admission", commit_admission),))


RAISES_NO_CURSOR = _raises_no_cursor()
"""An admission leaves the cursor where it is."""


def _in_another_order() -> Switch:
    """The first of every batch, then the others."""
    in_order = Ledger.admitted

    def admitted(ledger: Ledger) -> list[LedgerRecord]:
        seen: dict[int, itertools.count[int]] = {}
        place = {
            record.group_id: next(seen.setdefault(record.admission_id, itertools.count()))
            for record in in_order(ledger)
        }
        return sorted(in_order(ledger), key=lambda record: place[record.group_id])

    return Switch(patches=(Patch(Ledger, "admitted", admitted),))


def _need_without_empty_step(
    sampler: WeightFifoSampler, version: int, groups: int, shortfall: int, view: GroupView
) -> int:
    _, live = sampler._oldest(version, view)
    return min(groups, live) if live else groups


def _fewer_places(incarnation: Incarnation) -> None:
    """A resume has as many places as a step has prompts; only a window of 0 allows that."""
    if incarnation.bundle is None:
        return
    plain = incarnation._config.plain()
    plain["sampler"]["window"] = 0
    plain["buffer"]["capacity"] = plain["prompts_per_step"]
    incarnation._config = parse_config(plain)


DISPATCH_FAULTS = (
    Fault(
        name="gate_ignored",
        what="nobody waits at the gate",
        mutants=("gate_ignored",),
        protection=Switch(patches=(Patch(GatedSampler, "wait_until_admissible", _at_once),)),
        second_lines=Switch(patches=(Patch(GatedSampler, "_gate_open", lambda *given: True),)),
    ),
    Fault(
        name="stamp_given_twice",
        what="an admission does not raise the cursor",
        mutants=("stamp_given_twice",),
        protection=RAISES_NO_CURSOR,
        second_lines=TRUSTS_THE_CUT
        | Switch(patches=(Patch(Rollouts, "_covered", lambda *given: False),)),
    ),
    Fault(
        name="reserved_before_admitted",
        what="a resume admits what was RESERVED before it launches what was ADMITTED",
        mutants=("reserved_before_admitted", "admitted_never_launched"),
        protection=Switch(patches=(Patch(Rollouts, "_owed", _reserved_first),)),
    ),
    Fault(
        name="launch_in_any_order",
        what="a resume launches what was ADMITTED in another order than that of dispatch",
        mutants=("launch_in_any_order",),
        world=Switch(prepare=_fewer_places),
        protection=_in_another_order(),
    ),
    Fault(
        name="places_not_checked",
        what="a resume does not ask whether the finished groups leave places",
        mutants=("places_not_checked",),
        world=Switch(prepare=_fewer_places),
        protection=Switch(patches=(Patch(restore, "_require_places", nothing),)),
    ),
    Fault(
        name="nothing_credited",
        what="a lost group is not credited to its step",
        mutants=("nothing_credited",),
        protection=Switch(patches=(Patch(Rollouts, "_credit", nothing),)),
    ),
    Fault(
        name="shortfall_not_saved",
        what="a save leaves the shortfall out",
        mutants=("shortfall_not_saved",),
        protection=Switch(patches=(Patch(Shortfall, "snapshot", lambda shortfall, cut: ()),)),
    ),
    Fault(
        name="no_empty_step",
        what="a step whose groups were all lost is waited for",
        mutants=("no_empty_step", "no_empty_step_at_the_end"),
        protection=Switch(patches=(Patch(WeightFifoSampler, "need", _need_without_empty_step),)),
    ),
)
