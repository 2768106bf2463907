"""The command `audit`, and its verdict as a table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from cutlock.audit import Audit, audit_run
from cutlock.cli.command import ExitCode, ToolCommand, current_terminal
from cutlock.cli.options import json_option
from cutlock.report.terminal import Terminal, key_values
from cutlock.run.directory import RunDirectory

__all__ = ["audit", "show_audit"]

_SHOWN = 20


@click.command(
    cls=ToolCommand,
    result=Audit,
    examples=("cutlock audit runs/first", "cutlock audit runs/first --json -"),
    exits={
        ExitCode.OK: "nothing lost, nothing repeated",
        ExitCode.FAILED: "a lost or repeated prompt, or logs that are no history",
        ExitCode.USAGE: "wrong usage, or no run in the directory",
    },
)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@json_option
def audit(directory: Path) -> Audit:
    """Account for every prompt of the run in DIRECTORY, from its logs and bundles alone."""
    found = audit_run(RunDirectory(directory))
    show_audit(current_terminal(), found)
    return found


def show_audit(terminal: Terminal, found: Audit) -> None:
    """Every fate with its count, and what is wrong."""
    terminal.show(
        key_values(
            "Audit",
            [
                ("prompts (x epochs)", found.prompts),
                ("trained once", found.trained_once),
                ("trained twice", found.trained_twice),
                ("lost", found.lost),
                ("dropped on purpose", _dropped(found)),
                ("pending", found.pending),
                ("unread", found.unread),
                ("restarts", found.restarts),
                ("steps", found.steps),
                ("groups trained again", f"{found.redone} (in undone parts of the logs)"),
                ("ended", found.ended or "killed, or still running"),
                ("verdict", "nothing lost, nothing repeated" if found.ok else "NOT CLEAN"),
            ],
        )
    )
    for problem in found.problems[:_SHOWN]:
        terminal.say(f"problem: {problem}")
    if len(found.problems) > _SHOWN:
        terminal.say(f"problem: and {len(found.problems) - _SHOWN} more; see --json")


def _dropped(found: Audit) -> str:
    reasons = Counter(found.drop_reasons.values()).most_common(3)
    more = len(set(found.drop_reasons.values())) - len(reasons)
    listed = [f"{times} x {reason}" for reason, times in reasons] + [f"{more} more"] * bool(more)
    return f"{found.dropped}{': ' if listed else ''}{'; '.join(listed)}"
