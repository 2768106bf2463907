"""The commands that check models: `check`, `mutants` and `doctor`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from cutlock.report.command import (
    ToolCommand,
    forget_result,
    jar_option,
    json_option,
    manifest_option,
    write_json,
    write_whole,
)
from cutlock.report.terminal import Progress
from cutlock.tlc.check import Checked, check_models
from cutlock.tlc.doctor import diagnose
from cutlock.tlc.graph import graph_to_json
from cutlock.tlc.manifest import Manifest, Mode, Model, TimeClass, load_manifest
from cutlock.tlc.mutants import (
    Mutant,
    check_mutants,
    counterexample_file,
    example_of,
)
from cutlock.tlc.outcome import Progress as SearchProgress
from cutlock.tlc.run import Toolchain, find_toolchain
from cutlock.tlc.selftest import self_test
from cutlock.tlc.terminal import show_diagnosis, show_mutants, show_report

__all__ = ["check", "doctor", "mutants", "toolchain_for"]

_CHECKED_MODES = tuple(mode for mode in Mode if mode is not Mode.MUTANT)

_EXIT_CODES = """\b
Exit codes:
  0  as expected
  1  a violation, or another result than expected
  2  wrong usage, or a manifest that breaks a rule
  3  Java or TLC is missing
  4  a specification or the checker itself failed
  5  out of time without an answer
"""

_console = Console()
_errors = Console(stderr=True)
_F = TypeVar("_F", bound=Callable[..., Any])


def _selection(command: _F) -> _F:
    """The arguments that say which models are run, and how."""
    options = [
        click.argument("names", metavar="[NAME]...", nargs=-1),
        click.option(
            "--class",
            "time",
            type=click.Choice([time.value for time in TimeClass]),
            default=TimeClass.QUICK.value,
            show_default=True,
            help="Run this class and the quicker ones; names overrule it.",
        ),
        manifest_option,
        jar_option,
        click.option(
            "-n",
            "dry_run",
            is_flag=True,
            help="Print the commands, for a shell, and run nothing.",
        ),
        json_option,
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command(cls=ToolCommand, epilog=_EXIT_CODES)
@_selection
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
    json_path: Path | None,
    graphs: Path | None,
) -> None:
    """Check the models of the manifest, or those with the given NAMEs.

    A model passes if its outcome, the violated property, the number of distinct states and
    the count of every action are as the manifest says. A self-test of the checker runs first.

    \b
    Examples:
      cutlock check
      cutlock check --class full --json out/check.json
      cutlock check in_order -n
    """
    manifest = load_manifest(manifest_path)
    modes = tuple(Mode) if names else _CHECKED_MODES
    models = manifest.select(names, TimeClass(time), modes)
    toolchain = toolchain_for(jar)
    if dry_run:
        _print_commands(toolchain, manifest, models)
        return
    forget_result(json_path)
    with _Watching(len(models)) as watching:
        self_test(toolchain, watch=watching.self_test)

        def done(checked: Checked) -> None:
            watching.done(checked.result.name, checked.result.ok, checked.result.why_not)
            if graphs is not None and checked.graph is not None:
                write_whole(graphs / f"{checked.result.name}.json", graph_to_json(checked.graph))

        report = check_models(toolchain, manifest, models, watching.model, done)
    show_report(_console, report)
    write_json(json_path, report)
    sys.exit(report.exit_code)


@click.command(cls=ToolCommand, epilog=_EXIT_CODES)
@_selection
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
    json_path: Path | None,
    traces: Path | None,
    write: bool,
) -> None:
    """Remove each protection alone, and see that the named promise falls.

    \b
    Examples:
      cutlock mutants
      cutlock mutants --traces traces/counterexamples --write
    """
    if write and traces is None:
        raise click.UsageError("--write needs --traces")
    manifest = load_manifest(manifest_path)
    models = manifest.select(names, TimeClass(time), (Mode.MUTANT,))
    toolchain = toolchain_for(jar)
    if dry_run:
        _print_commands(toolchain, manifest, models)
        return
    forget_result(json_path)
    stale = []
    with _Watching(len(models)) as watching:
        self_test(toolchain, watch=watching.self_test)

        def done(mutant: Mutant, checked: Checked) -> None:
            watching.done(mutant.name, mutant.ok, mutant.why_not)
            if traces is not None and not _keep(traces, checked, write):
                stale.append(mutant.name)

        report = check_mutants(toolchain, manifest, models, watching.model, done)
    show_mutants(_console, report)
    write_json(json_path, report)
    if stale:
        _errors.print(
            f"error: {', '.join(stale)}: not the counterexample in {traces}; "
            "look at the difference, then write it again with --write",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    sys.exit(report.exit_code or (1 if stale else 0))


@click.command(cls=ToolCommand, epilog=_EXIT_CODES)
@jar_option
@json_option
def doctor(jar: Path | None, json_path: Path | None) -> None:
    """Say which Java and which TLC were found, and what to do when one is missing."""
    found = diagnose(jar)
    show_diagnosis(_console, found)
    for advice in found.advice:
        _errors.print(advice, markup=False, highlight=False, soft_wrap=True)
    write_json(json_path, found)
    sys.exit(0 if found.ok else 3)


class _Watching:
    """Shows the model that runs, and says at once what is not as expected."""

    def __init__(self, total: int) -> None:
        self._progress = Progress(_console)
        self._total = total
        self._number = 0

    def __enter__(self) -> _Watching:
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.close()

    def self_test(self, name: str) -> None:
        self._progress.show("self-test of the checker", name)

    def model(self, model: Model, progress: SearchProgress | None) -> None:
        if progress is None:
            self._number += 1
        detail = ""
        if progress is not None:
            detail = f"{progress.distinct:,} states found, {progress.queue:,} left on queue"
        self._progress.show(f"{self._number} of {self._total}, {model.name}", detail)

    def done(self, name: str, ok: bool, why_not: tuple[str, ...]) -> None:
        if not ok:
            self._progress.close()
            _errors.print(f"{name}: {'; '.join(why_not)}", markup=False, highlight=False)


def toolchain_for(jar: Path | None) -> Toolchain:
    """Java and the jar; says so if it is not the pinned one."""
    toolchain = find_toolchain(jar)
    if not toolchain.jar.pinned:
        _errors.print(
            f"not the pinned jar: {toolchain.jar.path}, sha256 {toolchain.jar.sha256}",
            markup=False,
            highlight=False,
            soft_wrap=True,
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
        click.echo(toolchain.command(manifest.job(model)))
