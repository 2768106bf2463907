"""The commands that print what others begin with: `example`, `schema` and `completion`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from cutlock.cli.command import ExitCode, ToolCommand, current_terminal, write_json
from cutlock.cli.options import beginning
from cutlock.errors import ConfigError
from cutlock.report.results import schema_of
from cutlock.shipped import shipped

__all__ = ["completion", "example", "schema"]

_SHELLS = ("bash", "zsh", "fish")


@click.command(
    cls=ToolCommand,
    examples=(
        "cutlock example",
        "cutlock example run.toml > run.toml",
        "cutlock example plain_loop.py > plain_loop.py",
    ),
    exits={ExitCode.OK: "printed", ExitCode.USAGE: "no such example"},
)
@click.argument("name", required=False)
def example(name: str | None) -> None:
    """Print the example NAME; without one, say which there are."""
    found = {path.name: path for path in _examples()}
    if name is None:
        width = max(map(len, found))
        for path in found.values():
            click.echo(f"{path.name:{width}}  {_about(path)}")
    elif name in found:
        click.echo(found[name].read_text(encoding="utf-8"), nl=False)
    else:
        raise ConfigError(f"no example {name!r}; there are: {', '.join(found)}")


def _examples() -> Iterator[Path]:
    paths = shipped("examples").iterdir()
    return (path for path in sorted(paths) if path.suffix in {".py", ".toml"})


def _about(path: Path) -> str:
    """The first line, which says what it is."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.strip('"# ').removesuffix(".")


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
            current_terminal().write(command)


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


@click.command(
    cls=ToolCommand,
    examples=(
        'eval "$(cutlock completion bash)"',
        'eval "$(cutlock completion zsh)"',
        "cutlock completion fish | source",
    ),
    exits={ExitCode.OK: "printed", ExitCode.USAGE: "no such shell"},
)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete commands, options, models, traces and groups.

    Put the line of the examples into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish.
    """
    found = get_completion_class(shell)
    assert found is not None
    root = ctx.find_root()
    script = found(root.command, {}, "cutlock", "_CUTLOCK_COMPLETE").source()
    current_terminal().write(script)
