"""Faults that can be switched into a stepped run: protections of the protocol, taken away.

Each answers to mutants of the specification: with it, the counterexample of the mutant can be
taken step by step in the real code. What it changes is as little as does that, and is undone
when the replay ends. Three parts are kept apart, because they are switched in apart:

- the world: what the counterexample assumes of the environment, with and without the fault;
- the protection that is taken away;
- second lines: checks of the code that would notice the fault before the promise breaks.

Source: `spec/MutantCutlock.tla`, `model_check/manifest.toml`; design, section 13.
"""

from cutlock.conformance.faults.registry import FAULTS, WITHOUT_A_FAULT, fault_of, named_fault
from cutlock.conformance.faults.switch import NONE, Fault, Patch, Switch

__all__ = [
    "FAULTS",
    "NONE",
    "WITHOUT_A_FAULT",
    "Fault",
    "Patch",
    "Switch",
    "fault_of",
    "named_fault",
]
