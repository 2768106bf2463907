"""The command `bench`: costs measured beside their alternatives.

The measurements are tools of development and live beside the package, in `bench/` of a clone.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click

from cutlock.errors import ConfigError
from cutlock.report.command import ToolCommand

__all__ = ["bench"]

_ROOT = Path(__file__).parents[2]
_STDOUT = "-"

_EXIT_CODES = """\b
Exit codes:
  0  measured, and every goal is reached
  1  a goal is missed, or a measurement failed
  2  wrong usage, or no clone of the repository
  3  Java or TLC is missing (group model)
  4  a specification or the checker itself failed (group model)
  5  out of time (group model)
"""


@click.command(cls=ToolCommand, epilog=_EXIT_CODES, short_help="Measure costs beside alternatives.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--list", "list_only", is_flag=True, help="Say which groups there are, and stop.")
@click.option("--quick", is_flag=True, help="Fewer repetitions, and no large sizes.")
@click.option("--tiny", is_flag=True, help="Only see that everything runs; the figures are noise.")
@click.option(
    "--json",
    "json_to",
    is_flag=False,
    flag_value=_STDOUT,
    metavar="[FILE]",
    help="Write the result as JSON to this file, or to stdout without one.",
)
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
    json_to: str | None,
    keep: bool,
    page: Path | None,
) -> None:
    """Measure the groups with the given NAMEs, or all, each figure beside its alternative.

    Candidates take turns within one run; a ratio is the median over the turns, with quartiles.

    \b
    Examples:
      cutlock bench --list
      cutlock bench buffer event_log --json
      cutlock bench --keep --page docs
    """
    command = _command()
    command.select(names)
    if json_to is not None and json_to in command.select(()):
        raise ConfigError(
            f"--json {json_to} would write into a file called {json_to}; put --json behind the "
            "names, or give it a file"
        )
    if list_only:
        command.listed()
        return
    code = 0
    if names or keep or page is None:
        size = "tiny" if tiny else "quick" if quick else "full"
        code = command.run(
            names,
            command.Size(size),
            json_path=None if json_to in {None, _STDOUT} else Path(str(json_to)),
            to_stdout=json_to == _STDOUT,
            keep=keep,
        )
    if page is not None:
        command.write_page(page)
    sys.exit(code)


def _command() -> Any:
    """The module of the clone that does the work.

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
    return importlib.import_module("bench.command")
