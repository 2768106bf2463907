"""Whole runs that lose a worker, the controller, or the disk, as a user meets them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from cutlock.alphabet import Action
from cutlock.audit import audit_run
from cutlock.bundle.publication import scan
from cutlock.errors import AuditError
from cutlock.events import Record, read_log
from cutlock.run.directory import RunDirectory
from tests.support.acceptance import assert_accepted
from tests.support.processes import Cutlock, Disk, frozen

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

RUN = """
epochs = 4
prompts_per_step = 2
group_size = 4
sampler = { name = "in_order", window = 1 }
checkpoint = { every = 2, keep = 100, failures_in_a_row = 100 }
failures = { attempts = 1 }
workers = { generators = 2, token_delay_s = 0.05, limit_s = 300 }
plane = { limit_s = 300 }
task = { prompts = 16, length = 3, vocabulary = 6 }
"""


def newest(run: Path) -> int:
    """Step of the newest bundle; -1 while there is none."""
    return max((bundle.manifest.step for bundle in scan(run).bundles), default=-1)


def records(run: Path, action: Action) -> list[Record]:
    """All such records of a run, of one that goes on too."""
    found = []
    for log in RunDirectory(run).logs().values():
        with contextlib.suppress(AuditError):  # a line that is half written
            found += [record for record in read_log(log) if record.action == action]
    return found


def failed_saves(run: Path, said: str) -> Callable[[], bool]:
    """Whether a save has failed with these words."""
    return lambda: any(said in str(r.args["error"]) for r in records(run, Action.FAIL_SAVE))


def assert_all_trained(run: Path, restarts: int = 0) -> None:
    audit = audit_run(RunDirectory(run))
    assert audit.problems == ()
    assert audit.ok
    assert (audit.lost, audit.trained_twice, audit.dropped) == (0, 0, 0)
    assert (audit.trained_once, audit.restarts) == (64, restarts)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(RUN)
    return path


def test_a_run_that_loses_one_of_two_generators_goes_on_with_the_other(
    tmp_path: Path, config: Path
) -> None:
    run = tmp_path / "run"
    with Cutlock(tmp_path / "output", "run", config, "--out", run) as command:
        command.until(lambda: newest(run) >= 2)
        command.kill("_GeneratorActor")
        command.ends(code=0)
    for failed in records(run, Action.FAIL_GROUP):
        assert "died or was cut off before it answered generate" in str(failed.args["error"])
    assert_all_trained(run)


@pytest.mark.long
def test_a_generator_that_never_answers_holds_up_neither_saves_nor_the_run(
    tmp_path: Path, config: Path
) -> None:
    run = tmp_path / "run"
    limits = "limit_s = 60, group_limit_s = 3 }"
    raw = RUN.replace("limit_s = 300 }", limits, 1).replace("attempts = 1", "attempts = 2")
    config.write_text(raw)
    with Cutlock(tmp_path / "output", "run", config, "--out", run) as command:
        command.until(lambda: newest(run) >= 2)
        saved = newest(run)
        with frozen(command.process_of("_GeneratorActor")):
            command.until(lambda: newest(run) > saved)
            command.ends(code=0, limit_s=600)
    said = [str(record.args["error"]) for record in records(run, Action.FAIL_GROUP)]
    assert all("did not answer generate within 3 s (workers.group_limit_s)" in one for one in said)
    assert_all_trained(run)


LOST = {
    "_TrainerActor": "trainer died or was cut off before it answered",
    "_GeneratorActor": "no generation worker is left of generator-0 (died",
    "ControllerActor": "the controller's process died",
    "SimpleStorageUnit": "is dead: nobody listens there",
    "TransferQueueController": "controller TransferQueueController at 127.0.0.1:",
}


@pytest.mark.long
@pytest.mark.tlc
@pytest.mark.parametrize("actor", LOST)
def test_a_run_that_loses_what_it_cannot_do_without_says_so_and_resumes(
    tmp_path: Path, config: Path, actor: str
) -> None:
    run = tmp_path / "run"
    config.write_text(RUN.replace("generators = 2", "generators = 1"))
    with Cutlock(tmp_path / "first", "run", config, "--out", run) as command:
        command.until(lambda: newest(run) >= 2)
        command.kill(actor)
        command.ends(code=1)
        assert LOST[actor] in command.stderr
        assert f"`cutlock resume {run}`" in command.stderr
    with Cutlock(tmp_path / "second", "resume", run) as command:
        command.ends(code=0)
    assert_all_trained(run, restarts=1)
    assert_accepted(RunDirectory(run))


@pytest.mark.long
def test_a_controller_that_stops_answering_is_ended_by_the_driver(
    tmp_path: Path, config: Path
) -> None:
    run = tmp_path / "run"
    config.write_text(RUN + "watchdog = { controller_s = 15 }\n")
    with Cutlock(tmp_path / "first", "run", config, "--out", run) as command:
        command.until(lambda: newest(run) >= 2)
        with frozen(command.process_of("ControllerActor")):
            command.ends(code=1)
        said = "the controller has answered nothing for 15 s (watchdog.controller_s)"
        assert said in command.stderr
        assert f"`cutlock resume {run}`" in command.stderr
    with Cutlock(tmp_path / "second", "resume", run) as command:
        command.ends(code=0)
    assert_all_trained(run, restarts=1)


@pytest.mark.long
def test_a_run_goes_on_while_its_disk_is_full_or_write_protected_and_saves_again_later(
    tmp_path: Path, config: Path
) -> None:
    (tmp_path / "disk").mkdir()
    where = tmp_path / "disk" / "run"
    config.write_text(
        RUN.replace("epochs = 4", "epochs = 40").replace("prompts = 16", "prompts = 4")
    )
    with (
        Disk(tmp_path / "disk", megabytes=64) as disk,
        Cutlock(tmp_path / "output", "run", config, "--out", where, within=disk.within) as command,
    ):
        run = disk.seen(where)
        command.until(lambda: newest(run) >= 2)
        # The log still finds room, a bundle does not.
        with disk.full(left=32 * 1024):
            command.until(failed_saves(run, "No space left on device"))
            saved = newest(run)
        command.until(lambda: newest(run) > saved)
        with disk.read_only(where):
            command.until(failed_saves(run, "Read-only file system"))
            saved = newest(run)
        command.until(lambda: newest(run) > saved)
        command.ends(code=0, limit_s=600)
        audit = audit_run(RunDirectory(run))
        assert audit.ok, audit.problems
        assert (audit.trained_once, audit.lost, audit.trained_twice) == (160, 0, 0)
        assert scan(run).debris == ()
