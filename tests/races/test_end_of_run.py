"""The end of a run does not depend on which task is the first to notice it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutlock.samplers import SAMPLER_NAMES
from tests.support.local_runs import Run, Trouble, prompt_ids, tiny_config


@pytest.mark.parametrize("sampler", SAMPLER_NAMES)
def test_no_step_is_taken_for_groups_that_are_lost_at_the_end(tmp_path: Path, sampler: str) -> None:
    config = tiny_config(
        epochs=1,
        sampler={"name": sampler},
        task={"prompts": 2},
        failures={"attempts": 1, "drop_budget": 2},
    )
    lost = frozenset(prompt_ids(config))
    run = Run.create(tmp_path / "run", config, Trouble(failing=lost, slow=lost))
    report = run.first(config)
    assert (report.ended, report.steps, report.dropped) == ("exhausted", (), 2)
    log = run.directory.log_path(1).read_text().splitlines()
    assert "SelectGroups" not in {json.loads(line)["action"] for line in log}
    audit = run.audit()
    assert (audit.ok, audit.dropped) == (True, 2)
