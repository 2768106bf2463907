"""Every counterexample of the model on the real code: broken with its fault, kept without."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

import cutlock
from cutlock.bond import Ending, Replayed, replay
from cutlock.conformance import barrier
from cutlock.conformance.faults import FAULTS, WITHOUT_A_FAULT, fault_of
from cutlock.conformance.protocol import CUTLOCK, CutlockStepper
from cutlock.conformance.stepping.incarnation import Drive, shipped_controller
from cutlock.tlc.itf import Counterexample, from_itf
from cutlock.tlc.manifest import Mode, load_manifest
from cutlock.tlc.mutants import counterexample_file
from cutlock.tlc.outcome import Verdict
from cutlock.tlc.unbroken import unbroken
from tests.support.by_hand import by_hand

ROOT = Path(cutlock.__file__).parents[2]
MANIFEST = load_manifest(ROOT / "model_check" / "manifest.toml")
MUTANTS = {model.name: model for model in MANIFEST.models if model.mode is Mode.MUTANT}

REFUSED, NOTICED, KEPT, BROKEN = Ending.REFUSED, Ending.NOTICED, Ending.KEPT, Ending.BROKEN


class Expected(NamedTuple):
    """What the code does with a counterexample."""

    fault: str
    real: Ending
    """Without the fault."""
    real_step: int
    """The last one that is tried."""
    apart: int | None = None
    """Without the fault: the first step after which the state is another one."""
    second: tuple[Ending, int] | None = None
    """With the fault and with what else would notice it; None if nothing would."""


EXPECTED = {
    "cursor_early": Expected("cursor_read_early", REFUSED, 6, None, (NOTICED, 14)),
    "loader_early": Expected("loader_read_early", REFUSED, 4),
    "pool_early": Expected("pool_read_early", REFUSED, 7),
    "index_early": Expected("index_read_early", REFUSED, 10),
    "ledger_early": Expected("ledger_read_early", REFUSED, 4),
    "ledger_early_at_the_end": Expected("ledger_read_early", REFUSED, 4),
    "commit_unslotted": Expected("commit_without_slot", REFUSED, 10),
    "admission_unslotted": Expected("admission_without_slot", REFUSED, 9, None, (NOTICED, 13)),
    "loader_unslotted": Expected("loader_without_slot", REFUSED, 8),
    "substitute_unslotted": Expected("substitution_without_slot", REFUSED, 15, None, (NOTICED, 17)),
    "spare_drain_unslotted": Expected("drain_without_slot", REFUSED, 25, None, (NOTICED, 27)),
    "undrained": Expected("cut_without_drain", REFUSED, 11),
    "undrained_window": Expected("cut_without_drain", REFUSED, 9),
    "epoch_in_another_slot": Expected("epoch_in_another_slot", REFUSED, 9, None, (NOTICED, 11)),
    "slot_ends_before_put": Expected("slot_ends_before_put", REFUSED, 10),
    "gate_wait_in_slot": Expected("gate_wait_in_slot", KEPT, 13),
    "gate_wait_in_slot_lockstep": Expected("gate_wait_in_slot", KEPT, 9),
    "gate_wait_starves_cut": Expected("gate_wait_in_slot", KEPT, 47),
    "late_forget": Expected("ledger_forgets_late", REFUSED, 55, 10),
    "late_forget_live": Expected("ledger_forgets_late", KEPT, 10, 10),
    "late_forget_on_disk": Expected("ledger_forgets_late", KEPT, 43, 10),
    "late_forget_not_subtracted_on_save": Expected(
        "ledger_forgets_late_unsubtracted", KEPT, 23, 10, (NOTICED, 17)
    ),
    "admitted_one_by_one": Expected("admission_prompt_by_prompt", KEPT, 6, 6),
    "stamp_given_twice": Expected("stamp_given_twice", KEPT, 23, 6, (NOTICED, 10)),
    "rows_left_behind": Expected("rows_left_behind", KEPT, 17, 10),
    "gate_ignored": Expected("gate_ignored", REFUSED, 12, None, (NOTICED, 13)),
    "reserved_before_admitted": Expected("reserved_before_admitted", KEPT, 35),
    "admitted_never_launched": Expected("reserved_before_admitted", KEPT, 32),
    "launch_in_any_order": Expected("launch_in_any_order", REFUSED, 39),
    "places_not_checked": Expected("places_not_checked", NOTICED, 34, 34),
    "nothing_credited": Expected("nothing_credited", KEPT, 32, 14),
    "shortfall_not_saved": Expected("shortfall_not_saved", KEPT, 42, 25),
    "no_empty_step": Expected("no_empty_step", KEPT, 26),
    "no_empty_step_at_the_end": Expected("no_empty_step", KEPT, 26),
    "rename_before_manifest": Expected("rename_before_manifest", REFUSED, 15, None, (KEPT, 15)),
    "never_resumed": Expected("rename_before_manifest", REFUSED, 15, None, (REFUSED, 18)),
    "rename_before_sidecars": Expected("rename_before_sidecars", REFUSED, 14, None, (REFUSED, 17)),
    "stale_loader": Expected("stale_loader_published", KEPT, 17, 17),
    "stale_cursor": Expected("stale_cursor_published", KEPT, 19, 19),
    "stale_index": Expected("stale_index_published", KEPT, 23, 23),
    "stale_ledger": Expected("stale_ledger_published", KEPT, 17, 17),
    "stale_rows": Expected("stale_rows_published", KEPT, 23, 23),
    "stale_pool": Expected("stale_pool_published", KEPT, 20, 20),
    "digest_binds_too_little": Expected("mixed_bundle_accepted", NOTICED, 26, 26, (NOTICED, 38)),
    "mixed_bundle_restored": Expected("mixed_bundle_accepted", NOTICED, 19, 19, (BROKEN, 19)),
    "touched_plane": Expected("touched_plane_accepted", NOTICED, 27, 27),
    "foreign_rows_in_plane": Expected("touched_plane_accepted", NOTICED, 20, 20),
    "narrow_cursor_early": Expected("cursor_read_early", REFUSED, 7, None, (NOTICED, 11)),
    "narrow_loader_early": Expected("loader_read_early", REFUSED, 4),
    "narrow_pool_early": Expected("pool_read_early", REFUSED, 7),
    "narrow_index_early": Expected("index_read_early", REFUSED, 12),
    "narrow_ledger_early": Expected("ledger_read_early", REFUSED, 4),
    "narrow_admission_in_two_steps": Expected("admission_in_two_steps", KEPT, 16, 7, (NOTICED, 10)),
    "narrow_loader_not_awaited": Expected("loader_not_awaited", REFUSED, 6, None, (NOTICED, 6)),
    "narrow_door_stays_closed": Expected("door_stays_closed", KEPT, 13, 5),
    "narrow_units_first": Expected("units_first", REFUSED, 11),
    "changed_units_first": Expected("units_first", REFUSED, 10),
    "narrow_clears_not_deferred": Expected("clears_not_deferred", KEPT, 43, 43),
    "narrow_pinned_late": Expected("pinned_late", KEPT, 43, 43),
    "narrow_pinned_for_one_unit": Expected("pinned_for_one_unit", REFUSED, 51, 48),
    "narrow_deferred_forgotten": Expected("deferred_forgotten", KEPT, 44, 44),
    "narrow_flush_in_a_save": Expected("flush_in_a_save", KEPT, 24),
    "narrow_put_cancelled": Expected("put_outlives_its_slot", REFUSED, 11),
    "narrow_nothing_pruned": Expected("nothing_pruned", KEPT, 24, 23),
    "narrow_cut_beside_step": Expected("cut_beside_step", REFUSED, 38, 14, (NOTICED, 39)),
    "narrow_copied_late": Expected("copied_late", REFUSED, 39, 15),
    "narrow_late_weights": Expected("weights_of_the_write", KEPT, 48, 48),
    "narrow_stale_advantages": Expected("advantages_taken_over", KEPT, 60, 60),
}

INSTEAD = {
    "narrow_overwrite_pinned": (
        "unit/test_pinning.py::test_another_field_of_a_pinned_row_is_never_written"
    ),
    "narrow_keys_twice": (
        "unit/test_buffer.py::test_a_row_key_is_never_used_twice_over_attempts_and_incarnations"
    ),
    "narrow_saves_overlap": (
        "unit/test_pinning.py::test_a_second_snapshot_is_refused_while_rows_are_pinned"
    ),
    "narrow_orphans_not_pruned": (
        "contract/test_plane_contract.py::test_a_row_put_after_the_index_part_does_not_come_back"
    ),
}
"""What shows the protection of a mutant that no fault of a stepped run answers to."""

BARRIER = {
    "barrier_does_not_drain": (KEPT, 2, 2),
    "barrier_door_stays_shut": (KEPT, 4, 4),
    "barrier_leaks_a_count": (KEPT, 4, 4),
    "barrier_door_lets_slots_in": (REFUSED, 7, 3),
    "barrier_cuts_overtake": (REFUSED, 8, 6),
    "barrier_keeps_the_cancelled": (KEPT, 3, 3),
    "barrier_counts_anyone": (KEPT, 2, 2),
}
"""On the real barrier: ending, last step, first step with another state."""


def example_of(mutant: str) -> Counterexample:
    path = counterexample_file(ROOT / "traces" / "counterexamples", MUTANTS[mutant])
    return from_itf(path.read_bytes())


def config_of(mutant: str) -> Path:
    return MANIFEST.root / MANIFEST.configs / MUTANTS[mutant].config


def replayed(
    mutant: str,
    *,
    faulty: bool = False,
    second_lines: bool = False,
    drive: Drive = shipped_controller,
) -> Replayed:
    stepper = partial(CutlockStepper, second_lines=second_lines, drive=drive)
    return replay(replace(CUTLOCK, stepper=stepper), example_of(mutant), faulty=faulty)


def test_every_predicate_that_is_checked_falls_to_a_mutant() -> None:
    assert unbroken(MANIFEST) == ()


def test_every_mutant_has_one_fault_or_a_reason_for_none() -> None:
    assert {*EXPECTED, *WITHOUT_A_FAULT} == set(MUTANTS)
    assert not {*EXPECTED} & {*WITHOUT_A_FAULT}
    assert {mutant: fault_of(mutant).name for mutant in EXPECTED} == {
        mutant: expected.fault for mutant, expected in EXPECTED.items()
    }
    answered = [mutant for fault in FAULTS.values() for mutant in fault.mutants]
    assert sorted(answered) == sorted(EXPECTED)


def test_a_mutant_without_a_fault_is_shown_elsewhere_or_does_no_harm() -> None:
    for mutant in WITHOUT_A_FAULT:
        harmless = MUTANTS[mutant].expected is Verdict.SUCCESS
        assert harmless or mutant in {*INSTEAD, *BARRIER, "story_cursor_early"}


@pytest.mark.parametrize("mutant", INSTEAD)
def test_a_protection_that_is_shown_elsewhere_has_its_test_there(mutant: str) -> None:
    file, _, name = INSTEAD[mutant].partition("::")
    assert f"def {name}(" in (ROOT / "tests" / file).read_text()


@pytest.mark.parametrize("mutant", EXPECTED)
def test_the_counterexample_is_of_the_promise_that_the_manifest_names(mutant: str) -> None:
    model = MUTANTS[mutant]
    assert example_of(mutant).property == (model.property or model.expected.value)


SUBJECTS = pytest.mark.parametrize(
    "drive", [shipped_controller, by_hand], ids=["controller", "own loop"]
)
"""What is stepped: the shipped loops over the engine, and a user's."""


@SUBJECTS
@pytest.mark.parametrize("mutant", EXPECTED)
def test_with_the_fault_the_promise_breaks_in_the_same_step(mutant: str, drive: Drive) -> None:
    found = replayed(mutant, faulty=True, drive=drive)
    assert found.breaks_as_told, found
    assert found.length == len(example_of(mutant).steps) - 1


@SUBJECTS
@pytest.mark.parametrize("mutant", EXPECTED)
def test_the_real_code_refuses_or_keeps_the_promise(mutant: str, drive: Drive) -> None:
    expected = EXPECTED[mutant]
    found = replayed(mutant, drive=drive)
    assert (found.ending, found.step, found.diverged) == (
        expected.real,
        expected.real_step,
        expected.apart,
    ), found


@pytest.mark.parametrize("mutant", [m for m, expected in EXPECTED.items() if expected.second])
def test_a_second_line_notices_the_fault_where_there_is_one(mutant: str) -> None:
    found = replayed(mutant, faulty=True, second_lines=True)
    assert (found.ending, found.step) == EXPECTED[mutant].second, found


@pytest.mark.parametrize("mutant", [m for m, expected in EXPECTED.items() if not expected.second])
def test_no_second_line_is_taken_away_where_none_is_named(mutant: str) -> None:
    fault = fault_of(mutant)
    assert fault.switch(second_lines=True).patches == fault.switch().patches


@pytest.mark.parametrize(
    "mutant",
    [
        mutant
        for mutant, expected in EXPECTED.items()
        if expected.real is KEPT
        and MUTANTS[mutant].expected in {Verdict.DEADLOCK, Verdict.TEMPORAL}
    ],
)
def test_what_is_stuck_with_the_fault_goes_on_without(mutant: str) -> None:
    assert replayed(mutant).why.endswith("can still be done")


@pytest.mark.parametrize("mutant", BARRIER)
def test_with_the_fault_the_barrier_breaks_in_the_same_step(mutant: str) -> None:
    found = replay(barrier.BARRIER, example_of(mutant), faulty=True)
    assert found.breaks_as_told, found


@pytest.mark.parametrize("mutant", BARRIER)
def test_the_real_barrier_goes_another_way_and_keeps_the_promise(mutant: str) -> None:
    found = replay(barrier.BARRIER, example_of(mutant))
    assert (found.ending, found.step, found.diverged) == BARRIER[mutant], found


def test_every_mutant_of_the_barrier_is_replayed() -> None:
    of_the_model = {mutant for mutant in MUTANTS if mutant.startswith("barrier_")}
    assert of_the_model == set(BARRIER) == set(barrier.BARRIER.faults)
