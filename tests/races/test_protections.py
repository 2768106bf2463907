"""Each protection is taken away by itself, and the check that it serves falls.

Every attack is made twice: with the protection, when it must do no harm, and without, when it
must be noticed. What takes the protection away is the smallest patch that does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cutlock.alphabet import Action
from cutlock.barrier import Barrier, Cut, Slot
from cutlock.buffer import ReplayBuffer
from cutlock.bundle import contents, verification
from cutlock.bundle.layout import DATA_PLANE, LOADER
from cutlock.conformance.faults.sections import Unguarded, without_slots
from cutlock.errors import (
    BundleCorruptError,
    CapacityError,
    InvariantError,
    InventoryError,
    PlaneTouchedError,
)
from cutlock.ledger import Ledger
from cutlock.plane.memory import MemoryBootstrap
from cutlock.records import LedgerRecord
from cutlock.run import open_save, restore
from cutlock.spare_pool import Shortfall
from tests.support.bundles import reseal
from tests.support.checks import trained
from tests.support.mutations import (
    ADMISSION,
    ADVANCE,
    COMMIT,
    DRAIN,
    DROP,
    EPOCH,
    EVICT,
    FILL,
    SELECT,
    STALE_ABORT,
    SUBSTITUTE,
    Mutation,
    meet,
)
from tests.support.rig import Incarnation, Rig

Patch = pytest.MonkeyPatch
Attack = Callable[[Rig], Awaitable[object]]


@dataclass(frozen=True)
class Protection:
    """What is taken away, the attack on it, and how the attack is noticed."""

    name: str
    remove: Callable[[Patch], None]
    attack: Attack
    error: type[Exception]
    says: str

    def __str__(self) -> str:
        return self.name


# What is taken away.


def no_slot(kind: str) -> Callable[[Patch], None]:
    def remove(patch: Patch) -> None:
        for change in without_slots(kind):
            patch.setattr(change.owner, change.name, change.value)

    return remove


def no_drain(patch: Patch) -> None:
    patch.setattr(Barrier, "checkpoint", lambda barrier: Unguarded(Cut(barrier)))


def no_rollback(patch: Patch) -> None:
    async def leave(*arguments: object) -> None:
        pass

    patch.setattr(ReplayBuffer, "_roll_back", leave)


def no_inventory(patch: Patch) -> None:
    async def trust(*arguments: object, alone: bool = True) -> None:
        pass

    patch.setattr(open_save, "require_inventory", trust)


def no_slot_and_no_inventory(kind: str) -> Callable[[Patch], None]:
    def remove(patch: Patch) -> None:
        no_slot(kind)(patch)
        no_inventory(patch)

    return remove


def late_discard(patch: Patch) -> None:
    """The ledger forgets a committed group only when it is selected."""
    patch.setattr(Ledger, "discard", lambda ledger, slot, group_id: ledger[group_id])


def later_discard(patch: Patch) -> None:
    """Not even then."""
    late_discard(patch)
    patch.setattr(Ledger, "discard_owned", lambda ledger, slot, group_ids: [])


def no_subtraction_on_save(patch: Patch) -> None:
    late_discard(patch)
    patch.setattr(Ledger, "snapshot", lambda ledger, cut, owned: tuple(ledger._records.values()))


def two_owners_allowed(patch: Patch) -> None:
    patch.setattr(open_save, "require_consistent", lambda snapshot: None)
    patch.setattr(contents, "problems", lambda cut: ())


def no_subtraction_on_save_and_no_check(patch: Patch) -> None:
    no_subtraction_on_save(patch)
    two_owners_allowed(patch)


def no_subtraction_at_all(patch: Patch) -> None:
    no_subtraction_on_save_and_no_check(patch)
    subtracting = Ledger.restore

    def restore_all(
        ledger: Ledger,
        slot: Slot,
        records: Sequence[LedgerRecord],
        next_admission: int,
        owned: Collection[str],
    ) -> None:
        subtracting(ledger, slot, records, next_admission, ())

    patch.setattr(Ledger, "restore", restore_all)


def no_digests(patch: Patch) -> None:
    patch.setattr(verification, "_compare", lambda *arguments: None)


def no_cut_id(patch: Patch) -> None:
    patch.setattr(contents, "_compare", lambda *arguments, **values: None)


def no_touch_check(patch: Patch) -> None:
    # Imported here: it brings Ray, which takes seconds.
    from cutlock.plane.transfer_queue import TransferQueueBootstrap

    async def trust(bootstrap: object) -> None:
        pass

    for kind in (MemoryBootstrap, TransferQueueBootstrap):
        patch.setattr(kind, "require_untouched", trust)


def another_order_of_dispatch(patch: Patch) -> None:
    in_order = Ledger.admitted
    patch.setattr(Ledger, "admitted", lambda ledger: in_order(ledger)[::-1])


def shortfall_forgotten(patch: Patch) -> None:
    patch.setattr(Shortfall, "restore", lambda shortfall, slot, missing: None)


def no_places_reserved(patch: Patch) -> None:
    patch.setattr(restore, "_require_places", lambda *arguments: None)


# The attacks.


def during(mutation: Mutation, point: Action) -> Attack:
    """A change while a save stands at `point` of its window; then everything is checked."""

    async def inside(run: Incarnation) -> None:
        if mutation.kind not in run.state.barrier.waiting:
            opened = await run.logged(Action.OPEN_CUT, step=1)
            await run.logged(mutation.action, after=opened.seq)
            await run.others()

    async def attack(rig: Rig) -> None:
        run, bundle = await meet(rig, mutation, point, inside)
        await rig.check_resume(run, bundle, lost=mutation.lost_anyway, audited=not mutation.foreign)

    return attack


async def cut_during_a_commit(rig: Rig) -> None:
    group = rig.batch(1)[0]
    run = await rig.run_to(1)
    hold = run.holds.hold(Action.COMMIT_GROUP, group=group)
    run.generator.finish(group)
    await run.at(hold)
    run.cut.release()
    await run.quiet()
    hold.release()
    await rig.check_resume(run, await run.published(1))


async def cut_after_a_cancelled_commit(rig: Rig) -> None:
    group = rig.batch(1)[0]
    run = await rig.run_to(1)
    hold = run.holds.hold(Action.COMMIT_GROUP, group=group)
    run.generator.finish(group)
    await run.at(hold)
    run.engine.attempts[group].task.cancel()
    await run.quiet()
    run.cut.release()
    await rig.check_resume(run, await run.published(1))


async def save_after_a_commit(rig: Rig) -> tuple[Incarnation, Path]:
    group = rig.batch(1)[0]
    run = await rig.run_to(1)
    run.generator.finish(group)
    await run.logged(Action.COMMIT_GROUP, group=group)
    run.cut.release()
    return run, await run.published(1)


async def owners_on_disk(rig: Rig) -> None:
    _, bundle = await save_after_a_commit(rig)
    rig.check_bundle(bundle)


async def trained_once_after_a_restore(rig: Rig) -> None:
    run, bundle = await save_after_a_commit(rig)
    await run.crash()
    resumed = await rig.resume(bundle)
    await resumed.finish()
    rig.check_end(resumed, audited=False)


async def altered_rows(rig: Rig) -> None:
    """A byte of a storage unit changes on disk: the restored rows are others, or refused."""
    run = await rig.run_to(1)
    await run.commit(*rig.batch(1))
    rows = await run.rows()
    bundle = await run.save_and_crash(1)
    unit = bundle / DATA_PLANE / "unit_0.safetensors"
    unit.write_bytes(unit.read_bytes()[:-1] + b"\x42")
    with contextlib.suppress(BundleCorruptError):
        resumed = await rig.resume(bundle, started=False)
        assert await resumed.rows() == rows


async def sidecar_of_another_save(rig: Rig) -> None:
    run, bundle = await save_after_a_commit(rig)
    await run.crash()
    older = rig.directory.root / "step_0" / LOADER
    (bundle / LOADER).write_bytes(older.read_bytes())
    reseal(bundle)
    with contextlib.suppress(BundleCorruptError):
        rig.check_snapshot(rig.plan(bundle).snapshot, rig.surviving(bundle))


async def store_of_a_living_run(rig: Rig) -> None:
    """A second controller starts on the store of one that is not dead after all."""
    run, bundle = await save_after_a_commit(rig)
    second = rig.plan(bundle, with_rows=False)
    with contextlib.suppress(PlaneTouchedError):
        await rig.launch(second, started=False)
    await run.finish()
    rig.check_end(run)


async def fewer_places_than_groups(rig: Rig) -> None:
    """Six groups are in flight at the cut; the resumed run has four places."""
    rig.configure(sampler={"name": "in_order", "window": 2})
    run = await rig.run_to(0)
    for group in [*rig.batch(0), *rig.batch(1), *rig.batch(2)]:
        await run.logged(Action.LAUNCH_GROUP, group=group)
    bundle = await run.save_and_crash(0)
    rig.configure(sampler={"name": "in_order", "window": 1})
    resumed = await rig.resume(bundle, rig.config)
    await trains_at_once(resumed)


async def places_taken_by_later_steps(rig: Rig) -> None:
    """Two later steps are finished, the next one is not, and the resumed run has four places."""
    rig.configure(sampler={"name": "in_order", "window": 2})
    run = await rig.run_to(1)
    later = [*rig.batch(2), *rig.batch(3)]
    await run.commit(*later)
    bundle = await run.save_and_crash(1)
    rig.configure(sampler={"name": "in_order", "window": 1})
    with contextlib.suppress(CapacityError):
        await trains_at_once(await rig.resume(bundle, rig.config))


async def step_that_lost_a_group(rig: Rig) -> None:
    rig.configure(**DROP.changes)
    group = rig.batch(1)[0]

    async def prepare(run: Incarnation) -> None:
        run.generator.fail(group)
        run.generator.finish(group)

    run = await rig.run_to(1, prepare)
    await run.logged(Action.DROP_GROUP, group=group)
    bundle = await run.save_and_crash(1)
    await trains_at_once(await rig.resume(bundle))


async def trains_at_once(run: Incarnation) -> None:
    run.generator.finish_all()
    await run.quiet()
    assert trained(run.log.records), "the resumed run stands still"


PROTECTIONS = (
    Protection(
        "slot around the put of a commit",
        no_slot("group_commit"),
        during(COMMIT, Action.SAVE_PLANE),
        InventoryError,
        "the plane holds 4 rows and the index 2",
    ),
    Protection(
        "the same, without the save's own check",
        no_slot_and_no_inventory("group_commit"),
        during(COMMIT, Action.SAVE_PLANE),
        AssertionError,
        "CommitGroup: moves something while the cut",
    ),
    Protection(
        "slot around the index entry of a commit",
        no_slot("group_commit"),
        during(COMMIT, Action.READ_LEDGER),
        InventoryError,
        "the plane holds 4 rows and the index 2",
    ),
    Protection(
        "slot around the admission",
        no_slot("admission"),
        during(ADMISSION, Action.READ_LOADER),
        InvariantError,
        "past the cursor 1",
    ),
    Protection(
        "slot around the loader advance",
        no_slot("loader_advance"),
        during(ADVANCE, Action.READ_SPARE_POOL),
        AssertionError,
        "'unread', 'ledger'",
    ),
    Protection(
        "slot around the advance over an epoch",
        no_slot("loader_advance"),
        during(EPOCH, Action.READ_SPARE_POOL),
        AssertionError,
        "'unread', 'ledger'",
    ),
    Protection(
        "slot around the fill of the spare pool",
        no_slot("loader_advance"),
        during(FILL, Action.READ_SPARE_POOL),
        AssertionError,
        "'unread', 'pool'",
    ),
    Protection(
        "slot around the drain of the spare pool",
        no_slot("spare_drain"),
        during(DRAIN, Action.READ_INDEX),
        InvariantError,
        "two owners",
    ),
    Protection(
        "slot around the substitution",
        no_slot("drop"),
        during(SUBSTITUTE, Action.READ_INDEX),
        InvariantError,
        "two owners",
    ),
    Protection(
        "slot around the drop",
        no_slot("drop"),
        during(DROP, Action.READ_LEDGER),
        AssertionError,
        "@0': \\[\\]",
    ),
    Protection(
        "slot around the stale abort",
        no_slot("stale_abort"),
        during(STALE_ABORT, Action.READ_LEDGER),
        AssertionError,
        "@0': \\[\\]",
    ),
    Protection(
        "slot around the eviction",
        no_slot("evict"),
        during(EVICT, Action.SAVE_PLANE),
        InventoryError,
        "the plane holds 0 rows and the index 4",
    ),
    Protection(
        "the same, without the save's own check",
        no_slot_and_no_inventory("evict"),
        during(EVICT, Action.SAVE_PLANE),
        InventoryError,
        "4 of 4 rows of the index are not in the restored plane",
    ),
    Protection(
        "slot around the selection",
        no_slot("select"),
        during(SELECT, Action.READ_INDEX),
        InventoryError,
        "the plane holds 4 rows and the index 0",
    ),
    Protection(
        "drain before the window",
        no_drain,
        cut_during_a_commit,
        InventoryError,
        "the plane holds 2 rows and the index 0",
    ),
    Protection(
        "rollback of a cancelled commit",
        no_rollback,
        cut_after_a_cancelled_commit,
        InventoryError,
        "the plane holds 2 rows and the index 0",
    ),
    Protection(
        "discard in the step of the commit, and subtraction on save",
        no_subtraction_on_save,
        owners_on_disk,
        InvariantError,
        "two owners",
    ),
    Protection(
        "the same, without the save's own check",
        no_subtraction_on_save_and_no_check,
        owners_on_disk,
        AssertionError,
        "'ledger', 'index'",
    ),
    Protection(
        "subtraction on restore",
        no_subtraction_at_all,
        trained_once_after_a_restore,
        InvariantError,
        "is already finished; it has one owner",
    ),
    Protection(
        "discard of what is selected",
        later_discard,
        owners_on_disk,
        AssertionError,
        "'ledger', 'trained'",
    ),
    Protection(
        "one cut id in every artifact",
        no_cut_id,
        sidecar_of_another_save,
        AssertionError,
        "'unread', '(ledger|trained)'",
    ),
    Protection(
        "touch check before a restore",
        no_touch_check,
        store_of_a_living_run,
        InventoryError,
        "holds 2 rows that the index does not own",
    ),
)

IN_MEMORY = (
    Protection(
        "digests of the files",
        no_digests,
        altered_rows,
        AssertionError,
        "assert .*reverse-",
    ),
    Protection(
        "order of the launches after a restore",
        another_order_of_dispatch,
        fewer_places_than_groups,
        AssertionError,
        "stands still",
    ),
    Protection(
        "places for the next step after a restore",
        no_places_reserved,
        places_taken_by_later_steps,
        AssertionError,
        "stands still",
    ),
    Protection(
        "shortfall in the cut",
        shortfall_forgotten,
        step_that_lost_a_group,
        AssertionError,
        "stands still",
    ),
)
"""Those that need the files, or the stillness, of the memory plane."""


@pytest.mark.parametrize("protection", [*PROTECTIONS, *IN_MEMORY], ids=str)
async def test_the_attack_does_no_harm(memory_rig: Rig, protection: Protection) -> None:
    await protection.attack(memory_rig)


@pytest.mark.parametrize("protection", PROTECTIONS, ids=str)
async def test_without_its_protection_the_attack_is_noticed(
    rig: Rig, protection: Protection, monkeypatch: Patch
) -> None:
    protection.remove(monkeypatch)
    with pytest.raises(protection.error, match=protection.says):
        await protection.attack(rig)


@pytest.mark.parametrize("protection", IN_MEMORY, ids=str)
async def test_without_its_protection_the_attack_is_noticed_in_memory(
    memory_rig: Rig, protection: Protection, monkeypatch: Patch
) -> None:
    protection.remove(monkeypatch)
    with pytest.raises(protection.error, match=protection.says):
        await protection.attack(memory_rig)


@pytest.mark.parametrize(
    ("remove", "attack"),
    [
        (late_discard, owners_on_disk),
        (late_discard, trained_once_after_a_restore),
        (no_subtraction_on_save_and_no_check, trained_once_after_a_restore),
    ],
    ids=["subtraction on save", "the same, to the end", "subtraction on restore"],
)
async def test_the_second_line_holds_when_the_ledger_forgets_late(
    memory_rig: Rig, remove: Callable[[Patch], None], attack: Attack, monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    await attack(memory_rig)
