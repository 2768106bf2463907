"""What all commands share: how they end, what their help says, where their results go."""

from __future__ import annotations

import difflib
import enum
import errno
import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

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
from cutlock.report.results import document, write_whole
from cutlock.report.terminal import StdoutClosed, Terminal

__all__ = [
    "JSON_PATH",
    "STDOUT",
    "Entry",
    "ExitCode",
    "ToolCommand",
    "ToolGroup",
    "current_terminal",
    "exit_code",
    "forget_result",
    "write_json",
    "write_result",
]

STDOUT = Path("-")
JSON_PATH = f"{__name__}.json"
"""Where the context of a command keeps the argument of `--json`."""
_TERMINAL = f"{__name__}.terminal"


class ExitCode(enum.IntEnum):
    """What a command has come to; docs/command-line.md has the same table."""

    OK = 0
    """As expected."""
    FAILED = 1
    """The run failed, or something was found that breaks a promise."""
    USAGE = 2
    """Wrong usage, configuration or path; nothing was begun."""
    TOOL_MISSING = 3
    """Java or TLC was not found, or is too old."""
    TOOL_FAILED = 4
    """A specification cannot be read, or the checker failed."""
    OUT_OF_TIME = 5
    """The checker was stopped at its limit, without an answer."""
    INTERRUPTED = 130
    """Ctrl-C; what is kept was said."""
    BROKEN_PIPE = 141
    """Whoever read the output has stopped reading, e.g. `head`."""


def exit_code(error: CutlockError) -> ExitCode:
    """The code of a command that ends with this error."""
    match error:
        case DivergenceError() | NotEnabledError():
            return ExitCode.FAILED
        case ConfigError() | BundleNotFoundError() | ConformanceError():
            return ExitCode.USAGE
        case ToolMissingError():
            return ExitCode.TOOL_MISSING
        case ToolError():
            return ExitCode.TOOL_FAILED
        case BudgetError():
            return ExitCode.OUT_OF_TIME
    return ExitCode.FAILED


class _Ending(click.Command):
    """Ends with one line on stderr and an exit code, whatever has happened."""

    def __init__(
        self, *args: Any, exits: Mapping[ExitCode, str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.exits = dict(exits or {})
        """What each exit code of this command means."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run as a program."""
        run: Callable[[], Any] = functools.partial(
            super().main, args, prog_name, complete_var, standalone_mode=False, **extra
        )
        if not standalone_mode:
            return run()
        try:
            sys.exit(run())
        except Exception as error:
            code = _ended_by(error)
            if code is None:
                raise
            sys.exit(code)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes."""
        super().format_epilog(ctx, formatter)
        if self.exits:
            with formatter.section("Exit codes"):
                formatter.write_dl([(str(int(code)), text) for code, text in self.exits.items()])


def _ended_by(error: Exception) -> ExitCode | None:
    """Say what has ended the command; None if it is a fault of ours."""
    say = Terminal().say
    match error:
        case click.UsageError():
            asked = f"; see `{error.ctx.command_path} --help`" if error.ctx else ""
            say(f"error: {error.format_message().rstrip('.')}{asked}")
            return ExitCode.USAGE
        case click.ClickException():
            say(f"error: {error.format_message()}")
            return ExitCode.USAGE
        case click.Abort():
            interrupt = error.__cause__ or error.__context__ or error
            notes = getattr(interrupt, "__notes__", ())
            say(f"interrupted: {'; '.join(notes) or 'nothing was written'}")
            return ExitCode.INTERRUPTED
        case StdoutClosed():
            # What is still buffered must not be written at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.BROKEN_PIPE
        case CutlockError():
            say(f"error: {'; '.join([str(error), *getattr(error, '__notes__', ())])}")
            return exit_code(error)
        case OSError():
            say(f"error: {_system(error)}")
            return ExitCode.FAILED
    return None


def _system(error: OSError) -> str:
    """What the system has refused, and what there is to do about it."""
    if error.filename is None:
        return str(error)
    way_out = {
        errno.ENOSPC: "make room on that disk",
        errno.EDQUOT: "make room in that quota",
        errno.ENOENT: "give a path that exists",
        errno.EACCES: "give a path that you may use, or change its permissions",
        errno.EPERM: "give a path that you may use, or change its permissions",
        errno.EROFS: "give a path on a disk that can be written",
    }.get(error.errno or 0, "give another path")
    return f"{error.filename}: {error.strerror}; {way_out}"


class ToolCommand(_Ending):
    """A command of the family: a function that returns its result, an exit code, or None.

    Args:
        exits: what its exit codes mean.
        examples: command lines that work in a clone.
        result: what `--json` writes; see `cutlock.report.results`.
        kept: see there.
    """

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str] = (),
        result: type | None = None,
        kept: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self._result = result
        self.kept = kept
        """What is on disk after Ctrl-C, unless a note on the interrupt says it better."""

    @property
    def result(self) -> type | None:
        """The type of what `--json` writes."""
        return self._result

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, write what it returns, and end with the exit code of that."""
        try:
            found = super().invoke(ctx)
            if found is None or isinstance(found, int):
                return found
            write_result(found)
            return _code_of(found)
        except KeyboardInterrupt as error:
            if self.kept and not getattr(error, "__notes__", ()):
                error.add_note(self.kept)
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples and exit codes."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"  {example}\n")
        super().format_epilog(ctx, formatter)


def _code_of(result: object) -> int:
    """A result has an exit code, or says whether it is `ok`, or is there at all."""
    code: int | None = getattr(result, "exit_code", None)
    if code is not None:
        return code
    return ExitCode.OK if getattr(result, "ok", True) else ExitCode.FAILED


class Entry(NamedTuple):
    """A command that is imported when it is needed."""

    place: str
    """`module:name`."""
    summary: str


class ToolGroup(_Ending, click.Group):
    """Commands in sections of the help text."""

    def __init__(
        self, *args: Any, sections: Mapping[str, Mapping[str, Entry]], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections
        self._entries = {name: entry for part in sections.values() for name, entry in part.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, section by section."""
        return [*self._entries]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self._entries:
            return None
        module, _, name = self._entries[cmd_name].place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is asked for; of an unknown one, say which it may be."""
        name = args[0]
        if name not in self._entries and not name.startswith("-"):
            near = difflib.get_close_matches(name, self._entries, n=1)
            meant = (
                f"did you mean {near[0]}?" if near else f"choose from {', '.join(self._entries)}"
            )
            ctx.fail(f"no command is called {name!r}; {meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, without importing anything."""
        width = max(map(len, self._entries))
        for title, entries in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), e.summary) for name, e in entries.items()])


def current_terminal() -> Terminal:
    """That of the command that runs; a new one outside of commands."""
    context = click.get_current_context(silent=True)
    if context is None:
        return Terminal()
    found: Terminal = context.meta.setdefault(_TERMINAL, Terminal())
    return found


def forget_result() -> None:
    """An old result must not be taken for the one of a run that dies."""
    path = _result_path()
    if path is not None and path != STDOUT:
        path.unlink(missing_ok=True)


def write_result(result: object) -> None:
    """Write the result of the command that runs to where `--json` says, if it is given."""
    path = _result_path()
    if path is not None:
        command = click.get_current_context().info_name
        write_json(path, document(str(command), result))


def _result_path() -> Path | None:
    path: Path | None = click.get_current_context().meta.get(JSON_PATH)
    return path


def write_json(path: Path, data: object) -> None:
    """Write data as JSON; `-` is stdout."""
    text = msgspec.json.format(msgspec.json.encode(data), indent=2)
    if path == STDOUT:
        current_terminal().write(text.decode())
    else:
        write_whole(path, text + b"\n")
