"""The command line: what it prints, writes and returns, and what it says to bad input."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import torch

import cutlock.cli
import cutlock.cli.run
from cutlock.audit import audit_run
from cutlock.bundle.publication import scan
from cutlock.errors import WorkerError
from cutlock.run.directory import RunDirectory
from tests.support.commands import assert_refused, content, cutlock_

HEAD = {"command", "schema_version"}

CONFIG = """
epochs = 2
prompts_per_step = 2
group_size = 2
sampler = { name = "in_order" }
checkpoint = { every = 2 }
plane = { kind = "memory" }
task = { prompts = 5, length = 2, vocabulary = 3 }
"""

UNFINISHED = CONFIG + "max_steps = 3\n"


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def write_config(path: Path, text: str = CONFIG, **replaced: str) -> Path:
    """`text` with lines or values replaced, by name of the key."""
    for key, line in replaced.items():
        lines = [old for old in text.splitlines() if not old.startswith(f"{key} =")]
        text = "\n".join([line, *lines, ""])
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run after 3 of its 6 steps, with bundles of steps 0, 2 and 3."""
    root = tmp_path_factory.mktemp("stopped")
    config = write_config(root / "run.toml", UNFINISHED)
    cutlock_("run", config, "--out", root / "run")
    bundles = [bundle.path.name for bundle in scan(root / "run").bundles]
    assert bundles == ["step_0", "step_2", "step_3"]
    return root / "run"


@pytest.fixture
def run(stopped: Path, ram_path: Path) -> Path:
    shutil.copytree(stopped, ram_path / "run")
    return ram_path / "run"


@pytest.fixture
def config(ram_path: Path) -> Path:
    """The configuration that brings the stopped run to its end."""
    return write_config(ram_path / "whole.toml")


def assert_resumes(run: Path, config: Path, *arguments: object) -> None:
    cutlock_("resume", run, "--config", config, *arguments)
    audit = audit_run(RunDirectory(run))
    assert audit.ok
    assert audit.trained_once == audit.prompts == 10


# Good input.


def test_a_run_prints_and_writes_what_it_did(ram_path: Path, config: Path) -> None:
    report = ram_path / "new" / "report.json"
    result = cutlock_("run", config, "--out", ram_path / "run", "--json", report)
    assert all(" steps trained: " in line for line in result.stderr.splitlines())
    assert "exhausted" in result.stdout
    written = json.loads(report.read_text())
    assert written.keys() - HEAD == {"ended", "steps", "saves", "slots", "dropped", "failed_saves"}
    assert (written["ended"], written["dropped"]) == ("exhausted", 0)
    assert written["failed_saves"] == []
    assert [step["step"] for step in written["steps"]] == [0, 1, 2, 3, 4, 5]
    assert [save["step"] for save in written["saves"]] == [0, 2, 4, 6]
    assert {"drain", "exclusive", "asynchronous"} <= written["saves"][0].keys()
    assert written["slots"]["group_commit"]["entered"] == 10


def test_a_resume_goes_on_from_the_last_bundle(run: Path, config: Path, ram_path: Path) -> None:
    report = ram_path / "report.json"
    cutlock_("resume", run, "--config", config, "--json", report)
    assert [s["step"] for s in json.loads(report.read_text())["steps"]] == [3, 4, 5]
    assert audit_run(RunDirectory(run)).ok


def test_a_resume_takes_the_saved_configuration_if_none_is_given(run: Path) -> None:
    (run / "step_3").rename(run / "kept")
    cutlock_("resume", run)
    audit = audit_run(RunDirectory(run))
    assert (audit.ended, audit.steps) == ("max_steps", 3)


@pytest.mark.parametrize("path", [False, True])
def test_a_resume_from_a_named_bundle_sets_the_newer_ones_aside(
    run: Path, config: Path, path: bool
) -> None:
    assert_resumes(run, config, "--bundle", run / "step_2" if path else "step_2")
    assert (run / "abandoned_step_3").is_dir()


def test_a_resume_without_rows_generates_finished_groups_again(run: Path, config: Path) -> None:
    assert_resumes(run, config, "--without-rows")


def test_a_resume_of_a_finished_run_launches_nothing(
    run: Path, config: Path, ram_path: Path
) -> None:
    assert_resumes(run, config)
    before, report = content(run), ram_path / "report.json"
    for _ in range(2):
        result = cutlock_("resume", run, "--json", report)
        assert "step_6 is the end of this run; nothing is left to train." in result.stdout
        assert content(run) == before
    written = json.loads(report.read_text())
    assert (written["ended"], written["steps"], written["saves"]) == ("exhausted", [], [])


def test_a_resume_of_a_run_whose_step_budget_is_used_up_launches_nothing(
    run: Path, ram_path: Path
) -> None:
    before, report = content(run), ram_path / "report.json"
    result = cutlock_("resume", run, "--json", report)
    assert "step_3 is the end of this run" in result.stdout
    assert content(run) == before
    assert json.loads(report.read_text())["ended"] == "max_steps"


def test_an_audit_prints_the_verdict_and_writes_every_fate(
    run: Path, config: Path, ram_path: Path
) -> None:
    assert_resumes(run, config)
    report = ram_path / "audit.json"
    result = cutlock_("audit", run, "--json", report)
    assert "nothing lost, nothing repeated" in result.stdout
    assert result.stderr == ""
    written = json.loads(report.read_text())
    assert (written["ok"], written["prompts"], written["trained_once"]) == (True, 10, 10)
    assert (written["trained_twice"], written["lost"], written["dropped"]) == (0, 0, 0)
    assert (written["restarts"], written["problems"]) == (1, [])
    assert {*written["fates"].values()} == {"trained"}
    for window in written["exclusive_window_ms"]:
        assert window.keys() == {"incarnation", "step", "drain", "exclusive", "rest"}


def test_an_audit_that_finds_something_returns_1_and_names_it(run: Path) -> None:
    shutil.rmtree(run / "step_3")
    result = cutlock_("audit", run, code=1)
    assert "NOT CLEAN" in result.stdout
    assert "problem: incarnation-1.ndjson:" in result.stderr
    assert "PublishBundle: bundle step_3 of incarnation 1 is not resolvable" in result.stderr


def test_an_audit_changes_nothing(run: Path) -> None:
    before = content(run)
    cutlock_("audit", run)
    assert content(run) == before


def test_inspect_prints_and_writes_what_a_bundle_holds(run: Path, ram_path: Path) -> None:
    report = ram_path / "bundle.json"
    result = cutlock_("inspect", run / "step_3", "--json", report)
    assert "step_3: verified" in result.stdout
    assert "rollout_recovery.pt" in result.stdout
    written = json.loads(report.read_text())
    assert written.keys() - HEAD == {"info", "cut", "manifest", "artifacts"}
    assert written["cut"]["step"] == written["info"]["step"] == 3
    assert len(written["cut"]["index"]) + len(written["cut"]["ledger"]) > 0


@pytest.mark.parametrize("command", ["audit {run}", "inspect {run}/step_2", "resume {run}"])
def test_no_line_is_wider_than_80_columns(run: Path, command: str) -> None:
    arguments = command.format(run=run).split()
    result = cutlock_(*arguments)
    assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.parametrize("command", ["", "run", "resume", "demo", "audit", "inspect"])
def test_every_command_has_a_help_text(command: str) -> None:
    result = cutlock_(*command.split(), "--help")
    assert result.stdout.startswith(f"Usage: cutlock {command}".rstrip())
    assert result.stdout == cutlock_(*command.split(), "-h").stdout


def test_the_commands_are_listed_with_whole_sentences() -> None:
    listed = cutlock_("--help").stdout.splitlines()
    for command in cutlock.cli.main.list_commands(click.Context(cutlock.cli.main)):
        (line,) = [line for line in listed if line.startswith(f"  {command} ")]
        assert line.endswith(".")
        assert "..." not in line


# Bad configurations.


@pytest.mark.parametrize(
    ("replaced", "fragments"),
    [
        (
            {"sampler": 'sampler = { name = "in_ordr" }'},
            ("unknown sampler 'in_ordr'", "windowed, ready_first, weight_fifo, in_order"),
        ),
        ({"sampler": 'sampler = { name = "in_order", order = "x" }'}, ("'in_order'", "order")),
        ({"sampler": 'sampler = "in_order"'}, ("sampler", "'in_order'", "table")),
        ({"epochs": "epoch = 2"}, ("epoch is unknown", "epochs, max_steps")),
        ({"checkpoint": "checkpoint = { evry = 2 }"}, ("checkpoint.evry is unknown", "every")),
        ({"epochs": "epochs = 0"}, ("epochs = 0", ">= 1")),
        ({"epochs": 'epochs = "two"'}, ("epochs = 'two'", "int")),
        ({"epochs": "epochs = = 2"}, ("is not TOML", "line 1")),
        (
            {"buffer": "buffer = { capacity = 3 }"},
            ("buffer.capacity = 3", "below the 4 groups", "raise it to 4"),
        ),
        ({"task": "task = { prompts = 500, length = 2 }"}, ("[task]", "500", "choose 1 to 36")),
    ],
)
def test_a_bad_configuration_is_refused_before_anything_is_made(
    ram_path: Path, replaced: dict[str, str], fragments: tuple[str, ...]
) -> None:
    config = write_config(ram_path / "bad.toml", **replaced)
    out = ram_path / "run"
    assert_refused(cutlock_("run", config, "--out", out, code=2), str(config), *fragments)
    assert not out.exists()


def test_a_missing_configuration_file_is_named(ram_path: Path) -> None:
    result = cutlock_("run", ram_path / "none.toml", "--out", ram_path / "run", code=2)
    assert_refused(result, f"no configuration file '{ram_path}/none.toml'", "give the path")


def test_bytes_that_are_no_text_are_no_configuration(ram_path: Path) -> None:
    config = ram_path / "run.toml"
    config.write_bytes(b"\xff\xfe\x00")
    result = cutlock_("run", config, "--out", ram_path / "run", code=2)
    assert_refused(result, f"{config} is not TOML")


@pytest.mark.parametrize(
    ("plan", "fragments"),
    [
        ("SavePlan", ("'SavePlan' is no action (did you mean SavePlane?)", "CommitGroup")),
        ("SavePlane:0", ("must be 1 or more, not '0'", "SavePlane:2")),
        ("SavePlane:", ("must be 1 or more, not ''",)),
        ("SavePlane:two", ("must be 1 or more, not 'two'",)),
        ("BeginCommit", ("'BeginCommit' is an action without a stop point", "CommitAdmission")),
        ("", ("'' is no action",)),
    ],
)
def test_an_unknown_kill_action_is_refused(
    ram_path: Path, config: Path, plan: str, fragments: tuple[str, ...]
) -> None:
    result = cutlock_("run", config, "--out", ram_path / "run", "--kill-at", plan, code=2)
    assert_refused(result, *fragments)
    assert not (ram_path / "run").exists()


def test_a_run_is_not_begun_where_another_one_is(run: Path, config: Path) -> None:
    before = content(run)
    result = cutlock_("run", config, "--out", run, code=2)
    assert_refused(result, f"{run} already holds a run", f"`cutlock resume {run}`")
    assert content(run) == before


def test_a_run_is_not_begun_in_a_directory_with_other_files(ram_path: Path, config: Path) -> None:
    result = cutlock_("run", config, "--out", ram_path, code=2)
    assert_refused(result, f"{ram_path} is not an empty directory; give a new or an empty one")


def test_a_directory_that_the_system_refuses_is_named(config: Path) -> None:
    result = cutlock_("run", config, "--out", "/proc/run", code=1)
    assert_refused(result, "/proc/run")


# Resumes with another configuration.


@pytest.mark.parametrize(
    ("replaced", "fragments"),
    [
        ({"group_size": "group_size = 3"}, ("group_size was 2", "is 3", "set group_size = 2")),
        (
            {"prompts_per_step": "prompts_per_step = 3"},
            ("prompts_per_step was 2", "is 3", "set prompts_per_step = 2"),
        ),
        ({"seed": "seed = 5"}, ("seed was 0", "is 5", "set seed = 0")),
        (
            {"sampler": 'sampler = { name = "ready_first" }'},
            ("sampler.name was 'in_order'", "is 'ready_first'", "set sampler.name = 'in_order'"),
        ),
        (
            {"task": "task = { prompts = 6, length = 2, vocabulary = 3 }"},
            ("task.prompts was 5", "is 6 now", "set task.prompts = 5"),
        ),
        (
            {"task": "task = { prompts = 5, length = 3, vocabulary = 3 }"},
            ("task.length was 2", "is 3 now", "set task.length = 2"),
        ),
        (
            {"plane": 'plane = { kind = "transfer_queue" }'},
            ("plane.kind was 'memory'", "'transfer_queue'", "--without-rows"),
        ),
        (
            {"plane": 'plane = { kind = "memory", units = 3 }'},
            ("plane.units was 2", "is 3", "--without-rows"),
        ),
        (
            {"buffer": "buffer = { capacity = 3 }"},
            ("buffer.capacity = 3", "4 groups", "raise it to 4"),
        ),
    ],
)
def test_a_resume_with_another_configuration_is_refused_with_both_values(
    run: Path, config: Path, ram_path: Path, replaced: dict[str, str], fragments: tuple[str, ...]
) -> None:
    before = content(run)
    changed = write_config(ram_path / "changed.toml", **replaced)
    assert_refused(cutlock_("resume", run, "--config", changed, code=2), *fragments)
    assert content(run) == before
    assert_resumes(run, config)


def test_a_resume_with_fewer_places_than_finished_groups_is_refused(ram_path: Path) -> None:
    wide = write_config(
        ram_path / "wide.toml",
        UNFINISHED,
        sampler='sampler = { name = "in_order", window = 2 }',
        max_steps="max_steps = 2",
    )
    run = ram_path / "run"
    cutlock_("run", wide, "--out", run)
    index = json.loads(inspected(run / "step_2", ram_path))["cut"]["index"]
    assert len(index) > 2
    narrow = write_config(
        ram_path / "narrow.toml", sampler='sampler = { name = "in_order", window = 0 }'
    )
    before = content(run)
    result = cutlock_("resume", run, "--config", narrow, code=2)
    assert_refused(result, f"holds {len(index)} finished groups", "capacity is 2", "--without-rows")
    assert content(run) == before
    assert_resumes(run, narrow, "--without-rows")


def inspected(bundle: Path, ram_path: Path) -> str:
    cutlock_("inspect", bundle, "--json", ram_path / "inspected.json")
    return (ram_path / "inspected.json").read_text()


# Resumes of what is not there, or not whole.


def test_a_resume_needs_the_directory_of_a_run(ram_path: Path) -> None:
    for directory in (ram_path, ram_path / "nothing"):
        result = cutlock_("resume", directory, code=2)
        assert_refused(result, f"{directory} holds no run (no run.json)", "`cutlock run --out`")


def test_a_run_without_a_bundle_says_to_start_again(run: Path) -> None:
    for name in ("step_0", "step_2"):
        shutil.rmtree(run / name)
    (run / "step_3").rename(run / "tmp_step_3")
    result = cutlock_("resume", run, code=2)
    assert_refused(result, f"the run in {run} ended before its first save", "`cutlock run`")


def test_a_run_that_has_only_a_broken_bundle_says_what_is_broken(run: Path) -> None:
    for name in ("step_0", "step_2"):
        shutil.rmtree(run / name)
    (run / "step_3" / "manifest.json").write_bytes(b"{}")
    result = cutlock_("resume", run, code=2)
    assert "step_3 (broken: " in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("step_9", "there are: step_0, step_2, step_3"),
        ("other/step_2", "there are: step_0, step_2, step_3"),
        ("tmp_step_4", "tmp_step_4 (unpublished: a save that has not published)"),
        ("trash_step_4", "trash_step_4 (trash: a removal that has not ended)"),
        ("abandoned_step_4", "abandoned_step_4 (abandoned: set aside by a resume"),
    ],
)
def test_a_bundle_that_cannot_be_resumed_from_is_named_with_those_that_can(
    run: Path, config: Path, name: str, fragment: str
) -> None:
    if "step_4" in name:
        shutil.copytree(run / "step_3", run / name)
    before = content(run)
    result = cutlock_("resume", run, "--bundle", name, code=2)
    assert_refused(result, f"no resolvable bundle '{name}'", fragment)
    assert content(run) == before
    assert_resumes(run, config)


def flip(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


@pytest.mark.parametrize(
    ("file", "change", "fragment"),
    [
        ("rollout_recovery.pt", lambda data: data[:-3], "bytes expected"),
        ("train_dataloader.pt", lambda data: b"", "0 found"),
        ("replay_buffer_metadata.pt", flip, "sha256"),
        ("replacement_reserve.pt", None, "missing on disk"),
        ("policy/weights.safetensors", flip, "sha256"),
        ("policy/optimizer.pt", None, "missing on disk"),
        ("data_plane/unit_1.safetensors", lambda data: data[:-1], "bytes expected"),
        ("data_plane/metadata.json", flip, "sha256"),
        ("training_info.json", flip, "sha256"),
        ("policy/more", lambda data: b"x", "on disk, and not in the manifest"),
    ],
)
def test_a_bundle_that_is_not_whole_is_refused_and_the_last_good_one_resumes(
    run: Path,
    config: Path,
    file: str,
    change: Callable[[bytes], bytes] | None,
    fragment: str,
) -> None:
    path = run / "step_3" / file
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes() if path.exists() else b""))
    before = content(run)
    way_out = "the last bundle that verifies is step_2: resume with --bundle step_2"
    assert_refused(cutlock_("resume", run, code=1), f"{run}/step_3: {file}: ", fragment, way_out)
    assert_refused(cutlock_("inspect", run / "step_3", code=1), f"step_3: {file}: ", fragment)
    assert content(run) == before
    assert_resumes(run, config, "--bundle", "step_2")


@pytest.mark.parametrize("change", [lambda data: b"", lambda data: data[:-9], flip])
def test_a_bundle_with_a_broken_manifest_is_passed_over_by_name(
    run: Path, config: Path, change: Callable[[bytes], bytes]
) -> None:
    manifest = run / "step_3" / "manifest.json"
    manifest.write_bytes(change(manifest.read_bytes()))
    result = cutlock_("resume", run, "--config", config)
    assert result.stderr.startswith("warning: passing over step_3 (broken: ")
    assert re.search(r"began with +│ step_2 ", result.stdout)
    audit = audit_run(RunDirectory(run))
    assert audit.ok
    assert audit.trained_once == 10


def test_a_second_controller_of_a_run_is_refused_before_it_starts_anything(
    run: Path, config: Path
) -> None:
    before = content(run)
    with RunDirectory(run).lock():
        result = cutlock_("resume", run, "--config", config, code=2)
    assert_refused(result, f"another controller runs in {run}", "stop it first")
    assert content(run) == before
    assert_resumes(run, config)


@pytest.mark.parametrize(
    ("path", "fragments"),
    [
        ("", ("is the directory of a run", "step_0, step_2, step_3")),
        ("events", ("is no bundle, it has no manifest.json",)),
        ("run.json", ("is no bundle, it has no manifest.json",)),
        ("step_9", ("does not exist", "step_0, step_2, step_3")),
        ("tmp_step_9", ("does not exist", "tmp_step_9")),
    ],
)
def test_inspect_says_what_it_wants_instead(
    run: Path, path: str, fragments: tuple[str, ...]
) -> None:
    assert_refused(cutlock_("inspect", run / path, code=2), *fragments)


def test_a_run_that_was_never_started_has_nothing_to_audit(run: Path) -> None:
    shutil.rmtree(run / "events")
    (run / "events").mkdir()
    assert_refused(cutlock_("audit", run, code=1), "no event log", "nothing has been started")


def test_an_identity_that_is_none_is_named(run: Path) -> None:
    (run / "run.json").write_text("{}")
    assert_refused(cutlock_("audit", run, code=1), f"{run}/run.json is not a run's identity")


def test_an_identity_without_a_number_of_epochs_is_named(run: Path) -> None:
    identity = json.loads((run / "run.json").read_text())
    identity["config"]["epochs"] = "two"
    (run / "run.json").write_text(json.dumps(identity))
    assert_refused(cutlock_("audit", run, code=1), "run.json says epochs = 'two'", "no number")


# Runs that end badly.


def raising(error: BaseException) -> Callable[..., Any]:
    async def build(*args: object, **kwargs: object) -> None:
        raise error

    return build


def test_a_run_that_fails_says_how_to_go_on(run: Path, config: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutlock.cli.run, "build_local", raising(WorkerError("the trainer\n is gone")))
        result = cutlock_("resume", run, "--config", config, code=1)
    assert_refused(result, "the trainer is gone; go on from the last bundle with", str(run))
    assert_resumes(run, config)


def test_a_run_that_fails_before_its_first_save_says_to_start_again(
    ram_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutlock.cli.run, "build_local", raising(WorkerError("no trainer")))
    result = cutlock_("run", config, "--out", ram_path / "run", code=1)
    assert_refused(result, "no trainer; nothing was saved yet; start again with `cutlock run`")


def test_an_interrupted_run_says_how_to_go_on(
    run: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutlock.cli.run, "build_local", raising(KeyboardInterrupt()))
    result = cutlock_("resume", run, "--config", config, code=130)
    assert f"interrupted: go on from the last bundle with `cutlock resume {run}`" in result.stderr
