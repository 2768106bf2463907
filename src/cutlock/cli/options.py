"""What a shell offers for the values of options and arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from cutlock.errors import CutlockError
from cutlock.tlc.manifest import Mode, TimeClass, load_manifest

__all__ = ["Complete", "beginning", "complete_models"]

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
