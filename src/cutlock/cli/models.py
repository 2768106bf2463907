"""The commands that check models: `check`, `mutants` and `doctor`, and their tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cutlock.cli.command import ExitCode, ToolCommand, current_terminal, forget_result, write_result
from cutlock.cli.options import (
    complete_models,
    jar_option,
    json_option,
    manifest_option,
    quiet_option,
    time_option,
)
from cutlock.report.progress import Progress
from cutlock.report.results import write_whole
from cutlock.report.terminal import Terminal, key_values, listing
from cutlock.tlc.check import Checked, Report, Result, check_models
from cutlock.tlc.doctor import Diagnosis, diagnose
from cutlock.tlc.graph import graph_to_json
from cutlock.tlc.manifest import Manifest, Mode, Model, TimeClass, load_manifest
from cutlock.tlc.mutants import (
    Mutant,
    MutantReport,
    check_mutants,
    counterexample_file,
    example_of,
)
from cutlock.tlc.outcome import Progress as SearchProgress
from cutlock.tlc.outcome import Verdict
from cutlock.tlc.run import Toolchain, find_toolchain
from cutlock.tlc.selftest import self_test

__all__ = ["check", "doctor", "mutants", "searched", "toolchain_for"]

_CHECKED_MODES = tuple(mode for mode in Mode if mode is not Mode.MUTANT)

_EXITS = {
    ExitCode.OK: "as expected",
    ExitCode.FAILED: "a violation, or another result than expected",
    ExitCode.USAGE: "wrong usage, or a manifest that breaks a rule",
    ExitCode.TOOL_MISSING: "Java or TLC is missing",
    ExitCode.TOOL_FAILED: "a specification or the checker itself failed",
    ExitCode.OUT_OF_TIME: "out of time without an answer",
}

_F = TypeVar("_F", bound=Callable[..., Any])


def _selection(*modes: Mode) -> Callable[[_F], _F]:
    """The arguments that say which models are run, and how."""
    options: list[Callable[[_F], _F]] = [
        click.argument(
            "names", metavar="[NAME]...", nargs=-1, shell_complete=complete_models(*modes)
        ),
        time_option("Run"),
        manifest_option,
        jar_option,
        click.option(
            "-n",
            "dry_run",
            is_flag=True,
            help="Print the commands, for a shell, and run nothing.",
        ),
        quiet_option,
        json_option,
    ]

    def add(command: _F) -> _F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.command(
    cls=ToolCommand,
    result=Report,
    examples=(
        "cutlock check",
        "cutlock check --class full --json out/check.json",
        "cutlock check in_order -n",
    ),
    exits={**_EXITS, ExitCode.INTERRUPTED: "interrupted; graphs that are written are kept"},
    kept="no result is written; graphs that were written are whole; run it again",
)
@_selection(*Mode)
@click.option(
    "--graphs",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the reachable graph of each model of mode graph into this directory.",
)
def check(
    names: tuple[str, ...],
    time: str,
    manifest_path: Path,
    jar: Path | None,
    dry_run: bool,
    graphs: Path | None,
) -> Report | ExitCode:
    """Check the models of the manifest, or those with the given NAMEs.

    A model passes if its outcome, the violated property, the number of distinct states and
    the count of every action are as the manifest says. A self-test of the checker runs first.
    """
    manifest = load_manifest(manifest_path)
    modes = tuple(Mode) if names else _CHECKED_MODES
    models = manifest.select(names, TimeClass(time), modes)
    toolchain = toolchain_for(jar)
    if dry_run:
        _print_commands(toolchain, manifest, models)
        return ExitCode.OK
    forget_result()
    terminal = current_terminal()
    with terminal.progress() as progress:
        watching = _Watching(progress, len(models))
        self_test(toolchain, watch=watching.self_test)

        def done(checked: Checked) -> None:
            result = checked.result
            watching.done(result.name, result.ok, told_briefly(result), result.why_not)
            if graphs is not None and checked.graph is not None:
                write_whole(graphs / f"{result.name}.json", graph_to_json(checked.graph))

        report = check_models(toolchain, manifest, models, watching.model, done)
    show_report(terminal, report)
    return report


@click.command(
    cls=ToolCommand,
    result=MutantReport,
    examples=(
        "cutlock mutants",
        "cutlock mutants cursor_early -n",
        "cutlock mutants --traces traces/counterexamples --write",
    ),
    exits={**_EXITS, ExitCode.INTERRUPTED: "interrupted; traces that are written are kept"},
    kept="no result is written; traces that were written are whole; run it again",
)
@_selection(Mode.MUTANT)
@click.option(
    "--traces",
    type=click.Path(file_okay=False, path_type=Path),
    help="Compare each counterexample with its file in this directory.",
)
@click.option("--write", is_flag=True, help="Write the files of --traces instead.")
def mutants(
    names: tuple[str, ...],
    time: str,
    manifest_path: Path,
    jar: Path | None,
    dry_run: bool,
    traces: Path | None,
    write: bool,
) -> int:
    """Remove each protection alone, and see that the named promise falls."""
    if write and traces is None:
        raise click.UsageError(
            "--write needs --traces; give the directory, e.g. --traces traces/counterexamples"
        )
    manifest = load_manifest(manifest_path)
    models = manifest.select(names, TimeClass(time), (Mode.MUTANT,))
    toolchain = toolchain_for(jar)
    if dry_run:
        _print_commands(toolchain, manifest, models)
        return ExitCode.OK
    forget_result()
    stale = []
    terminal = current_terminal()
    with terminal.progress() as progress:
        watching = _Watching(progress, len(models))
        self_test(toolchain, watch=watching.self_test)

        def done(mutant: Mutant, checked: Checked) -> None:
            watching.done(mutant.name, mutant.ok, told_briefly(checked.result), mutant.why_not)
            if traces is not None and not _keep(traces, checked, write):
                stale.append(mutant.name)

        report = check_mutants(
            toolchain, manifest, models, watching.model, done, chosen=bool(names)
        )
    show_mutants(terminal, report)
    write_result(report)
    if stale:
        terminal.say(
            f"error: {', '.join(stale)}: not the counterexample in {traces}; "
            "look at the difference, then write it again with --write"
        )
    return report.exit_code or (ExitCode.FAILED if stale else ExitCode.OK)


@click.command(
    cls=ToolCommand,
    result=Diagnosis,
    examples=("cutlock doctor", "cutlock doctor --jar tla2tools.jar --json -"),
    exits={
        ExitCode.OK: "models can be checked",
        ExitCode.USAGE: "wrong usage",
        ExitCode.TOOL_MISSING: "Java or TLC is missing",
    },
)
@jar_option
@json_option
def doctor(jar: Path | None) -> ExitCode:
    """Show which Java and which TLC are found, and what to do if one is missing."""
    found = diagnose(jar)
    terminal = current_terminal()
    show_diagnosis(terminal, found)
    for advice in found.advice:
        terminal.say(advice)
    write_result(found)
    return ExitCode.OK if found.ok else ExitCode.TOOL_MISSING


class _Watching:
    """Shows the model that runs, and says at once what is not as expected."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total

    def self_test(self, name: str) -> None:
        self._progress.show("self-test of the checker", name)

    def model(self, model: Model, progress: SearchProgress | None) -> None:
        self._progress.total = self._total
        self._progress.show(model.name, "" if progress is None else searched(progress))

    def done(self, name: str, ok: bool, told: str, why_not: tuple[str, ...]) -> None:
        self._progress.item(f"{name}: {told}")
        if not ok:
            self._progress.note(f"{name}: {'; '.join(why_not)}")


def toolchain_for(jar: Path | None) -> Toolchain:
    """Java and the jar; says so if it is not the pinned one."""
    toolchain = find_toolchain(jar)
    if not toolchain.jar.pinned:
        current_terminal().say(
            f"not the pinned jar: {toolchain.jar.path}, sha256 {toolchain.jar.sha256}; counts and "
            "traces may differ from the manifest"
        )
    return toolchain


def _keep(folder: Path, checked: Checked, write: bool) -> bool:
    """Write the counterexample, or say whether it is the one that is kept."""
    path = counterexample_file(folder, checked.model)
    example = example_of(checked)
    if write and example is not None and checked.result.ok:
        write_whole(path, example)
        return True
    return (path.read_bytes() if path.is_file() else None) == example


def _print_commands(toolchain: Toolchain, manifest: Manifest, models: list[Model]) -> None:
    for model in models:
        current_terminal().write(toolchain.command(manifest.job(model)))


def searched(progress: SearchProgress) -> str:
    """How far a search has come."""
    return f"{progress.distinct:,} states found, {progress.queue:,} left on queue"


def told_briefly(result: Result) -> str:
    """What a model has shown, in a few words."""
    states = "" if result.distinct is None else f", {result.distinct:,} states"
    return f"{_shown(result)}{states}, {result.seconds:.1f} s"


def _shown(result: Result) -> str:
    return "holds" if result.got is Verdict.SUCCESS else result.property or result.got.value


def show_report(terminal: Terminal, report: Report) -> None:
    """Every model with what it has shown, and what was not as expected."""
    rows = [
        (
            result.name,
            _shown(result),
            "-" if result.distinct is None else f"{result.distinct:,}",
            f"{result.seconds:.1f}",
            "yes" if result.ok else "NO",
        )
        for result in report.models
    ]
    columns = ("model", "holds, or falls", "states", "s", "as expected")
    terminal.show(listing("Models", columns, rows))
    failed = sum(not result.ok for result in report.models)
    terminal.show(
        f"{len(report.models)} models, {failed} not as expected. Java {report.java}; "
        f"TLC {report.jar}.",
    )


def show_mutants(terminal: Terminal, report: MutantReport) -> None:
    """Every mutant, the promise that had to fall and the one that did."""
    rows = [
        (
            mutant.name,
            _fallen(mutant),
            mutant.length or "-",
            f"{mutant.seconds:.1f}",
            "yes" if mutant.ok else "NO",
        )
        for mutant in report.mutants
    ]
    columns = ("mutant", "what falls", "steps", "s", "as expected")
    terminal.show(listing("Mutants", columns, rows))
    terminal.show(
        f"{report.killed} of {report.total} mutants killed by the named promise; "
        f"{report.harmless} of {len(report.mutants) - report.total} harmless ones survived.",
    )
    if report.unbroken:
        terminal.show(
            f"Broken by no mutant, so nobody has seen that they can fail: "
            f"{', '.join(report.unbroken)}; add a mutant for each to the manifest."
        )


def _fallen(mutant: Mutant) -> str:
    wanted = mutant.property or "nothing"
    found = "nothing" if mutant.got == Verdict.SUCCESS else mutant.got
    return found if mutant.ok or found == wanted else f"{found}, not {wanted}"


def show_diagnosis(terminal: Terminal, found: Diagnosis) -> None:
    """Where Java was looked for, and what is used."""
    places = [
        (place.source, f"{place.version} at {place.path}" if place.path else place.problem)
        for place in found.tried
    ]
    terminal.show(key_values("Java, in the order of search", places))
    values: list[tuple[str, object]] = [
        ("Java", f"{found.java_version} at {found.java}" if found.java else "missing"),
        ("jar", f"{found.jar} (from {found.jar_source})" if found.jar else "missing"),
    ]
    if found.jar:
        known = "the pinned one" if found.jar_pinned else "not the pinned one"
        values += [("build", found.jar_build), ("sha256", f"{found.jar_sha256}, {known}")]
    terminal.show(key_values("Doctor", values))
