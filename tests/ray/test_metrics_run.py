"""The metrics of a run on Ray and TransferQueue, scraped as Prometheus would."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import cutlock
from cutlock.run.endpoint import targets_file
from tests.support.processes import Cutlock

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

RUN = """
epochs = 1
prompts_per_step = 4
group_size = 4
sampler = { name = "in_order", window = 1 }
checkpoint = { every = 1 }
workers = { generators = 1, token_delay_s = 0.1 }
task = { prompts = 96, length = 3, vocabulary = 6 }
metrics = { port = 0 }
"""


def test_controller_and_store_serve_their_metrics_while_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TQ_METRICS_COLLECT_INTERVAL", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    config, run = tmp_path / "run.toml", tmp_path / "run"
    config.write_text(RUN)
    with Cutlock(tmp_path / "output", "run", config, "--out", run) as command:
        command.until((run / "step_1").is_dir)
        # The store tells of its units when it has asked them.
        command.until(lambda: shown_of_store() <= names(samples(run, "transfer_queue")))
        served = samples(run, "cutlock")
        command.ends(code=0)
    assert sum(served[f"cutlock_prompts{{{owner}}}"] for owner in OWNERS) == 96
    assert served["cutlock_saves_total{published}"] >= 2
    assert served["cutlock_save_exclusive_seconds_count{}"] >= 2
    assert served["cutlock_bundle_size_bytes_sum{}"] > 1000
    assert served["cutlock_slots_total{group_commit}"] >= 4
    assert re.search(r"^metrics: http://127\.0\.0\.1:\d+/metrics$", command.stderr, re.MULTILINE)
    assert not [path.name for path in (run / "metrics").glob("targets_*")]


OWNERS = (
    "unread",
    "spare",
    "reserved",
    "admitted",
    "buffered",
    "in_training",
    "trained",
    "dropped",
)


def shown_of_store() -> set[str]:
    """The metrics of TransferQueue that the dashboard asks for."""
    page = (Path(cutlock.__file__).parents[2] / "examples/grafana/cutlock.json").read_text()
    found = set(re.findall(r"\btq_\w+", page))
    assert found
    return found


def names(found: dict[str, float]) -> set[str]:
    return {name.partition("{")[0] for name in found}


def samples(run: Path, job: str) -> dict[str, float]:
    """Values by name and labels of what Prometheus finds by the file of a run."""
    (target,) = json.loads(targets_file(run, job).read_text())
    assert target["labels"] == {"job": job}
    with urllib.request.urlopen(f"http://{target['targets'][0]}/metrics", timeout=30) as answer:
        families = [*text_string_to_metric_families(answer.read().decode())]
    return {
        f"{sample.name}{{{','.join(sample.labels.values())}}}": sample.value
        for family in families
        for sample in family.samples
    }
