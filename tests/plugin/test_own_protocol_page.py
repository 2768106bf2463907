"""docs/own-protocol.md says what the example holds and what its tests print."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import click.testing
import pytest

import cutlock.cli
from cutlock.bond import bond as bond_module
from tests.support.lock_example import LOCK_FOLDER
from tests.support.outside_project import OutsideProject, text_of

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[2] / "docs" / "own-protocol.md").read_text()
FILES = {"python": "*.py", "tla": "spec/*.tla", "toml": "**/*.toml", "cfg": "spec/*.cfg"}
SHELL = {
    "python -m pip install 'cutlock[check]' pytest",
    "cd mylock && python -m pytest",
}


class Block(NamedTuple):
    language: str
    text: str


BLOCKS = [Block(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S)]
SHOWN = [block for block in BLOCKS if block.language in FILES]


def of(language: str) -> list[str]:
    return [block.text for block in BLOCKS if block.language == language]


def test_every_block_is_compared_with_something() -> None:
    assert {block.language for block in BLOCKS} == {*FILES, "sh", "text", ""}
    assert len(SHOWN) > 15


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block.text.split("\n")[0].strip())
def test_a_block_of_code_is_in_a_file_of_the_example(block: Block) -> None:
    texts = [path.read_text() for path in LOCK_FOLDER.glob(FILES[block.language])]
    assert any(f"\n{block.text}" in f"\n{text}" for text in texts)


def test_the_files_that_are_listed_are_those_of_the_example() -> None:
    (layout,) = of("")
    listed = set()
    for line in layout.splitlines()[1:]:
        first, *more = re.split(r"\s{2,}", line.strip())[0].split(", ")
        home = Path(first).parent
        listed |= {first, *(name if "/" in name else str(home / name) for name in more)}
    found = {path for name in listed for path in LOCK_FOLDER.glob(name.rstrip("/"))}
    assert all(list(LOCK_FOLDER.glob(name.rstrip("/"))) for name in listed)
    missing = [path for path in LOCK_FOLDER.rglob("*.*") if not {path, path.parent} & found]
    assert [path for path in missing if "cache" not in str(path)] == []


def test_every_command_is_one_that_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in "".join(of("sh")).splitlines():
        if line in SHELL:
            continue
        name, *arguments = shlex.split(line)
        if name == "python":
            subprocess.run([sys.executable, *arguments], check=True)
            monkeypatch.chdir(tmp_path / "mylock")
            continue
        assert name == "cutlock"
        done = click.testing.CliRunner().invoke(cutlock.cli.main, [*arguments, "-n"])
        assert done.exit_code == 0, done.output
        assert "tlc2.TLC" in done.output


@pytest.mark.tlc
def test_what_is_shown_of_a_broken_lock_is_what_pytest_prints(
    project: OutsideProject,
) -> None:
    project.break_the_lock()
    tests = "as_it_is and lost_wakeup or every_transition or real_runs"
    result = project.run("-k", tests)
    result.assert_outcomes(failed=3, deselected=11)
    assert len(of("text")) == 4
    for shown in of("text"):
        assert f"\n{shown}" in text_of(result)


def test_every_message_that_is_explained_is_one_that_is_raised() -> None:
    table = PAGE.partition("## When something does not fit")[2]
    source = "".join(
        re.sub(r'"\s*\n\s*f?"', "", path.read_text())
        for path in [
            *Path(bond_module.__file__).parent.glob("*.py"),
            Path(cutlock.__file__).with_name("pytest_plugin.py"),
        ]
    )
    messages = re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.M)))
    assert len(messages) > 10
    for message in messages:
        for part in re.split(r"\.\.\.|\(\.\.\.\)|LockStepper\.wait|LockStepper|\block\b", message):
            assert part.strip(" (),") in source, message


def test_the_options_are_those_of_the_plugin(project: OutsideProject) -> None:
    result = project.run("--help")
    for option in re.findall(r"`(--cutlock-\w+)`", PAGE):
        assert f"  {option}=" in text_of(result)
    for line in re.findall(r"`(cutlock_\w+)` \|", PAGE.partition("| option,")[2]):
        assert f"  {line} (string)" in text_of(result)
