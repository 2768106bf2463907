"""All faults by name, and the mutants of the specification that none of them answers to."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cutlock.conformance.faults.dispatch import DISPATCH_FAULTS
from cutlock.conformance.faults.early import EARLY_FAULTS
from cutlock.conformance.faults.foreign_rows import FOREIGN_ROWS_FAULTS
from cutlock.conformance.faults.narrow import NARROW_FAULTS
from cutlock.conformance.faults.ownership import OWNERSHIP_FAULTS
from cutlock.conformance.faults.publication import PUBLICATION_FAULTS
from cutlock.conformance.faults.sections import SECTION_FAULTS
from cutlock.conformance.faults.switch import Fault
from cutlock.errors import ConfigError

__all__ = ["FAULTS", "WITHOUT_A_FAULT", "fault_of", "named_fault"]

FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        fault.name: fault
        for fault in (
            *EARLY_FAULTS,
            *SECTION_FAULTS,
            *OWNERSHIP_FAULTS,
            *DISPATCH_FAULTS,
            *PUBLICATION_FAULTS,
            *FOREIGN_ROWS_FAULTS,
            *NARROW_FAULTS,
        )
    }
)

_REASONS = {
    "nothing in the code writes a row again, a put of a pinned one is refused, and what a row "
    "holds is not in the model: that row is gone for a while": ("narrow_overwrite_pinned",),
    "a retry has row keys of its own, and begins when the rows of the try before it are cleared": (
        "narrow_keys_twice",
    ),
    "the model has variables for one save, so that a second one replaces it; in the code it "
    "waits, and could pin no rows": ("narrow_saves_overlap",),
    "the client lists keys alone, so that nothing in the code sees data without one; a load "
    "leaves it out": ("narrow_orphans_not_pruned",),
    "it is of the barrier alone, and is replayed on the real barrier": (
        "barrier_does_not_drain",
        "barrier_door_stays_shut",
        "barrier_leaks_a_count",
        "barrier_door_lets_slots_in",
        "barrier_cuts_overtake",
        "barrier_keeps_the_cancelled",
        "barrier_counts_anyone",
    ),
    "it does no harm, so it has no counterexample": (
        "survives_take_unslotted",
        "survives_stale_abort_unslotted",
        "survives_not_subtracted",
        "survives_door_left_open",
        "cured_late_forget",
        "cured_launch_order",
        "cured_mixed_bundle",
        "cured_touched_plane",
        "cured_gate_wait",
        "torn_put_full_window",
        "unit_takes_a_while",
        "keys_in_any_order",
    ),
    "it begins in the middle of a run; its fault is that of cursor_early": ("story_cursor_early",),
}

WITHOUT_A_FAULT: Mapping[str, str] = MappingProxyType(
    {mutant: reason for reason, mutants in _REASONS.items() for mutant in mutants}
)
"""Mutants that no fault of a stepped run answers to, and why."""


def named_fault(name: str) -> Fault:
    """The fault of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in FAULTS:
        raise ConfigError(f"no fault {name!r}; there are: {', '.join(FAULTS)}")
    return FAULTS[name]


def fault_of(mutant: str) -> Fault:
    """The fault that answers to a mutant.

    Raises:
        ConfigError: none does; says why.
    """
    for fault in FAULTS.values():
        if mutant in fault.mutants:
            return fault
    reason = WITHOUT_A_FAULT.get(mutant, "it is no mutant of the manifest")
    raise ConfigError(
        f"no fault answers to {mutant!r}: {reason}; leave --fault out, or name a fault"
    )
