"""What the commands that check something share: exit codes of errors, options, result files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from cutlock.errors import (
    BudgetError,
    BundleNotFoundError,
    ConfigError,
    ConformanceError,
    CutlockError,
    DivergenceError,
    NotEnabledError,
    ToolError,
    ToolMissingError,
)
from cutlock.shipped import named_file, shipped

__all__ = [
    "NamedPath",
    "ToolCommand",
    "exit_code",
    "forget_result",
    "jar_option",
    "json_option",
    "manifest_option",
    "write_json",
    "write_whole",
]

_errors = Console(stderr=True, markup=False, emoji=False, highlight=False)


class ToolCommand(click.Command):
    """Turns errors of the family into one line on stderr and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except CutlockError as error:
            _errors.print(f"error: {error}", soft_wrap=True)
            ctx.exit(exit_code(error))


def exit_code(error: CutlockError) -> int:
    """2 usage, or nothing that can be compared; 3 Java or TLC missing; 4 tool; 5 time; else 1."""
    match error:
        case DivergenceError() | NotEnabledError():
            return 1
        case ConfigError() | BundleNotFoundError() | ConformanceError():
            return 2
        case ToolMissingError():
            return 3
        case ToolError():
            return 4
        case BudgetError():
            return 5
    return 1


class NamedPath(click.Path):
    """A path, or the name of something that ships with cutlock; a path of that name wins.

    Args:
        folders: shipped folders that are looked through, in this order.
        suffix: of the files in them; the name may leave it out.
        exists: whether click refuses a path that is not there.
    """

    def __init__(
        self, *folders: str, suffix: str = "", exists: bool = True, dir_okay: bool = True
    ) -> None:
        super().__init__(exists=exists, dir_okay=dir_okay, path_type=Path)
        self._folders = folders
        self._suffix = suffix

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path, whether it was given or is that of the name."""
        if isinstance(value, str) and not Path(value).exists():
            value = named_file(value, self._folders, self._suffix) or value
        return Path(os.fsdecode(super().convert(value, param, ctx)))


jar_option = click.option(
    "--jar",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Another tla2tools.jar; CUTLOCK_TLA2TOOLS does the same.",
)
json_option = click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the result to this file as JSON.",
)
manifest_option = click.option(
    "--manifest",
    "manifest_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=shipped("model_check", "manifest.toml"),
    show_default="the shipped one",
    help="The list of models.",
)


def forget_result(path: Path | None) -> None:
    """An old result must not be taken for the one of a run that dies."""
    if path is not None:
        path.unlink(missing_ok=True)


def write_json(path: Path | None, result: object) -> None:
    """Write a result, if a path is given."""
    if path is not None:
        write_whole(path, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that nobody sees a part of it; its directory is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    partial.write_bytes(data)
    os.replace(partial, path)
