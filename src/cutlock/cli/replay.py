"""The command `replay`: counterexamples and walks on the real code, or on a broken one."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import msgspec

from cutlock.bond.following import Ending, Replayed
from cutlock.bond.walk import StatesDifferError
from cutlock.cli.command import ExitCode, ToolCommand, current_terminal
from cutlock.cli.options import NamedPath, beginning, json_option, manifest_option
from cutlock.conformance.faults import FAULTS, WITHOUT_A_FAULT, Fault, fault_of, named_fault
from cutlock.conformance.free.moves import MACHINE_MOVES
from cutlock.conformance.free.pair import bounds_of_trace, replay_trace
from cutlock.conformance.replay.barrier import BARRIER_FAULTS, replay_barrier_example
from cutlock.conformance.replay.counterexample import replay_example
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.errors import ConfigError, DivergenceError, ToolError
from cutlock.tlc.itf import Counterexample, Step, from_itf
from cutlock.tlc.manifest import Manifest, Mode, load_manifest

__all__ = ["ReplayReport", "TraceReport", "replay"]

_AUTO = "auto"
_SHIPPED_TRACES = ("traces/counterexamples", "traces/regressions")
_MEMORY = Path("/dev/shm")


class TraceReport(msgspec.Struct, frozen=True, kw_only=True):
    """One trace."""

    trace: str
    ok: bool
    """The promise holds; of a walk, every state is that of the specification."""
    verdict: str
    replayed: Replayed


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """All traces."""

    ok: bool
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
        ExitCode.USAGE: "wrong usage, or a trace that the code has no place for",
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
    help="Take this protection away first; `auto` takes the one that the trace is about.",
)
@click.option(
    "--second-lines",
    is_flag=True,
    help="Leave what else would notice the fault in place.",
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
) -> ReplayReport:
    """Replay each TRACE, a counterexample or a walk in the Informal Trace Format.

    TRACE is a file, or the name of a trace that ships with cutlock.

    The real parts are stepped from action to action, and their state is compared with that of
    the trace. Of a counterexample, the code as it is has to refuse a step or to keep the
    promise; with --fault the promise breaks in the same step as in the model.
    """
    manifest = load_manifest(manifest_path)
    reports = tuple(_replay(path, manifest, fault_name, second_lines) for path in traces)
    return ReplayReport(ok=all(found.ok for found in reports), traces=reports)


def _replay(
    path: Path, manifest: Manifest, fault_name: str | None, second_lines: bool
) -> TraceReport:
    try:
        example = from_itf(path.read_bytes())
    except ToolError as error:
        raise ToolError(f"{path}: {error}") from error
    if example.model.startswith("["):
        return _replay_free(path, example, fault_name)
    (model,) = manifest.select([example.model])
    config = manifest.root / manifest.configs / model.config
    walk = model.mode is not Mode.MUTANT
    current_terminal().show(f"{path.name}: {'a walk' if walk else f'against {example.property}'}")
    if example.model in BARRIER_FAULTS:
        if fault_name not in (None, _AUTO, example.model):
            raise ConfigError(f"{fault_name!r} is no fault of the barrier; give {_AUTO}")
        found = replay_barrier_example(
            example, config, faulty=fault_name is not None, on_step=_show_step
        )
    else:
        found = _replay_run(example, config, walk, fault_name, second_lines)
    ok = found.ending is not Ending.BROKEN
    if walk:
        ok = found.ending is Ending.KEPT and found.diverged is None
    verdict = _verdict(found, walk=walk)
    current_terminal().show(verdict)
    return TraceReport(trace=str(path), ok=ok, verdict=verdict, replayed=found)


def _replay_free(path: Path, example: Counterexample, fault_name: str | None) -> TraceReport:
    """Replay a walk that carries its bounds: what a free schedule has left."""
    if fault_name is not None:
        raise ConfigError(f"{path}: no fault belongs to a walk; leave --fault out")
    current_terminal().show(f"{path.name}: a walk")
    calls = [step.action for step in example.steps[1:]]
    diverged, differences, why, ending = None, tuple[str, ...](), "", Ending.KEPT
    try:
        with (
            _directory() as made,
            Stepper(bounds_of_trace(example), Path(made, "run"), moves=MACHINE_MOVES) as stepper,
        ):
            replay_trace(example, stepper)
    except StatesDifferError as error:
        diverged, differences = error.number, tuple(map(str, error.differences))
    except DivergenceError as error:
        ending, why = Ending.REFUSED, str(error)
    else:
        for number, step in enumerate(example.steps[1:], 1):
            _show_step(number, step, "done")
    found = Replayed(
        model=example.model,
        promise="",
        fault=None,
        length=len(calls),
        ending=ending,
        step=len(calls) if diverged is None else diverged,
        action=str(calls[(diverged or len(calls)) - 1]),
        diverged=diverged,
        differences=differences,
        why=why,
    )
    verdict = _verdict(found, walk=True)
    current_terminal().show(verdict)
    ok = ending is Ending.KEPT and diverged is None
    return TraceReport(trace=str(path), ok=ok, verdict=verdict, replayed=found)


def _directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None)


def _replay_run(
    example: Counterexample, config: Path, walk: bool, fault_name: str | None, second_lines: bool
) -> Replayed:
    fault = _fault(example.model, walk, fault_name)
    if walk:
        example = Counterexample(example.model, "", example.steps)
    with _directory() as made:
        return replay_example(
            example,
            Bounds.read(config),
            Path(made, "run"),
            fault=fault,
            protected=fault_name is None,
            second_lines=second_lines,
            on_step=_show_step,
        )


def _fault(model: str, walk: bool, name: str | None) -> Fault | None:
    """The named fault; of a counterexample also its own, for what it assumes of the world."""
    if model in WITHOUT_A_FAULT:
        raise ConfigError(
            f"{model} has no place in a stepped run: {WITHOUT_A_FAULT[model]}; "
            f"`cutlock mutants {model}` checks it on the model"
        )
    if name is None and walk:
        return None
    return fault_of(model) if name in (None, _AUTO) else named_fault(name)


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
