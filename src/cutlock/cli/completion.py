"""The command `completion`: what makes a shell complete the others."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from cutlock.cli.command import ToolCommand
from cutlock.cli.exits import ExitCode
from cutlock.report.terminal import Terminal

__all__ = ["completion"]

_SHELLS = ("bash", "zsh", "fish")


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
    Terminal.current().write(script)
