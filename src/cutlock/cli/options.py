"""Options and arguments that several commands have, and what a shell offers for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from cutlock.cli.command import JSON_PATH, STDOUT, current_terminal
from cutlock.errors import CutlockError
from cutlock.shipped import named_file, names, shipped
from cutlock.tlc.manifest import Mode, TimeClass, load_manifest

__all__ = [
    "NamedPath",
    "beginning",
    "complete_models",
    "jar_option",
    "json_option",
    "manifest_option",
    "quiet_option",
    "time_option",
]

F = TypeVar("F", bound=Callable[..., Any])

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def beginning(names: Callable[[click.Context], Iterable[str]]) -> Complete:
    """Offers the names that begin as what is typed, and nothing where they cannot be found."""

    def complete(
        ctx: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            found = [name for name in names(ctx) if name.startswith(incomplete)]
        except (CutlockError, OSError):
            return []
        given = ctx.params.get(parameter.name or "") or ()
        return [CompletionItem(name) for name in found if name not in given]

    return complete


def complete_models(*modes: Mode) -> Complete:
    """Offers the models of these modes, of the manifest that is given or the usual one."""

    def names(ctx: click.Context) -> list[str]:
        given = next(
            parameter for parameter in ctx.command.params if parameter.name == "manifest_path"
        )
        path = str(ctx.params.get("manifest_path") or given.get_default(ctx))
        return [model.name for model in load_manifest(Path(path)).select((), TimeClass.DEEP, modes)]

    return beginning(names)


def _keep_json_path(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    ctx.meta[JSON_PATH] = value
    if value == STDOUT:
        current_terminal().results = False


def _be_quiet(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    current_terminal().quiet |= value


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

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names that begin so, else whatever the shell finds."""
        found = [name for name in names(self._folders, self._suffix) if name.startswith(incomplete)]
        if incomplete and found:
            return [CompletionItem(name) for name in found]
        return super().shell_complete(ctx, param, incomplete)


jar_option = click.option(
    "--jar",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Another tla2tools.jar; CUTLOCK_TLA2TOOLS does the same.",
)
json_option = click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    expose_value=False,
    callback=_keep_json_path,
    help="Write the result to this file as JSON; - is stdout, with nothing else on it.",
)
quiet_option = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_be_quiet,
    help="No live line: one line per finished item, as without a terminal.",
)
manifest_option = click.option(
    "--manifest",
    "manifest_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=shipped("model_check", "manifest.toml"),
    show_default="the shipped one",
    help="The list of models.",
)


def time_option(does: str) -> Callable[[F], F]:
    """The option `--class`.

    Args:
        does: what is done to the models of a class, e.g. `Run`; begins its help.
    """
    return click.option(
        "--class",
        "time",
        type=click.Choice([time.value for time in TimeClass]),
        default=TimeClass.QUICK.value,
        show_default=True,
        help=f"{does} this class and the quicker ones; names overrule it.",
    )
