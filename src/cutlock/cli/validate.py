"""The command that holds the logs of real runs against the specification: `validate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from cutlock.cli.command import ExitCode, ToolCommand, current_terminal, forget_result
from cutlock.cli.models import searched
from cutlock.cli.options import NamedPath, jar_option, json_option, quiet_option
from cutlock.conformance.validation.logs import (
    Refusal,
    Validated,
    Validation,
    read_run,
    validate,
)
from cutlock.report.terminal import Terminal, key_values, listing
from cutlock.run.directory import RunDirectory
from cutlock.shipped import shipped
from cutlock.tlc.outcome import Progress as SearchProgress
from cutlock.tlc.run import find_toolchain

__all__ = ["validate_runs"]

_NAME_WIDTH = 40
_SHIPPED_RUNS = ("traces/runs", "traces/rejected")


@click.command(
    "validate",
    cls=ToolCommand,
    result=Validation,
    examples=(
        "cutlock validate windowed",
        "cutlock validate runs/first runs/second --json out/validation.json",
    ),
    exits={
        ExitCode.OK: "every run is a behaviour of the specification",
        ExitCode.FAILED: "a run is refused, or a log is not one",
        ExitCode.USAGE: "wrong usage, or a run has something that is not modelled",
        ExitCode.TOOL_MISSING: "Java or TLC is missing",
        ExitCode.TOOL_FAILED: "the specification or the checker itself failed",
        ExitCode.OUT_OF_TIME: "out of time without an answer",
        ExitCode.INTERRUPTED: "interrupted; nothing is written",
    },
)
@click.argument(
    "paths", metavar="RUN...", nargs=-1, required=True, type=NamedPath(*_SHIPPED_RUNS, exists=False)
)
@click.option(
    "--spec",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=shipped("spec"),
    show_default="the shipped one",
    help="Folder of the specification.",
)
@jar_option
@quiet_option
@json_option
def validate_runs(paths: tuple[Path, ...], spec: Path, jar: Path | None) -> Validation:
    """Have TLC accept the event logs of each RUN as a behaviour of the specification.

    RUN is the directory of a run, the name of one that ships with cutlock, or one of its logs,
    which stands for the whole run: all starts and the kills between them are one behaviour. Of
    a run that is none, the first event that does not fit is named, with the state before it.
    """
    forget_result()
    toolchain = find_toolchain(jar)
    terminal = current_terminal()
    with terminal.progress() as progress:
        progress.total = len(paths)
        runs = []
        for path in paths:
            progress.show("reading", str(path))
            runs.append(read_run(RunDirectory(_run_of(path))))
            progress.item(f"{path}: {len(runs[-1].events):,} events read")
        events = sum(len(run.events) for run in runs)

        def watch(found: SearchProgress | None) -> None:
            done = "" if found is None else searched(found)
            progress.show(f"TLC takes {events:,} events", done)

        watch(None)
        validated = validate(toolchain, spec, runs, watch)
    _show(terminal, paths, validated)
    return Validation(
        ok=all(run.ok for run in validated),
        runs=tuple(validated),
        spec=str(spec),
        java=toolchain.java.version,
        jar=toolchain.jar.sha256,
    )


def _run_of(path: Path) -> Path:
    return path.absolute().parent.parent if path.is_file() else path


def _show(terminal: Terminal, paths: Sequence[Path], validated: Sequence[Validated]) -> None:
    rows = [
        (
            _shortened(str(path)),
            run.starts,
            f"{run.events:,}",
            "accepted" if run.ok else "REFUSED",
            f"{run.seconds:.1f}",
        )
        for path, run in zip(paths, validated, strict=True)
    ]
    terminal.show(listing("Runs", ("run", "starts", "events", "verdict", "s"), rows))
    for path, run in zip(paths, validated, strict=True):
        if run.refusal is not None:
            terminal.show(f"{path}: refused at {run.refusal.where}")
            terminal.show(key_values("The event, and the state", _told(run.refusal)))
        for end in run.failed:
            terminal.show(f"{path}: an error has ended a start, at {end}")


def _told(refusal: Refusal) -> Iterator[tuple[str, object]]:
    yield "event", refusal.event
    yield from refusal.groups.items()
    if refusal.broken is not None:
        yield "broken by it", refusal.broken
    yield from refusal.state.items()


def _shortened(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"...{name[3 - _NAME_WIDTH :]}"
