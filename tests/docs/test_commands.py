"""Every command that the documentation shows is one, with the options that it shows."""

from __future__ import annotations

import itertools
import re
import shlex

import click
import pytest

import cutlock.cli
from tests.support.docs import ALL, ROOT, Page

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


def commands(page: Page, program: str) -> list[str]:
    """Whole commands in the text, and lines of blocks that begin with one."""
    inline = [code for code in page.code if re.match(rf"{program} [a-z]", code)]
    lines = [re.split(r"\s{2,}|\s#", line)[0] for line in page.lines]
    return inline + [line for line in lines if re.match(rf"(\.venv/bin/)?{program} [a-z]", line)]


@pytest.mark.parametrize("page", ALL, ids=str)
def test_every_cutlock_command_takes_what_it_is_given(page: Page) -> None:
    for command in commands(page, "cutlock"):
        for name, options in parsed(command):
            known = subcommand(name)
            assert known is not None, command
            flags = {flag for p in known.params for flag in (*p.opts, *p.secondary_opts)}
            assert options <= flags | {"--help", "-h"}, command


@pytest.mark.parametrize("page", ALL, ids=str)
def test_every_target_of_make_exists(page: Page) -> None:
    for command in commands(page, "make"):
        words = command.split()[1:]
        assert {word for word in words if "=" not in word} <= TARGETS, command


def test_the_commands_of_the_documentation_are_found() -> None:
    """Or the tests above would pass for want of any."""
    found = [command for page in ALL for command in commands(page, "cutlock")]
    assert len(found) > 30
    assert "cutlock replay traces/counterexamples/narrow_loader_not_awaited.itf.json" in found
    assert list(parsed("cutlock check a --class full --json out/x.json && make docs")) == [
        ("check", {"--class", "--json"})
    ]
    assert list(parsed("cutlock check, mutants, doctor")) == [
        ("check", set()),
        ("mutants", set()),
        ("doctor", set()),
    ]


def parsed(command: str) -> list[tuple[str, set[str]]]:
    """(name, options) of a command; of several where names are listed with commas."""
    words = shlex.split(re.split(r"[|;&<]|\.\.\.", command)[0], comments=True)[1:]
    options = {word.partition("=")[0] for word in words if re.match("--?[a-z]", word)}
    names = [words[0].rstrip(",")]
    for before, word in itertools.pairwise(words):
        if not before.endswith(","):
            break
        names.append(word.rstrip(","))
    return [(name, options) for name in names]


def subcommand(name: str) -> click.Command | None:
    return cutlock.cli.main.get_command(click.Context(cutlock.cli.main), name)
