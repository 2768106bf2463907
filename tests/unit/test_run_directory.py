"""The run directory, and the metrics in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutlock.errors import AuditError, BundleNotFoundError, ConfigError
from cutlock.run.directory import RunDirectory
from cutlock.run.metrics import Metrics, TrainedStep, read_metrics
from cutlock.workers.base import StepReport
from tests.support.local_runs import Run, prompt_ids, tiny_config


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return Run.create(tmp_path / "run", tiny_config()).directory


def test_the_facts_of_a_run_are_what_it_was_made_with(directory: RunDirectory) -> None:
    facts = directory.facts()
    assert list(facts.prompts) == prompt_ids(tiny_config())
    assert facts.config == tiny_config().plain()
    assert len(facts.run_id) == 32


def test_two_runs_have_two_identities(tmp_path: Path) -> None:
    made = [Run.create(tmp_path / name, tiny_config()).directory for name in "ab"]
    assert len({directory.facts().run_id for directory in made}) == 2


def test_an_empty_directory_takes_a_run(tmp_path: Path) -> None:
    assert Run.create(tmp_path, tiny_config()).directory.facts().prompts


def test_a_directory_in_use_takes_no_run(directory: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="already holds a run"):
        Run.create(directory.root, tiny_config())
    with pytest.raises(ConfigError, match="is not an empty directory"):
        Run.create(tmp_path, tiny_config())


def test_a_directory_without_a_run_has_no_facts(tmp_path: Path) -> None:
    with pytest.raises(BundleNotFoundError, match=r"holds no run \(no run\.json\)"):
        RunDirectory(tmp_path).facts()


def test_facts_that_are_none_are_named(directory: RunDirectory) -> None:
    (directory.root / "run.json").write_text('{"run_id": 3}')
    with pytest.raises(AuditError, match=r"run\.json is not a run's identity"):
        directory.facts()


def test_logs_are_found_in_the_order_of_their_numbers_and_nothing_else_is(
    directory: RunDirectory,
) -> None:
    assert directory.logs() == {}
    assert directory.next_incarnation() == 1
    for name in ("incarnation-10.ndjson", "incarnation-2.ndjson", "incarnation-3.txt", "notes"):
        (directory.root / "events" / name).touch()
    assert [*directory.logs()] == [2, 10]
    assert directory.next_incarnation() == 11
    assert directory.log_path(11).name == "incarnation-11.ndjson"


def test_one_controller_at_a_time_holds_the_lock(directory: RunDirectory) -> None:
    with directory.lock():
        for another in (directory, RunDirectory(directory.root)):
            with (
                pytest.raises(ConfigError, match="another controller runs in"),
                another.lock(),
            ):
                pytest.fail("two controllers")
    with directory.lock():
        pass


def step(number: int, reward: float) -> TrainedStep:
    return TrainedStep(number, StepReport(0.0, reward, 8, 2, 0.0), 1)


def test_of_a_step_that_was_trained_again_the_last_time_counts(directory: RunDirectory) -> None:
    for incarnation, numbers in ((1, (0, 1, 2)), (2, (1, 2, 3))):
        directory.log_path(incarnation).touch()
        metrics = Metrics(directory.root, incarnation)
        for number in numbers:
            metrics.write(step(number, incarnation / 10))
    read = read_metrics(directory)
    assert [one.step for one in read] == [0, 1, 2, 3]
    assert [one.report.reward_mean for one in read] == [0.1, 0.2, 0.2, 0.2]


def test_half_a_line_of_metrics_is_left_out(directory: RunDirectory) -> None:
    directory.log_path(1).touch()
    metrics = Metrics(directory.root, 1)
    metrics.write(step(0, 0.5))
    metrics.write(step(1, 0.5))
    path = directory.root / "metrics" / "incarnation-1.ndjson"
    path.write_bytes(path.read_bytes()[:-4])
    assert read_metrics(directory) == [step(0, 0.5)]


def test_a_run_without_metrics_has_none(directory: RunDirectory) -> None:
    directory.log_path(1).touch()
    assert read_metrics(directory) == []
