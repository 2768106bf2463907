"""The command `show`: one page for a trace, a log or a run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click
from rich.console import Console

from cutlock.errors import ConfigError
from cutlock.report.command import ToolCommand, json_option, manifest_option, write_json
from cutlock.report.pages.data import RunPage, Story
from cutlock.report.pages.render import render_run, render_story, write_page
from cutlock.show.recognise import collect
from cutlock.tlc.manifest import load_manifest

__all__ = ["show", "show_page"]

_EXIT_CODES = """\b
Exit codes:
  0  the page is written, whatever it shows
  1  the logs of a run cannot be read as one history
  2  wrong usage, or something that cannot be shown
  4  a trace that is none
"""

_console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)


@click.command(cls=ToolCommand, epilog=_EXIT_CODES, short_help="Draw a trace, a log or a run.")
@click.argument("path", metavar="TRACE|LOG|RUN", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="The page; NAME.html in the working directory if left out. "
    "A file that is no page of this command is not overwritten.",
)
@click.option("--steps", is_flag=True, help="Of a RUN, every step instead of the whole.")
@click.option(
    "--validation",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What `cutlock validate --json` has said of a RUN: shows its steps, with the refused one "
    "marked.",
)
@manifest_option
@json_option
def show(
    path: Path,
    out: Path | None,
    steps: bool,
    validation: Path | None,
    manifest_path: Path,
    json_path: Path | None,
) -> None:
    """Draw a page of a TRACE, a LOG or a RUN: one HTML file that needs no server and no network.

    A TRACE or a LOG is told step by step: who does what, who owns each prompt, what is saved,
    and which promise breaks where. A RUN is told as a whole: rewards, saves, restarts, and the
    fate of every prompt. What the argument is, its content says.

    \b
    Examples:
      cutlock show traces/counterexamples/cursor_early.itf.json -o page.html
      cutlock show runs/first/events/incarnation-2.ndjson
      cutlock show runs/first
      cutlock show runs/first --steps
      cutlock show runs/first --validation out/validation.json
    """
    data, target = show_page(path, out, _whys(manifest_path), steps=steps, validation=validation)
    write_json(json_path, data)
    _console.print(data.title)
    _console.print(f"{target}: {target.stat().st_size / 1e3:,.0f} kB")
    sys.exit(0)


def show_page(
    path: Path,
    out: Path | None,
    whys: Mapping[str, str],
    *,
    steps: bool = False,
    validation: Path | None = None,
) -> tuple[Story | RunPage, Path]:
    """Write the page of whatever a path is; see `collect` for arguments and errors.

    Args:
        out: the page; None for a name of its own in the working directory.

    Returns:
        What the page is drawn from, and where it is.

    Raises:
        ConfigError: there is a file of that name that is no such page.
    """
    found = collect(path, whys, steps=steps, validation=validation)
    data = found.data
    html = render_run(data) if isinstance(data, RunPage) else render_story(data)
    target = out if out is not None else Path(f"{found.name}.html")
    write_page(target, html)
    return data, target


def _whys(manifest_path: Path) -> dict[str, str]:
    """What each model of the manifest is about; nothing without one, for a page needs none."""
    try:
        return {model.name: model.why for model in load_manifest(manifest_path).models}
    except ConfigError:
        return {}
