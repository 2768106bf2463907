"""Comparison of a bundle with the history that led to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cutlock.audit.account import Account
from cutlock.audit.fates import Fate
from cutlock.audit.history import History
from cutlock.bundle.contents import TrainingInfo, decode_cut, read_training_info
from cutlock.bundle.verification import verify
from cutlock.records import IndexEntry, LedgerRecord, Phase, Snapshot

__all__ = ["SavedCut", "differences", "read_cut"]


@dataclass(frozen=True)
class SavedCut:
    """What a verified bundle holds."""

    path: Path
    info: TrainingInfo
    cut: Snapshot


def read_cut(path: Path) -> SavedCut:
    """Verify and decode a bundle.

    Raises:
        BundleCorruptError: it is not whole, or not of one cut.
    """
    verified = verify(path)
    return SavedCut(path, read_training_info(verified), decode_cut(verified))


def differences(saved: SavedCut, history: History, account: Account) -> Iterator[str]:
    """What a bundle says otherwise than the logs, each as a message that names the bundle.

    Args:
        account: of everything in the logs up to the bundle's cut.
    """
    name, info, cut = saved.path.name, saved.info, saved.cut
    if (step := history.cut_at(info.incarnation, info.log_records)) != cut.step:
        yield (
            f"{name}: record {info.log_records} of incarnation {info.incarnation} is "
            f"{'no cut' if step is None else f'the cut of step {step}'}"
        )
    for what, in_bundle, in_logs in _pairs(info, cut, account):
        if isinstance(in_bundle, set) and isinstance(in_logs, set):
            if in_bundle != in_logs:
                yield (
                    f"{name}: {what} differs from the logs: only in the bundle "
                    f"{sorted(in_bundle - in_logs)[:4]}, only in the logs "
                    f"{sorted(in_logs - in_bundle)[:4]}"
                )
        elif in_bundle != in_logs:
            yield f"{name}: {what} is {in_bundle} in the bundle and {in_logs} in the logs"
    for group_id, in_bundle, in_logs in _admissions(cut, account):
        if in_bundle != in_logs:
            yield (
                f"{name}: {group_id} has (admission, cursor, stamp, start weight) {in_bundle} in "
                f"the bundle and {in_logs} in the logs"
            )


def _pairs(
    info: TrainingInfo, cut: Snapshot, account: Account
) -> Iterator[tuple[str, object, object]]:
    fates, admissions, step = account.fates, account.admissions, account.steps.step
    ready = fates.owned(Fate.BUFFER)
    admitted = fates.owned(Fate.ADMITTED)
    yield "spare pool", {s.key for s in cut.spare_pool}, fates.owned(Fate.POOL)
    yield "index", {e.group_id for e in cut.index}, ready if info.rows else set()
    for phase, groups in (
        (Phase.RESERVED, fates.owned(Fate.RESERVED)),
        (Phase.ADMITTED, admitted if info.rows else admitted | ready),
    ):
        yield (
            f"{phase} part of the ledger",
            {r.group_id for r in cut.ledger if r.phase is phase},
            groups,
        )
    yield "cursor", cut.cursor, admissions.cursor
    yield "step", cut.step, step
    yield "version", cut.version, step
    yield "next admission", cut.next_admission, admissions.next_admission
    yield "loader (epoch, position)", (cut.loader.epoch, cut.loader.position), admissions.loader
    yield "number of prompts given up", cut.dropped, fates.given_up
    yield "number of trained groups", info.trained_groups, fates.trained.total()
    yield "training chain of the policy", info.trained_chain[:16], fates.chain[:16]


def _admissions(
    cut: Snapshot, account: Account
) -> Iterator[tuple[str, tuple[int | None, ...], tuple[int | None, ...]]]:
    given = account.admissions.given
    entries: tuple[IndexEntry | LedgerRecord, ...] = (*cut.index, *cut.ledger)
    for entry in entries:
        there = (entry.admission_id, entry.dispatch_index, entry.stamp, entry.start_weight)
        logged = given.get(entry.group_id)
        if logged is not None:
            weight = entry.start_weight if logged.start_weight is None else logged.start_weight
            here = (logged.admission, logged.cursor, logged.stamp, weight)
            yield entry.group_id, there, here
