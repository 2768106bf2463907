"""What all commands have in common: help, examples, schemas, completion, exit codes."""

from __future__ import annotations

import errno
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import click.testing
import pytest
from click.shell_completion import CompletionItem, ShellComplete

import cutlock
import cutlock.cli.run
from cutlock.cli import COMMANDS, main
from cutlock.cli.command import ExitCode, ToolCommand, exit_code
from cutlock.errors import (
    BudgetError,
    CutlockError,
    DivergenceError,
    NotEnabledError,
    ToolError,
    ToolMissingError,
)
from tests.support.commands import assert_refused, cutlock_

ROOT = Path(cutlock.__file__).parents[2]
PAGE = ROOT / "docs" / "command-line.md"
NAMES = [name for entries in COMMANDS.values() for name in entries]
LONG = {"run", "resume", "demo", "check", "mutants", "paths", "validate", "bench"}
"""Commands that take so long that a person wants to see what they do."""


def command(name: str) -> ToolCommand:
    found = main.get_command(click.Context(main), name)
    assert isinstance(found, ToolCommand)
    return found


@pytest.fixture
def in_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the examples of the help work."""
    monkeypatch.chdir(ROOT)


# Help.


@pytest.mark.parametrize("name", ["", *NAMES])
def test_the_help_fits_80_columns(name: str) -> None:
    lines = cutlock_(*name.split(), "--help").stdout.splitlines()
    assert lines[0].startswith(f"Usage: cutlock {name}".rstrip())
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines[1:] if line.endswith("...")]


def test_the_help_groups_all_commands_and_imports_none() -> None:
    lines = cutlock_("--help").stdout.splitlines()
    for title, entries in COMMANDS.items():
        start = lines.index(f"{title}:")
        listed = [line.split()[0] for line in lines[start + 1 : start + 1 + len(entries)]]
        assert listed == [*entries]
    check = "import sys; from cutlock.cli import main; main(['-h'], standalone_mode=False); "
    check += "sys.exit('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", check], capture_output=True, check=False)
    assert shown.returncode == 0


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_examples_and_exit_codes_in_its_help(name: str) -> None:
    shown = cutlock_(name, "--help").stdout
    examples, codes = shown.partition("Examples:")[2].split("Exit codes:")
    assert examples.split("\n")[1:-2] == [f"  {example}" for example in command(name).examples]
    assert command(name).examples
    listed = [int(code) for code in re.findall(r"^  (\d+) ", codes, re.MULTILINE)]
    assert listed == [*map(int, command(name).exits)]
    assert {0, 2} <= {*listed}


@pytest.mark.parametrize("name", sorted(LONG))
def test_a_long_command_can_be_quiet_and_says_what_an_interrupt_keeps(name: str) -> None:
    assert "quiet" in [parameter.name for parameter in command(name).params]
    assert ExitCode.INTERRUPTED in command(name).exits


EXAMPLES = [example for name in NAMES for example in command(name).examples]


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_understood(example: str, in_clone: None) -> None:
    # What a shell makes of `eval "$(...)"` and of a pipe.
    line = re.split(r" [|>] ", re.sub(r"^eval \"\$\((.*)\)\"$", r"\1", example))[0]
    program, name, *arguments = shlex.split(line)
    assert program == "cutlock"
    command(name).make_context(name, arguments, parent=click.Context(main, **main.context_settings))


RUN_AT_ONCE = [
    "cutlock bench --list",
    "cutlock completion fish",
    "cutlock example",
    "cutlock replay cursor_early",
    "cutlock schema",
    "cutlock schema check",
]


@pytest.mark.parametrize("example", RUN_AT_ONCE)
def test_an_example_that_takes_no_time_is_run(example: str, in_clone: None) -> None:
    assert any(example in known for known in EXAMPLES)
    cutlock_(*shlex.split(example)[1:])


# Wrong usage.


@pytest.mark.parametrize(
    ("line", "fragments"),
    [
        ("chek", ("'chek'", "did you mean check?", "`cutlock --help`")),
        ("zzzz", ("'zzzz'", "choose from run, resume, ")),
        ("--verbos", ("'--verbos'", "`cutlock --help`")),
        ("check --clas full", ("'--clas'", "`cutlock check --help`")),
        ("check --class long", ("'long'", "'quick', 'full', 'deep'", "`cutlock check --help`")),
        ("run", ("'CONFIG'", "`cutlock run --help`")),
        ("run x.toml", ("'--out'", "`cutlock run --help`")),
        ("demo --sampler fifo", ("'fifo'", "in_order", "`cutlock demo --help`")),
        ("paths --sample 0", ("'--sample'", "0", "`cutlock paths --help`")),
        ("replay none.json", ("'none.json'", "`cutlock replay --help`")),
        ("validate", ("'RUN...'", "`cutlock validate --help`")),
        ("completion tcsh", ("'tcsh'", "'bash', 'zsh', 'fish'")),
        ("schema doctr", ("'doctr'", "choose from run, resume, ")),
        ("mutants --write", ("--write needs --traces", "give the directory")),
        ("audit a b", ("(b)", "`cutlock audit --help`")),
    ],
)
def test_wrong_usage_is_one_line_with_the_value_and_the_way_out(
    line: str, fragments: tuple[str, ...]
) -> None:
    assert_refused(cutlock_(*line.split(), code=2), *fragments)


# Exit codes.


def test_the_page_has_every_exit_code() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [(str(int(code)), code.name) for code in ExitCode]


def test_the_page_says_which_command_has_which_exit_codes() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d, ]+) \|", PAGE.read_text(), re.MULTILINE))
    assert rows == {
        name: ", ".join(str(int(code)) for code in command(name).exits) for name in NAMES
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CutlockError("x"), 1),
        (DivergenceError("x"), 1),
        (NotEnabledError("x"), 1),
        (ToolMissingError("x"), 3),
        (ToolError("x"), 4),
        (BudgetError("x"), 5),
    ],
)
def test_an_error_has_the_code_of_its_kind(error: CutlockError, code: int) -> None:
    assert exit_code(error) == code


def raising(error: BaseException) -> Callable[..., Any]:
    def call(*arguments: object, **more: object) -> Any:
        raise error

    return call


ENDS = {
    "run": "cutlock.cli.run.load_config",
    "resume": "cutlock.cli.run._bundle_of",
    "audit": "cutlock.cli.audit.audit_run",
    "inspect": "cutlock.cli.inspect.read_bundle",
    "demo": "cutlock.cli.demo.load_config",
    "check": "cutlock.cli.models.load_manifest",
    "mutants": "cutlock.cli.models.load_manifest",
    "doctor": "cutlock.cli.models.diagnose",
    "paths": "cutlock.cli.paths.load_manifest",
    "replay": "cutlock.cli.replay.load_manifest",
    "validate": "cutlock.cli.validate.find_toolchain",
    "show": "cutlock.cli.show.collect",
    "example": "cutlock.cli.tools._examples",
    "bench": "cutlock.cli.bench._module",
    "schema": "cutlock.cli.tools._results",
    "completion": "cutlock.cli.tools.get_completion_class",
}
"""Something that each command calls."""

CALLS = {
    "run": "examples/run.toml --out {path}/run",
    "resume": "{path}",
    "audit": "{path}",
    "inspect": "{path}/step_0",
    "replay": "traces/counterexamples/cursor_early.itf.json",
    "validate": "traces/runs/windowed",
    "show": "cursor_early -o {path}/page.html",
    "completion": "bash",
}


def ended(
    name: str, error: BaseException, path: Path, monkeypatch: pytest.MonkeyPatch
) -> click.testing.Result:
    """The end of a command inside of which something is raised."""
    command(name)  # or the module that is patched is not imported yet
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(ENDS[name], raising(error))
    (path / "step_0").mkdir()
    arguments = CALLS.get(name, "").format(path=path).split()
    code = {KeyboardInterrupt: 130, ToolMissingError: 3, ToolError: 4, BudgetError: 5}
    return cutlock_(name, *arguments, code=code.get(type(error), 1))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("error", [ToolMissingError, ToolError, BudgetError])
def test_an_error_of_the_checker_has_its_code_in_every_command(
    name: str, error: type[CutlockError], ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = ended(name, error("what was found; what to do"), ram_path, monkeypatch)
    assert_refused(result, "error: what was found; what to do")


@pytest.mark.parametrize("name", NAMES)
def test_an_interrupt_ends_every_command_with_130_and_says_what_is_kept(
    name: str, ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = ended(name, KeyboardInterrupt(), ram_path, monkeypatch)
    assert result.stderr.strip() == f"interrupted: {command(name).kept or 'nothing was written'}"
    assert sorted(path.name for path in ram_path.iterdir()) == ["step_0"]


@pytest.mark.parametrize(
    ("number", "way_out"),
    [
        (errno.ENOSPC, "make room on that disk"),
        (errno.EACCES, "give a path that you may use"),
        (errno.EROFS, "on a disk that can be written"),
        (errno.ENOENT, "give a path that exists"),
        (errno.ENOTDIR, "give another path"),
    ],
)
def test_what_the_system_refuses_is_named_with_the_way_out(
    number: int, way_out: str, ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = OSError(number, os.strerror(number), "/some/file")
    result = ended("audit", refused, ram_path, monkeypatch)
    assert_refused(result, f"error: /some/file: {os.strerror(number)}; ", way_out)


def test_a_fault_of_ours_keeps_its_traceback(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("audit")
    monkeypatch.setattr(ENDS["audit"], raising(IndexError()))
    result = click.testing.CliRunner().invoke(main, ["audit", str(ram_path)])
    assert isinstance(result.exception, IndexError)


def test_a_reader_that_stops_ends_a_command_quietly() -> None:
    script = "from cutlock.cli import main; main(['audit', 'traces/runs/in_order'])"
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as closed:
        ended = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, stdout=closed, stderr=subprocess.PIPE
        )
    assert (ended.returncode, ended.stderr) == (141, b"")


# Results for programs.


def test_the_schemas_that_are_kept_are_those_of_the_commands(ram_path: Path) -> None:
    cutlock_("schema", "--write", ram_path)
    kept = ROOT / "docs" / "schemas"
    made = {path.name: path.read_text() for path in ram_path.iterdir()}
    assert made == {path.name: path.read_text() for path in kept.iterdir()}, (
        "write them anew: cutlock schema --write docs/schemas"
    )


def test_every_command_with_a_result_has_a_schema_and_the_option() -> None:
    listed = cutlock_("schema").stdout.split()
    with_option = [name for name in NAMES if "json_path" in [p.name for p in command(name).params]]
    assert listed == with_option
    assert {*NAMES} - {*listed} == {"example", "schema", "completion"}


def test_a_schema_is_printed_as_it_is_kept() -> None:
    assert cutlock_("schema", "audit").stdout == (ROOT / "docs/schemas/audit.json").read_text()


# Completion.


def completed(line: str) -> list[str]:
    """What a shell would offer at the end of a line."""
    *words, incomplete = line.split(" ")
    items: list[CompletionItem] = ShellComplete(
        main, {}, "cutlock", "_CUTLOCK_COMPLETE"
    ).get_completions(words, incomplete)
    return [item.value for item in items]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("aud", ["audit"]),
        ("check --cl", ["--class"]),
        ("check --class f", ["full"]),
        ("demo --sampler w", ["windowed", "weight_fifo"]),
        ("bench s", ["slots"]),
        ("bench buffer b", ["bundle"]),
        ("paths graph_cr", ["graph_crash"]),
        ("mutants cursor_ea", ["cursor_early"]),
        ("check cursor_ea", ["cursor_early"]),
        ("completion z", ["zsh"]),
        ("schema mut", ["mutants"]),
        ("replay cursor_ea", ["cursor_early"]),
        ("validate window", ["windowed"]),
        ("show narrow_cur", ["narrow_cursor_early"]),
        ("replay --fault cursor_r", ["cursor_read_early"]),
        ("run x.toml --kill-at SavePl", ["SavePlane"]),
    ],
)
def test_a_shell_is_offered_what_begins_so(line: str, offered: list[str], in_clone: None) -> None:
    assert completed(line) == offered


def test_nothing_is_offered_where_there_is_no_manifest(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ram_path)
    assert completed("check --manifest none.toml cursor_ea") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell_asks_cutlock(shell: str) -> None:
    script = cutlock_("completion", shell).stdout
    assert f"_CUTLOCK_COMPLETE={shell}_complete" in script
