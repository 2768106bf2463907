"""The command `example`: print a configuration or a program to start from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from cutlock.cli.command import ToolCommand
from cutlock.cli.exits import ExitCode
from cutlock.errors import ConfigError
from cutlock.shipped import shipped

__all__ = ["example"]


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
