"""The machine can fail: one method is spoilt, and a run of the default size notices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cutlock.alphabet import Action
from cutlock.barrier import Barrier, Slot
from cutlock.buffer import ReplayBuffer
from cutlock.errors import CutlockError, DivergenceError
from cutlock.ledger import Ledger
from cutlock.loader import PromptLoader
from cutlock.records import LedgerRecord
from cutlock.run.save import Saver
from cutlock.samplers.base import GatedSampler
from cutlock.spare_pool import Shortfall, SparePool
from tests.stateful import pair_machine
from tests.stateful.pair_machine import UNSHRUNK, run
from tests.stateful.regressions import read, take_again

pytestmark = pytest.mark.slow

Spoil = Callable[[pytest.MonkeyPatch], None]


def nothing(*_: object, **__: object) -> None:
    pass


def commit_keeps_the_ledger_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "discard", lambda self, slot, group_id: self[group_id])


def commit_is_outside_every_slot(patch: pytest.MonkeyPatch) -> None:
    mutation = Barrier.atomic_mutation

    def unguarded(self: Barrier, kind: str) -> Slot:
        return mutation(Barrier() if kind == "group_commit" else self, kind)

    patch.setattr(Barrier, "atomic_mutation", unguarded)
    patch.setattr(Barrier, "require_slot", nothing)


def cursor_is_restored_one_too_low(patch: pytest.MonkeyPatch) -> None:
    restore = GatedSampler.restore_cursor
    patch.setattr(
        GatedSampler,
        "restore_cursor",
        lambda self, slot, cursor: restore(self, slot, max(cursor - 1, -1)),
    )


def shortfall_is_not_restored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shortfall, "restore", nothing)


def loader_starts_again_after_a_restore(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PromptLoader, "restore", nothing)


def eviction_forgets_the_rows(patch: pytest.MonkeyPatch) -> None:
    async def evict(self: ReplayBuffer, slot: Slot, version: int, groups: Sequence[str]) -> None:
        self._take(groups)
        self._events.record(Action.EVICT_GROUPS, version=version, groups=list(groups))

    patch.setattr(ReplayBuffer, "evict", evict)


def a_retry_is_of_another_step(patch: pytest.MonkeyPatch) -> None:
    reserve = ReplayBuffer.reserve

    def later(self: ReplayBuffer, record: LedgerRecord) -> int:
        attempt = reserve(self, record)
        if attempt:
            self._ledger._records[record.group_id] = msgspec.structs.replace(
                record, dispatch_index=(record.dispatch_index or 0) + 1
            )
        return attempt

    patch.setattr(ReplayBuffer, "reserve", later)


def a_failed_commit_leaves_its_rows(patch: pytest.MonkeyPatch) -> None:
    async def roll_back(self: ReplayBuffer, _: Slot, group: str, attempt: int, *__: Any) -> None:
        self._reserved.pop(group, None)
        self._events.record(Action.ROLLBACK_GROUP, group=group, attempt=attempt)

    patch.setattr(ReplayBuffer, "_roll_back", roll_back)


def a_second_cancellation_stops_the_clear(patch: pytest.MonkeyPatch) -> None:
    async def run_once(_: Slot, effect: Any) -> Any:
        return await effect

    async def wait_once(_: Slot, effect: Any) -> asyncio.CancelledError | None:
        try:
            await effect
        except asyncio.CancelledError as again:
            return again
        return None

    patch.setattr(Slot, "run", run_once)
    patch.setattr(Slot, "until_done", wait_once)


def spares_are_not_saved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SparePool, "snapshot", lambda self, cut: ())


def a_failed_save_counts_as_done(patch: pytest.MonkeyPatch) -> None:
    write = Saver._write

    async def hasty(self: Saver, step: int, *rest: Any) -> None:
        try:
            await write(self, step, *rest)
        except CutlockError:
            self.saved_step = step
            raise

    patch.setattr(Saver, "_write", hasty)


FOUND_BY: dict[Spoil, str] = {
    commit_keeps_the_ledger_record: r"led\[",
    commit_is_outside_every_slot: r"RequestCut\(\): the cut was entered although tasks stand",
    cursor_is_restored_one_too_low: "RestoreCursor.*\n  cursor: ",
    shortfall_is_not_restored: r"RestoreLedger.*\n  short\[",
    loader_starts_again_after_a_restore: "RestoreCursor.*\n  (epoch|pos): ",
    eviction_forgets_the_rows: r"EvictGroups.*\n  rows: ",
    a_retry_is_of_another_step: r"\n  idx\[",
    a_failed_commit_leaves_its_rows: "(RollbackGroup|CancelCommit).*\n  (rows|task)",
    a_second_cancellation_stops_the_clear: "CancelCommitTwice",
    spares_are_not_saved: "(ReadSparePool|TakeCut).*\n  cap.pool",
    a_failed_save_counts_as_done: "FailSave.*\n  saved: ",
}
"""What the divergence says first."""


@pytest.mark.parametrize("spoil", FOUND_BY, ids=lambda spoil: spoil.__name__)
def test_a_planted_fault_is_found(spoil: Spoil, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch)
    with pytest.raises(DivergenceError, match=FOUND_BY[spoil]):
        run(UNSHRUNK)


@pytest.mark.parametrize("asked", [False, True])
def test_a_failure_is_kept_as_a_trace_only_if_that_is_asked_for(
    asked: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commit_keeps_the_ledger_record(monkeypatch)
    monkeypatch.setattr(pair_machine, "TRACES", tmp_path)
    if asked:
        monkeypatch.setenv(pair_machine.SAVE_REGRESSIONS, "1")
    else:
        monkeypatch.delenv(pair_machine.SAVE_REGRESSIONS, raising=False)
    with pytest.raises(DivergenceError):
        run(UNSHRUNK)
    saved = list(tmp_path.iterdir())
    assert len(saved) == asked
    for path in saved:
        trace, bounds = read(path)
        with pytest.raises(DivergenceError, match=f"step {len(trace.steps) - 1}, "):
            take_again(trace, bounds)
