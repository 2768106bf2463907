"""Real results of every command: for programs by their schema, for people in narrow terminals."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from rich.console import Console, RenderableType

import cutlock
import cutlock.cli
import cutlock.cli.demo
from cutlock.audit import audit_run
from cutlock.cli import COMMANDS
from cutlock.cli import models as tlc
from cutlock.cli.demo import DemoReport, Start
from cutlock.report.terminal import Terminal
from cutlock.run.directory import RunDirectory
from cutlock.tlc.selftest import FOLDER
from tests.replay.test_paths_command import Models, models  # noqa: F401
from tests.support.commands import cutlock_
from tests.support.kept_runs import TRACES

ROOT = Path(cutlock.__file__).parents[2]

CONFIG = """
epochs = 2
prompts_per_step = 2
group_size = 2
max_steps = {steps}
sampler = {{ name = "in_order" }}
checkpoint = {{ every = 3 }}
plane = {{ kind = "memory" }}
task = {{ prompts = 5, length = 2, vocabulary = 3 }}
"""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run after 2 of its 6 steps."""
    root = tmp_path_factory.mktemp("stopped")
    (root / "run.toml").write_text(CONFIG.format(steps=2))
    cutlock_("run", root / "run.toml", "--out", root / "run")
    return root / "run"


@pytest.fixture
def call(
    stopped: Path, ram_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[[str], list[object]]:
    """The arguments of a real call of each command."""
    monkeypatch.chdir(ROOT)
    config = ram_path / "config.toml"
    config.write_text(CONFIG.format(steps=6))
    # It has tests of its own.
    monkeypatch.setattr(tlc, "self_test", lambda toolchain, watch: None)

    def resumed() -> list[object]:
        shutil.copytree(stopped, ram_path / "resumed")
        return [ram_path / "resumed", "--config", config]

    def demo() -> list[object]:
        audit = audit_run(RunDirectory(stopped))
        starts = (Start("run", "SavePlane:3", "killed", 12.0), Start("resume", None, "ended", 9.0))
        report = DemoReport("in_order", starts, 0.1, 0.5, audit)
        monkeypatch.setattr(cutlock.cli.demo, "run_demo", lambda *arguments: report)
        return ["--out", ram_path / "demo"]

    def paths() -> list[object]:
        found: Models = request.getfixturevalue("models")
        manifest = found.folder / "manifest.toml"
        return ["--manifest", manifest, "--graphs", found.folder, "--workers", 1]

    calls: dict[str, Callable[[], list[object]]] = {
        "run": lambda: [config, "--out", ram_path / "run"],
        "resume": resumed,
        "audit": lambda: [stopped],
        "show": lambda: [stopped, "-o", ram_path / "page.html"],
        "inspect": lambda: [stopped / "step_2"],
        "demo": demo,
        "check": lambda: ["good", "deadlock", "--manifest", FOLDER / "manifest.toml"],
        "mutants": lambda: ["barrier_leaks_a_count"],
        "doctor": list,
        "paths": paths,
        "replay": lambda: [
            TRACES / "counterexamples" / "cursor_early.itf.json",
            *sorted((TRACES / "regressions").glob("*.itf.json"))[:1],
        ],
        "validate": lambda: [TRACES / "runs" / "windowed", TRACES / "rejected" / REJECTED],
        "bench": lambda: ["buffer", "--tiny"],
    }
    return lambda name: calls[name]()


REJECTED = "fresh_rollout_aborted"
WITH_TLC = {"check", "mutants", "doctor", "validate"}


def named(name: str) -> Any:
    return pytest.param(name, marks=[pytest.mark.tlc] if name in WITH_TLC else [])


WITH_RESULT = [
    name
    for entries in COMMANDS.values()
    for name in entries
    if name not in {"schema", "completion", "example"}
]


@pytest.mark.parametrize("name", [named(name) for name in WITH_RESULT])
def test_a_real_result_is_as_its_schema_says_and_as_narrow_as_the_terminal(
    name: str, call: Callable[[str], list[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[RenderableType] = []
    monkeypatch.setattr(Terminal, "show", lambda self, *results: shown.extend(results))
    arguments = [name, *map(str, call(name)), "--json", "-"]
    result = CliRunner().invoke(cutlock.cli.main, arguments)
    # One of two runs is refused; and a goal is missed by chance where nothing is repeated.
    assert result.exit_code in {"validate": {1}, "bench": {0, 1}}.get(name, {0}), result.output
    # There is nothing else on stdout.
    found = json.loads(result.stdout)
    schema = json.loads((ROOT / "docs" / "schemas" / f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(found, schema, jsonschema.Draft202012Validator)
    assert (found["command"], found["schema_version"]) == (name, 1)
    assert [*found] == [*schema["properties"]]
    assert shown
    tables = [each for each in shown if not isinstance(each, str)]
    wide = letters(rendered(tables, 500))
    for width in (80, 60):
        lines = rendered(tables, width)
        assert max(map(len, lines), default=0) <= width
        assert letters(lines) == wide


def rendered(tables: list[RenderableType], width: int) -> list[str]:
    written = io.StringIO()
    console = Console(file=written, width=width)
    for each in tables:
        console.print(each)
    return written.getvalue().splitlines()


def letters(lines: list[str]) -> list[str]:
    """All that is not a blank or a line of a table, in no order: cells are folded."""
    return sorted(letter for line in lines for letter in line if letter.isascii() and letter > " ")
