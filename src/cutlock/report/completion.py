"""What a shell offers for the values of options and arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from cutlock.errors import CutlockError

__all__ = ["Complete", "beginning"]

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
