"""Owners of a prompt that change in more than one step, and rows without an owner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, cast

import msgspec

from cutlock.barrier import Cut, Slot
from cutlock.buffer import ReplayBuffer
from cutlock.conformance.faults.switch import TRUSTS_THE_CUT, Fault, Patch, Switch, built
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.ledger import Ledger
from cutlock.records import LedgerRecord, Phase
from cutlock.run.rollouts import PromptGroup, Rollouts
from cutlock.run.state import RunState
from cutlock.tlc.values import Function, Value

__all__ = ["OWNERSHIP_FAULTS"]


class _ForgetsLate:
    """The ledger as the buffer sees it: a commit leaves the record, for some later moment.

    Args:
        on_take: selection and eviction discard what they take.
    """

    def __init__(self, ledger: Ledger, *, on_take: bool) -> None:
        self._ledger = ledger
        self._on_take = on_take
        self.late: set[str] = set()
        """Groups whose record is still to go."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._ledger

    def __getitem__(self, group_id: str) -> LedgerRecord:
        return self._ledger[group_id]

    def discard(self, slot: Slot, group_id: str) -> None:
        self.late.add(group_id)

    def discard_owned(self, slot: Slot, group_ids: Sequence[str]) -> list[str]:
        return self._ledger.discard_owned(slot, group_ids) if self._on_take else []


def _forgets_late(*, on_take: bool) -> Switch:
    def change(state: RunState) -> None:
        state.buffer._ledger = cast(Ledger, _ForgetsLate(state.ledger, on_take=on_take))

    def shows(stepper: Stepper, state: dict[str, Value]) -> None:
        if stepper.incarnation is None or stepper.incarnation.state is None:
            return
        ledger = cast(_ForgetsLate, stepper.incarnation.state.buffer._ledger)
        task = dict(cast(Function, state["task"]))
        for prompt in map(stepper.bounds.prompt, ledger.late):
            if task[prompt] == "none":
                task[prompt] = "late"
        state["task"] = Function(task)

    return built(change) | Switch(shows=shows)


def _not_subtracted() -> Switch:
    original = Ledger.snapshot

    def snapshot(ledger: Ledger, cut: Cut, owned: Collection[str]) -> tuple[LedgerRecord, ...]:
        return original(ledger, cut, ())

    return Switch(patches=(Patch(Ledger, "snapshot", snapshot),))


def _admitted_one_by_one() -> Switch:
    whole = Rollouts._admit

    async def admit_each(engine: Rollouts, admission_id: int) -> AsyncIterator[PromptGroup]:
        while admission_id in dict(engine._state.ledger.reserved()):
            async for group in whole(engine, admission_id):
                yield group

    def admit(ledger: Ledger, slot: Slot, admission_id: int, **given: Any) -> list[LedgerRecord]:
        first = dict(ledger.reserved())[admission_id][0]
        return [ledger._add(msgspec.structs.replace(first, phase=Phase.ADMITTED, **given))]

    return Switch(patches=(Patch(Rollouts, "_admit", admit_each), Patch(Ledger, "admit", admit)))


def _rows_left_behind() -> Switch:
    original = ReplayBuffer._roll_back

    async def roll_back(
        buffer: ReplayBuffer,
        slot: Slot,
        group_id: str,
        attempt: int,
        keys: object,
        error: Exception,
    ) -> object:
        return await original(buffer, slot, group_id, attempt, (), error)

    return Switch(patches=(Patch(ReplayBuffer, "_roll_back", roll_back),))


OWNERSHIP_FAULTS = (
    Fault(
        name="ledger_forgets_late",
        what="a commit leaves its ledger record, and so does the selection",
        mutants=("late_forget", "late_forget_live", "late_forget_on_disk"),
        protection=_forgets_late(on_take=False),
    ),
    Fault(
        name="ledger_forgets_late_unsubtracted",
        what="a commit leaves its ledger record, and a save writes it beside the index",
        mutants=("late_forget_not_subtracted_on_save",),
        protection=_forgets_late(on_take=True) | _not_subtracted(),
        second_lines=TRUSTS_THE_CUT,
    ),
    Fault(
        name="admission_prompt_by_prompt",
        what="the prompts of a batch are admitted one by one",
        mutants=("admitted_one_by_one",),
        protection=_admitted_one_by_one(),
    ),
    Fault(
        name="rows_left_behind",
        what="a failed commit does not clear its rows",
        mutants=("rows_left_behind",),
        protection=_rows_left_behind(),
    ),
)
