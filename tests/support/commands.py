"""`cutlock` in this process: what it prints, returns, and leaves on disk."""

from __future__ import annotations

import hashlib
from pathlib import Path

import click.testing

import cutlock.cli


def cutlock_(*arguments: object, code: int = 0) -> click.testing.Result:
    runner = click.testing.CliRunner(env={"COLUMNS": "80"})
    result = runner.invoke(cutlock.cli.main, [*map(str, arguments)], prog_name="cutlock")
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    return result


def told(result: click.testing.Result) -> str:
    """What stands on stderr, without the steps that a run has told on its way."""
    lines = result.stderr.splitlines(keepends=True)
    return "".join(line for line in lines if "  steps trained: " not in line)


def assert_refused(result: click.testing.Result, *fragments: str) -> None:
    """One line on stderr, with everything in it that a reader needs to go on."""
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("error: ")
    for fragment in fragments:
        assert fragment in result.stderr


def content(root: Path) -> dict[str, str]:
    """All files of a run but its lock, with their digests."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "run.lock"
    }
