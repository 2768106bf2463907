"""The command `schema`: what the `--json` of the other commands writes."""

from __future__ import annotations

from pathlib import Path

import click

from cutlock.cli.command import ToolCommand, write_json
from cutlock.cli.exits import ExitCode
from cutlock.cli.options import beginning
from cutlock.errors import ConfigError
from cutlock.report.results import schema_of
from cutlock.report.terminal import Terminal

__all__ = ["schema"]


@click.command(
    cls=ToolCommand,
    examples=("cutlock schema", "cutlock schema check", "cutlock schema --write docs/schemas"),
    exits={ExitCode.OK: "printed or written", ExitCode.USAGE: "no such command"},
)
@click.argument(
    "name",
    metavar="[COMMAND]",
    required=False,
    shell_complete=beginning(lambda ctx: _results(ctx)),
)
@click.option(
    "--write",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the schema of every command, or of this one, into this directory.",
)
@click.pass_context
def schema(ctx: click.Context, name: str | None, folder: Path | None) -> None:
    """Print the JSON Schema of what `--json` of COMMAND writes, or list the commands."""
    known = _results(ctx)
    if name is not None and name not in known:
        raise ConfigError(f"{name!r} has no --json; choose from {', '.join(known)}")
    if folder is not None:
        for command in known if name is None else [name]:
            write_json(folder / f"{command}.json", schema_of(command, known[command]))
    elif name is not None:
        write_json(Path("-"), schema_of(name, known[name]))
    else:
        for command in known:
            Terminal.current().write(command)


def _results(ctx: click.Context) -> dict[str, type]:
    """Result types by the name of the command."""
    group = ctx.find_root().command
    assert isinstance(group, click.Group)
    commands = ((name, group.get_command(ctx, name)) for name in group.list_commands(ctx))
    return {
        name: command.result
        for name, command in commands
        if isinstance(command, ToolCommand) and command.result is not None
    }
