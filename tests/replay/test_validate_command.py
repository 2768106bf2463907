"""`cutlock validate`: what it prints, writes and returns."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from cutlock.cli import main
from cutlock.cli import validate as commands
from cutlock.conformance.validation.logs import Validation
from cutlock.errors import BudgetError, ToolError, ToolMissingError
from cutlock.tlc.run import Toolchain
from tests.support.kept_runs import TRACES

SPEC = Path(__file__).parents[2] / "spec"
GOOD = TRACES / "runs" / "windowed"
FORGED = TRACES / "rejected" / "fresh_rollout_aborted"


def validate(*arguments: object, code: int = 0, spec: Path = SPEC) -> Result:
    runner = CliRunner(env={"COLUMNS": "80"})
    words = ["validate", *map(str, arguments), "--spec", str(spec)]
    result = runner.invoke(main, words, prog_name="cutlock")
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def altered(root: Path, **config: object) -> Path:
    """A copy of the good run whose configuration is another one."""
    shutil.copytree(GOOD, root)
    facts = json.loads((root / "run.json").read_text())
    facts["config"].update(config)
    (root / "run.json").write_text(json.dumps(facts))
    return root


@pytest.mark.tlc
def test_an_accepted_and_a_refused_run_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(TRACES)
    report = tmp_path / "out" / "report.json"
    good, forged = GOOD.relative_to(TRACES), FORGED.relative_to(TRACES)
    log = forged / "events" / "incarnation-1.ndjson"
    result = validate(good, log, "--json", report, code=1)
    lines = result.stdout.splitlines()
    listed = [line.split() for line in lines if line.startswith(("  runs", "  ...", "  rejected"))]
    assert [words[:4] for words in listed] == [
        ["runs/windowed", "2", "110", "accepted"],
        [f"...{str(log)[-37:]}", "2", "110", "REFUSED"],
    ]
    where = "incarnation-2.ndjson:25 AbortStale"
    assert f"{log}: refused at {where}" in lines
    assert "reverse-10@0" in result.stdout
    assert "generating" in result.stdout
    tables = lines[next(i for i, line in enumerate(lines) if line.startswith("Runs")) :]
    assert max(len(line) for line in tables if "refused at" not in line) <= 80
    found = msgspec.json.decode(report.read_bytes(), type=Validation)
    assert not found.ok
    assert [(run.ok, run.starts, run.events) for run in found.runs] == [
        (True, 2, 110),
        (False, 2, 110),
    ]
    refusal = found.runs[1].refusal
    assert refusal is not None
    assert (refusal.where, refusal.broken) == (where, None)
    assert refusal.groups == {"<<1, 1>>": "reverse-10@0"}
    assert refusal.state["version"] == "0"


@pytest.mark.tlc
def test_accepted_runs_exit_0() -> None:
    assert "accepted" in validate(GOOD).stdout


@pytest.mark.tlc
def test_an_accepted_run_that_an_error_has_ended_says_so(tmp_path: Path) -> None:
    run = altered(tmp_path / "run")
    log = run / "events" / "incarnation-2.ndjson"
    lines = log.read_text().splitlines(keepends=True)
    assert '"exhausted"' in lines[-1]
    log.write_text("".join([*lines[:-1], lines[-1].replace("exhausted", "PlaneError: gone")]))
    told = validate(run).stdout
    assert "accepted" in told
    assert f"incarnation-2.ndjson:{len(lines)} EndRun: PlaneError: gone" in told


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (
            {"sampler": {"name": "custom", "path": "tests.support.custom_samplers:Split"}},
            "a custom sampler",
        ),
        ({"checkpoint": {"rows": False}}, "checkpoint.rows = false"),
        ({"group_size": 3}, "incarnation-1.ndjson:1 BeginRun"),
    ],
)
def test_what_is_not_modelled_exits_2(tmp_path: Path, config: dict[str, object], what: str) -> None:
    result = validate(altered(tmp_path / "run", **config), code=2)
    assert what in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_a_directory_without_a_run_exits_2(tmp_path: Path) -> None:
    assert "holds no run" in validate(tmp_path, code=2).stderr


def test_no_run_at_all_is_wrong_usage() -> None:
    assert "RUN..." in validate(code=2).stderr


def test_a_missing_specification_is_wrong_usage(tmp_path: Path) -> None:
    assert "does not exist" in validate(GOOD, code=2, spec=tmp_path / "none").stderr


def test_a_log_that_is_none_exits_1_and_names_the_line(tmp_path: Path) -> None:
    run = altered(tmp_path / "run")
    log = run / "events" / "incarnation-1.ndjson"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([*lines[:4], *lines[5:]]))
    assert f"{log}:5: record 5 where 4 was due" in validate(run, code=1).stderr


@pytest.mark.tlc
def test_a_specification_that_is_broken_exits_4(tmp_path: Path) -> None:
    broken = "---- MODULE TraceCutlock ----\nEXTENDS Nowhere\n====\n"
    (tmp_path / "TraceCutlock.tla").write_text(broken)
    assert "error: logs: " in validate(GOOD, code=4, spec=tmp_path).stderr


def test_a_missing_java_exits_3(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(jar: Path | None) -> Toolchain:
        raise ToolMissingError("no Java; install one")

    monkeypatch.setattr(commands, "find_toolchain", missing)
    assert validate(GOOD, code=3).stderr == "error: no Java; install one\n"


@pytest.mark.parametrize(
    ("error", "code"), [(ToolError("it failed"), 4), (BudgetError("too late"), 5)]
)
def test_a_check_that_comes_to_no_verdict_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, code: int
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(commands, "validate", fails)
    report = tmp_path / "old.json"
    report.write_text("{}")
    assert str(error) in validate(GOOD, "--json", report, code=code).stderr
    assert not report.exists()
