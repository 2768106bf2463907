"""The page of a run: what logs, metrics and bundles say, and what is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cutlock.report.pages.data import RunPage
from cutlock.run.metrics import Metrics, TrainedStep
from cutlock.show.recognise import collect
from cutlock.workers.base import StepReport
from tests.support.kept_runs import KEPT
from tests.support.local_runs import Run

TRACES = Path(__file__).parents[2] / "traces"


def page(root: Path) -> RunPage:
    found = collect(root, {}).data
    assert isinstance(found, RunPage)
    return found


@pytest.fixture
def copied(fresh_run: Run, tmp_path: Path) -> Path:
    root = tmp_path / "run"
    shutil.copytree(fresh_run.root, root)
    return root


def notes(found: RunPage) -> str:
    return "\n".join(found.notes)


def test_fates_saves_starts_and_bundles_are_those_of_the_audit(fresh_run: Run) -> None:
    found, audit = page(fresh_run.root), fresh_run.audit()
    assert audit.ok
    assert found.ok
    counts = {part.fate: part.count for part in found.fates}
    assert counts["trained"] == audit.trained_once
    assert counts["two owners"] == counts["lost"] == 0
    assert sum(counts.values()) == found.prompts == audit.prompts
    assert len(found.saves) == len(audit.exclusive_window_ms)
    assert tuple(bundle.name for bundle in found.bundles) == audit.bundles
    assert all(bundle.verdict.startswith("all ") for bundle in found.bundles)
    assert {save.bundle for save in found.saves if save.kept} == {*audit.bundles}
    assert [save.start for save in found.saves] == [1, 1, 2, 2]
    assert found.title == "4 steps, 1 restart: nothing lost, nothing trained twice"
    killed, ended = found.starts
    assert (killed.alive, killed.ended) == (False, "killed")
    assert (ended.alive, ended.ended, ended.resumed_from) == (True, "ended: exhausted", "step_2")
    assert [(restart.start, restart.step) for restart in found.restarts] == [(2, 2)]


def test_metrics_become_a_point_for_each_step(copied: Path) -> None:
    metrics = Metrics(copied, 2)
    for step in range(4):
        metrics.write(TrainedStep(step, StepReport(0.1, step / 4, 8, 2, 0.0), step % 2))
    found = page(copied)
    assert [step.reward_mean for step in found.trained] == [0.0, 0.25, 0.5, 0.75]
    assert [step.staleness_max for step in found.trained] == [0, 1, 0, 1]
    assert "metrics" not in notes(found)


def test_missing_metrics_are_said(copied: Path) -> None:
    shutil.rmtree(copied / "metrics")
    found = page(copied)
    assert not found.trained
    assert "There are no metrics" in notes(found)


def test_a_torn_line_of_the_metrics_is_left_out_and_said(copied: Path) -> None:
    path = copied / "metrics" / "incarnation-2.ndjson"
    path.write_bytes(path.read_bytes() + b'{"step": 9, "rep')
    found = page(copied)
    assert len(found.trained) == 4
    assert "incarnation-2.ndjson in metrics/" in notes(found)


def test_metrics_that_are_none_are_said_and_the_rest_is_shown(copied: Path) -> None:
    (copied / "metrics" / "incarnation-1.ndjson").write_text("nothing of the kind\n")
    found = page(copied)
    assert not found.trained
    assert "cannot be read" in notes(found)
    assert found.saves


def test_a_run_without_bundles_says_so_and_is_not_in_order() -> None:
    found = page(TRACES / "runs" / "narrow")
    assert not found.bundles
    assert not found.ok
    assert "There is no bundle in the directory" in notes(found)
    assert found.title.endswith("nothing trained twice, and no bundle is here")
    assert any("not resolvable" in problem for problem in found.problems)


def test_a_damaged_bundle_is_named(copied: Path) -> None:
    name = sorted(path.name for path in copied.glob("step_*"))[-1]
    (copied / name / "training_info.json").write_text("{}")
    found = page(copied)
    assert not found.ok
    assert name in f"{notes(found)} {' '.join(found.problems)}"


def test_a_torn_log_and_a_run_that_has_not_ended_are_said(copied: Path) -> None:
    path = copied / "events" / "incarnation-2.ndjson"
    path.write_bytes(path.read_bytes()[:-10])
    found = page(copied)
    assert "torn" in notes(found)
    assert "has not ended" in found.lead
    assert found.starts[-1].ended == "killed, or still running"


def test_dropped_prompts_are_counted_by_their_reasons() -> None:
    found = page(TRACES / "runs" / "windowed")
    (dropped,) = [part for part in found.fates if part.fate == "dropped"]
    assert dropped.count == sum(int(reason.value) for reason in dropped.reasons)
    assert "stale in flight" in {reason.name for reason in dropped.reasons}


@pytest.mark.parametrize("name", KEPT)
def test_a_fate_of_every_occurrence_is_counted_once(name: str) -> None:
    found = page(TRACES / "runs" / name)
    assert sum(part.count for part in found.fates) == found.prompts
