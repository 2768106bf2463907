"""The command `replay`: counterexamples and walks on the real code, or on a broken one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from cutlock.bond.bond import Bond
from cutlock.bond.replay import Ending, Replayed, walk_of
from cutlock.bond.replay import replay as replay_on
from cutlock.cli.command import ExitCode, ToolCommand, current_terminal, write_result
from cutlock.cli.options import NamedPath, beginning, json_option, manifest_option
from cutlock.conformance.barrier import BARRIER
from cutlock.conformance.faults import FAULTS, fault_of, named_fault
from cutlock.conformance.free.pair import constants_of_trace
from cutlock.conformance.protocol import CUTLOCK, FREE, CutlockStepper
from cutlock.errors import ConfigError, NoPlaceError, ToolError
from cutlock.tlc.itf import Step, from_itf
from cutlock.tlc.manifest import Manifest, Mode, load_manifest

__all__ = ["ReplayReport", "TraceReport", "replay"]

_AUTO = "auto"
_SHIPPED_TRACES = ("traces/counterexamples", "traces/regressions")


class TraceReport(msgspec.Struct, frozen=True, kw_only=True):
    """One trace."""

    trace: str
    ok: bool
    """The promise holds; of a walk, every state is that of the specification."""
    verdict: str
    replayed: Replayed | None
    """None if the code has no place for the trace; `verdict` says why."""


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """All traces."""

    ok: bool
    """Every trace was replayed, and each is `ok`."""
    replayed: int
    """Traces that were."""
    failed: int
    """Of those, the ones that are not `ok`."""
    no_place: int
    """Traces that the code has no place for."""
    traces: tuple[TraceReport, ...]


@click.command(
    cls=ToolCommand,
    result=ReplayReport,
    examples=(
        "cutlock replay cursor_early",
        "cutlock replay cursor_early --fault auto",
        "cutlock replay traces/regressions/few_places.itf.json",
    ),
    exits={
        ExitCode.OK: "as the code promises",
        ExitCode.FAILED: "a promise is broken, or a walk comes to another state",
        ExitCode.USAGE: "wrong usage, or a trace that the code has no place for; all others are "
        "replayed",
        ExitCode.TOOL_FAILED: "a file is no trace",
        ExitCode.INTERRUPTED: "interrupted; nothing is written",
    },
)
@click.argument(
    "traces",
    metavar="TRACE...",
    nargs=-1,
    required=True,
    type=NamedPath(*_SHIPPED_TRACES, suffix=".itf.json", dir_okay=False),
)
@click.option(
    "--fault",
    "fault_name",
    metavar="NAME",
    shell_complete=beginning(lambda ctx: (_AUTO, *FAULTS)),
    help="Remove this protection first; `auto` removes the one that the trace is about.",
)
@click.option(
    "--second-lines",
    is_flag=True,
    help="Keep the other checks that would notice the fault.",
)
@click.option(
    "--plane", type=click.Choice(["memory"]), default="memory", show_default=True, help="Store."
)
@manifest_option
@json_option
def replay(
    traces: tuple[Path, ...],
    fault_name: str | None,
    second_lines: bool,
    plane: str,
    manifest_path: Path,
) -> ExitCode:
    """Replay each TRACE, a counterexample or a walk in the Informal Trace Format.

    TRACE is a file, or the name of a trace that ships with cutlock.

    The real code executes the trace action by action, and its state is compared with that of
    the trace. On a counterexample, the unchanged code must refuse a step or keep the promise;
    with --fault the promise breaks in the same step as in the model.
    """
    manifest = load_manifest(manifest_path)
    bonds = _bonds(manifest_path, second_lines)
    reports = tuple(_replay(path, manifest, bonds, fault_name) for path in traces)
    replayed = [report for report in reports if report.replayed is not None]
    report = ReplayReport(
        ok=all(found.ok for found in reports),
        replayed=len(replayed),
        failed=sum(not found.ok for found in replayed),
        no_place=len(reports) - len(replayed),
        traces=reports,
    )
    if len(reports) > 1:
        current_terminal().show(
            f"{report.replayed - report.failed} traces as the code promises, {report.failed} not; "
            f"{report.no_place} that the code has no place for"
        )
    write_result(report)
    if report.failed:
        return ExitCode.FAILED
    return ExitCode.USAGE if report.no_place else ExitCode.OK


def _replay(
    path: Path, manifest: Manifest, bonds: Sequence[Bond[Any]], fault_name: str | None
) -> TraceReport:
    try:
        example = from_itf(path.read_bytes())
    except ToolError as error:
        raise ToolError(f"{path}: {error}") from error
    free = example.model.startswith("[")
    walk = free or manifest.select([example.model])[0].mode is not Mode.MUTANT
    if free and fault_name is not None:
        raise ConfigError(f"{path}: no fault belongs to a walk; leave --fault out")
    current_terminal().show(f"{path.name}: {'a walk' if walk else f'against {example.property}'}")
    cutlock, barrier = bonds
    bond = FREE if free else barrier if example.model in barrier.faults else cutlock
    try:
        found = replay_on(
            bond,
            walk_of(example) if walk else example,
            fault=_fault(bond, example.model, fault_name),
            constants=constants_of_trace(example) if free else None,
            on_step=_show_step,
        )
    except NoPlaceError as error:
        current_terminal().show(f"No place: {error}.")
        return TraceReport(trace=str(path), ok=False, verdict=str(error), replayed=None)
    if found.fault is not None and bond is cutlock:
        found = msgspec.structs.replace(found, fault=fault_of(found.fault).name)
    ok = found.ending is not Ending.BROKEN
    if walk:
        ok = found.ending is Ending.KEPT and found.diverged is None
    verdict = _verdict(found, walk=walk)
    current_terminal().show(verdict)
    return TraceReport(trace=str(path), ok=ok, verdict=verdict, replayed=found)


def _bonds(manifest: Path, second_lines: bool) -> tuple[Bond[Any], Bond[Any]]:
    """Of the run and of the barrier, with the models of that manifest."""
    stepper = partial(CutlockStepper, second_lines=second_lines)
    return replace(CUTLOCK, manifest=manifest, stepper=stepper), replace(BARRIER, manifest=manifest)


def _fault(bond: Bond[Any], model: str, name: str | None) -> str | None:
    """The fault as the bond has it: by a mutant that it answers to."""
    if name is None or model in bond.no_place:
        return None
    if bond.name == BARRIER.name:
        if name not in (_AUTO, model):
            raise ConfigError(f"{name!r} is no fault of the barrier; give {_AUTO}")
        return model
    fault = fault_of(model) if name == _AUTO else named_fault(name)
    return model if model in fault.mutants else fault.mutants[0]


def _show_step(number: int, step: Step, what: str) -> None:
    note = "" if what == "done" else f"  <- {what}"
    current_terminal().show(f"{number:4}  {step.action}{note}")


def _verdict(found: Replayed, *, walk: bool) -> str:
    where = f"step {found.step} of {found.length}, {found.action}"
    apart = ""
    if found.diverged is not None:
        listed = "".join(f"\n      {line}" for line in found.differences)
        apart = f"\n  From step {found.diverged} on the state is another one:{listed}"
    match found.ending:
        case Ending.BROKEN:
            told = ", as in the counterexample" if found.breaks_as_told else ""
            text = f"BROKEN{told}, in {where}: {found.why}."
        case Ending.NOTICED:
            text = f"Noticed by the code in {where}: {found.why}."
        case Ending.REFUSED:
            text = f"Refused: the code does not do {where}: {found.why}."
        case Ending.KEPT if walk:
            text = f"All {found.length} steps were done."
        case Ending.KEPT:
            text = f"Kept: all {found.length} steps were done, and {found.why}."
    return text + apart
