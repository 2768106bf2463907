"""The controller on Ray with workers of the caller's own; its example is in `tests/examples`."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path

import pytest
import ray

from cutlock import (
    RunConfig,
    RunReport,
    Status,
    audit_run,
    open_run,
    parse_config,
    setup_single_controller,
)
from cutlock.errors import ConfigError
from cutlock.workers.prompts import ReverseTask
from cutlock.workers.ray_workers import SlowGenerator, torch_trainer
from tests.support.own_loop import PROMPTS as TWELVE
from tests.support.own_loop import Learner, finish, first, rolling, train
from tests.support.own_loop import config as own_config
from tests.support.real_plane import RealCluster

PROMPTS = ReverseTask(8, length=2, vocabulary=3)
TRAINER = functools.partial(torch_trainer, shape=PROMPTS.shape, seed=0, learning=None)
GENERATOR = functools.partial(SlowGenerator, PROMPTS.shape, PROMPTS, 0.0)


def config(**changes: object) -> RunConfig:
    raw: dict[str, object] = {"prompts_per_step": 4, "group_size": 2}
    return parse_config({**raw, "workers": {"generators": 1}, **changes})


@pytest.mark.real
def test_a_ray_of_the_caller_is_used_and_left_running(
    real_cluster: RealCluster, tmp_path: Path
) -> None:
    real_cluster.stop_store()
    seen: list[Status | None] = []

    async def run() -> RunReport:
        async with setup_single_controller(
            tmp_path, config(), PROMPTS, trainer=TRAINER, generator=GENERATOR
        ) as controller:
            seen.append(await controller.status())
            report = await controller.run()
            seen.append(await controller.status())
            return report

    report = asyncio.run(run())
    assert ray.is_initialized()
    with pytest.raises(ValueError, match="Failed to look up actor"):
        assert real_cluster.controller
    assert (report.ended, len(report.steps)) == ("exhausted", 2)
    assert seen[0] is None
    assert seen[1] is not None
    assert seen[1].step == 2
    found = audit_run(tmp_path)
    assert (found.ok, found.trained_once) == (True, 8)


@pytest.mark.real
async def test_a_loop_of_ones_own_keeps_its_rows_in_transfer_queue_and_resumes_from_them(
    real_cluster: RealCluster, tmp_path: Path
) -> None:
    store = await real_cluster.untouched_store()
    learner = Learner()
    async with open_run(tmp_path, own_config(), TWELVE, learner, store=store) as run:
        for group in await first(run, 5):
            await finish(run, group)
        assert await train(run, learner)
        assert len(await run.plane.list_keys()) == 4
    store, learner = await real_cluster.untouched_store(), Learner()
    async with rolling(tmp_path, learner, store=store) as run:
        assert len(run.buffer.ready()) == 2
        while await train(run, learner):
            pass
    found = audit_run(tmp_path)
    assert (found.ok, found.trained_once, len(learner.trained)) == (True, 12, 12)


@pytest.mark.real  # without a cluster, but with Ray
async def test_a_run_with_another_store_is_refused_before_its_directory_is_made(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=r"plane\.kind is 'memory'.*leave plane\.kind out"):
        async with setup_single_controller(
            tmp_path / "run",
            config(plane={"kind": "memory"}),
            PROMPTS,
            trainer=TRAINER,
            generator=GENERATOR,
        ):
            pass
    assert not (tmp_path / "run").exists()
