"""What all commands share: how they end, what their help says, options, result files."""

from __future__ import annotations

import difflib
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
from click.shell_completion import CompletionItem

from cutlock.cli.exits import ExitCode, exit_code
from cutlock.errors import CutlockError
from cutlock.report.results import document, write_whole
from cutlock.report.terminal import StdoutClosed, Terminal
from cutlock.shipped import named_file, names, shipped

__all__ = [
    "Entry",
    "NamedPath",
    "ToolCommand",
    "ToolGroup",
    "forget_result",
    "jar_option",
    "json_option",
    "manifest_option",
    "quiet_option",
    "write_json",
    "write_result",
]

_STDOUT = Path("-")


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
    """A command of the family.

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
        """Run the command."""
        try:
            return super().invoke(ctx)
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


def _stdout_is_for_a_program(ctx: click.Context, _: click.Parameter, value: Path | None) -> Any:
    if value == _STDOUT:
        Terminal.current().results = False
    return value


def _be_quiet(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    Terminal.current().quiet |= value


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
    callback=_stdout_is_for_a_program,
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


def forget_result(path: Path | None) -> None:
    """An old result must not be taken for the one of a run that dies."""
    if path is not None and path != _STDOUT:
        path.unlink(missing_ok=True)


def write_result(path: Path | None, result: object) -> None:
    """Write the result of the command that runs, if a path is given; `-` is stdout."""
    if path is not None:
        command = click.get_current_context().info_name
        write_json(path, document(str(command), result))


def write_json(path: Path | None, data: object) -> None:
    """Write data as JSON, if a path is given; `-` is stdout."""
    if path is None:
        return
    text = msgspec.json.format(msgspec.json.encode(data), indent=2)
    if path == _STDOUT:
        Terminal.current().write(text.decode())
    else:
        write_whole(path, text + b"\n")
