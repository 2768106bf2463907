"""Runs the mutants: every protection is removed alone, and the named promise has to fall."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from cutlock.tlc.check import Checked, Watch, check_model, worst_exit
from cutlock.tlc.itf import counterexample, to_itf
from cutlock.tlc.manifest import Manifest, Model
from cutlock.tlc.outcome import Verdict
from cutlock.tlc.run import Toolchain
from cutlock.tlc.unbroken import unbroken

__all__ = ["Mutant", "MutantReport", "check_mutants", "counterexample_file", "example_of"]


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """What was to kill a mutant and what did."""

    name: str
    property: str | None
    """That has to fall; None for a mutant that is known to do no harm."""
    got: str
    """That fell, or how the run ended otherwise."""
    length: int
    """States of the counterexample."""
    seconds: float
    ok: bool
    why_not: tuple[str, ...]
    command: str


class MutantReport(msgspec.Struct, frozen=True, kw_only=True):
    """All mutants that were run; those known to do no harm count in neither number."""

    ok: bool
    total: int
    killed: int
    harmless: int
    """Survived, as expected."""
    mutants: tuple[Mutant, ...]
    unbroken: tuple[str, ...]
    """Predicates that rows check and no mutant breaks; not looked for if mutants were named."""
    exit_code: int
    """See `worst_exit`."""


def check_mutants(
    toolchain: Toolchain,
    manifest: Manifest,
    models: Sequence[Model],
    watch: Watch | None = None,
    on_mutant: Callable[[Mutant, Checked], None] | None = None,
    *,
    chosen: bool = True,
) -> MutantReport:
    """Run mutants one after another.

    Args:
        chosen: they were named; if not, predicates that no mutant breaks are looked for, too.

    Raises:
        ConfigError: files of a mutant are not there.
        ToolError: Java cannot be started.
    """
    mutants, results = [], []
    for model in models:
        checked = check_model(toolchain, manifest, model, watch)
        mutant = _mutant(checked)
        mutants.append(mutant)
        results.append(checked.result)
        if on_mutant is not None:
            on_mutant(mutant, checked)
    to_kill = [m for m, model in zip(mutants, models, strict=True) if _harms(model)]
    spared = [m for m, model in zip(mutants, models, strict=True) if not _harms(model)]
    return MutantReport(
        ok=all(mutant.ok for mutant in mutants),
        total=len(to_kill),
        killed=sum(mutant.ok for mutant in to_kill),
        harmless=sum(mutant.ok for mutant in spared),
        mutants=tuple(mutants),
        unbroken=() if chosen else unbroken(manifest),
        exit_code=worst_exit(results),
    )


def counterexample_file(folder: Path, model: Model) -> Path:
    """Where the counterexample of a model is kept."""
    return folder / f"{model.name}.itf.json"


def example_of(checked: Checked) -> bytes | None:
    """The counterexample as the bytes of its file; None if there is none.

    Raises:
        ToolError: its history variable or a value cannot be written down.
    """
    if not checked.outcome.trace:
        return None
    broken = checked.result.property or checked.outcome.verdict.value
    return to_itf(counterexample(checked.outcome, checked.model.name, broken))


def _harms(model: Model) -> bool:
    return model.expected is not Verdict.SUCCESS


def _mutant(checked: Checked) -> Mutant:
    model, result = checked.model, checked.result
    expected = model.property or (model.expected.value if _harms(model) else None)
    return Mutant(
        name=model.name,
        property=expected,
        got=result.property or result.got.value,
        length=len(checked.outcome.trace),
        seconds=result.seconds,
        ok=result.ok,
        why_not=result.why_not,
        command=result.command,
    )
