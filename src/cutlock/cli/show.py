"""The command `show`: one page for a trace, a log or a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from cutlock.cli.command import ExitCode, ToolCommand, current_terminal
from cutlock.cli.options import NamedPath, json_option, manifest_option
from cutlock.errors import ConfigError
from cutlock.report.pages.data import RunPage, Story
from cutlock.report.pages.render import render_run, render_story, write_page
from cutlock.show.recognise import collect
from cutlock.tlc.manifest import load_manifest

__all__ = ["Drawn", "show", "show_page"]

_SHIPPED = ("traces/counterexamples", "traces/regressions", "traces/runs", "traces/rejected")


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """What the page is drawn from: a story of steps, or a run."""

    page: str
    """Path of the page."""
    story: Story | None = None
    run: RunPage | None = None


@click.command(
    cls=ToolCommand,
    result=Drawn,
    examples=(
        "cutlock show cursor_early -o page.html",
        "cutlock show runs/first/events/incarnation-2.ndjson",
        "cutlock show runs/first",
        "cutlock show runs/first --steps",
        "cutlock show runs/first --validation out/validation.json",
    ),
    exits={
        ExitCode.OK: "the page is written, whatever it shows",
        ExitCode.FAILED: "the logs of a run cannot be read as one history",
        ExitCode.USAGE: "wrong usage, or something that cannot be shown",
        ExitCode.TOOL_FAILED: "not a valid trace",
        ExitCode.INTERRUPTED: "interrupted; no page is written",
    },
)
@click.argument(
    "path", metavar="TRACE|LOG|RUN", type=NamedPath(*_SHIPPED, suffix=".itf.json", exists=False)
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="The page; by default NAME.html in the working directory. "
    "A file that is no page of this command is not overwritten.",
)
@click.option("--steps", is_flag=True, help="Show every step of a RUN instead of the whole.")
@click.option(
    "--validation",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The result of `cutlock validate --json` for a RUN: shows its steps, with the refused one "
    "marked.",
)
@manifest_option
@json_option
def show(
    path: Path, out: Path | None, steps: bool, validation: Path | None, manifest_path: Path
) -> Drawn:
    """Draw a page of a TRACE, a LOG or a RUN: one HTML file that needs no server and no network.

    A TRACE or a LOG is shown step by step: who does what, who owns each prompt, what is saved,
    and which promise breaks where. A RUN is shown as a whole: rewards, saves, restarts, and the
    fate of every prompt. The file's content, not its name, decides how it is shown.
    """
    data, target = show_page(path, out, _whys(manifest_path), steps=steps, validation=validation)
    terminal = current_terminal()
    terminal.show(data.title)
    terminal.show(f"{target}: {target.stat().st_size / 1e3:,.0f} kB")
    return Drawn(
        page=str(target),
        story=None if isinstance(data, RunPage) else data,
        run=data if isinstance(data, RunPage) else None,
    )


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
