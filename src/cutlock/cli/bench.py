"""The command `bench`: costs measured beside their alternatives.

The measurements are tools of development and live beside the package, in `bench/` of a clone.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click

from cutlock.cli.command import ExitCode, ToolCommand
from cutlock.cli.options import beginning, json_option, quiet_option
from cutlock.errors import ConfigError

__all__ = ["bench"]

_ROOT = Path(__file__).parents[3]


class _Bench(ToolCommand):
    @property
    def result(self) -> type | None:
        """It is beside the package, as what measures is."""
        found: type = _module("bench.results").BenchReport
        return found


@click.command(
    cls=_Bench,
    examples=(
        "cutlock bench --list",
        "cutlock bench buffer event_log --json -",
        "cutlock bench --keep --page docs",
    ),
    exits={
        ExitCode.OK: "measured, and every goal is reached",
        ExitCode.FAILED: "a goal is missed, or a measurement failed",
        ExitCode.USAGE: "wrong usage, or no clone of the repository",
        ExitCode.TOOL_MISSING: "Java or TLC is missing (group model)",
        ExitCode.TOOL_FAILED: "a specification or the checker itself failed (group model)",
        ExitCode.OUT_OF_TIME: "out of time (group model)",
        ExitCode.INTERRUPTED: "interrupted; results of whole groups are kept with --keep",
    },
    kept="no result is written; with --keep, those of whole groups are",
)
@click.argument(
    "names",
    metavar="[NAME]...",
    nargs=-1,
    shell_complete=beginning(lambda ctx: _module("bench").GROUPS),
)
@click.option("--list", "list_only", is_flag=True, help="Say which groups there are, and stop.")
@click.option("--quick", is_flag=True, help="Fewer repetitions, and no large sizes.")
@click.option("--tiny", is_flag=True, help="Only see that everything runs; the figures are noise.")
@quiet_option
@json_option
@click.option("--keep", is_flag=True, help="Keep the results in bench/results/ for the page.")
@click.option(
    "--page",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write performance.md and its plots into this directory, from the kept results; "
    "measures nothing unless groups are named.",
)
def bench(
    names: tuple[str, ...],
    list_only: bool,
    quick: bool,
    tiny: bool,
    keep: bool,
    page: Path | None,
) -> int:
    """Measure the groups with the given NAMEs, or all, each figure beside its alternative.

    Candidates take turns within one run; a ratio is the median over the turns, with quartiles.
    """
    command = _module("bench.command")
    command.select(names)
    if list_only:
        command.listed()
        return ExitCode.OK
    code = 0
    if names or keep or page is None:
        size = "tiny" if tiny else "quick" if quick else "full"
        code = command.run(names, command.Size(size), keep=keep)
    if page is not None:
        command.write_page(page)
    return code


def _module(name: str) -> Any:
    """A module of the clone that does the work.

    Raises:
        ConfigError: this is an installed package, without the repository around it.
    """
    if not (_ROOT / "bench" / "command.py").is_file():
        raise ConfigError(
            f"{_ROOT / 'bench'} is not there: the measurements are not part of the installed "
            "package; clone the repository and call `cutlock bench` from its own environment "
            "(make setup)"
        )
    if str(_ROOT) not in sys.path:
        sys.path.insert(0, str(_ROOT))
    return importlib.import_module(name)
