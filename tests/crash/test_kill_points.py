"""A run is killed at every action that it announces, resumed, and audited."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from cutlock.alphabet import Action
from cutlock.audit import Audit, audit_run
from cutlock.bundle.publication import scan
from cutlock.controller.assembly import build_prompts
from cutlock.controller.config import RunConfig, parse_config
from cutlock.controller.local import build_local
from cutlock.controller.restore import verify_for_resume
from cutlock.controller.run_directory import RunDirectory
from cutlock.samplers import SAMPLER_NAMES


class Killed(BaseException):
    """Not an error of the run: nothing may catch it on the way out."""


class Kill:
    """Dies at the n-th announcement of any action; counts what was announced."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.announced: list[Action] = []

    async def reach(self, action: Action, /, **where: object) -> None:
        self.announced.append(action)
        if len(self.announced) == self.at:
            raise Killed


def config(sampler: str, **changes: object) -> RunConfig:
    return parse_config(
        {
            "epochs": 2,
            "prompts_per_step": 2,
            "group_size": 2,
            "sampler": {"name": sampler, "window": 1},
            "checkpoint": {"every": 2, "keep": 2},
            "task": {"prompts": 5, "length": 2, "vocabulary": 3},
            **changes,
        }
    )


async def start(directory: RunDirectory, run: RunConfig, kill: Kill) -> bool:
    """Start or resume; nothing but the disk is left when it returns. True if it ended."""
    facts = directory.facts()
    bundles = scan(directory.root, facts.run_id).bundles
    plan = verify_for_resume(bundles[-1].path, build_prompts) if bundles else None
    if plan is not None and plan.finished:
        return True
    try:
        controller = await build_local(directory, run, plan, stops=kill)
        await controller.run()
    except Killed:
        return False
    return True


async def run_with_kills(tmp_path: Path, run: RunConfig, kills: list[int]) -> Audit:
    directory = RunDirectory(tmp_path / "run")
    directory.create(run, build_prompts(run))
    for at in kills:
        if await start(directory, run, Kill(at)):
            break
    assert await start(directory, run, Kill(None))
    return audit_run(directory)


def assert_nothing_lost(audit: Audit) -> None:
    assert audit.problems == ()
    assert (audit.lost, audit.trained_twice, audit.pending, audit.unread) == (0, 0, 0, 0)
    assert audit.trained_once + audit.dropped == audit.prompts
    assert audit.ok


async def announcements(tmp_path: Path, run: RunConfig) -> list[Action]:
    directory = RunDirectory(tmp_path / "undisturbed")
    directory.create(run, build_prompts(run))
    kill = Kill(None)
    assert await start(directory, run, kill)
    assert_nothing_lost(audit_run(directory))
    return kill.announced


@pytest.mark.parametrize("sampler", SAMPLER_NAMES)
async def test_a_kill_at_any_announced_action_loses_and_repeats_nothing(
    tmp_path: Path, sampler: str
) -> None:
    run = config(sampler)
    announced = await announcements(tmp_path, run)
    assert len(announced) > 100
    # Every action at its first and last announcement, and every seventh announcement.
    first = {action: at for at, action in reversed(list(enumerate(announced, 1)))}
    last = {action: at for at, action in enumerate(announced, 1)}
    points = sorted({*first.values(), *last.values(), *range(1, len(announced) + 1, 7)})
    assert len(points) >= 40
    for at in points:
        assert_nothing_lost(await run_with_kills(tmp_path / str(at), run, [at]))


@pytest.mark.parametrize("rows", [True, False])
async def test_kills_in_a_row_lose_and_repeat_nothing(tmp_path: Path, rows: bool) -> None:
    schedules = random.Random(17)
    for number, sampler in zip(range(40), itertools.cycle(SAMPLER_NAMES), strict=False):
        run = config(
            sampler,
            checkpoint={"every": 1 + number % 3, "rows": rows},
            buffer={"spare_prompts": number % 2},
        )
        kills = [schedules.randint(1, 150) for _ in range(4)]
        audit = await run_with_kills(tmp_path / str(number), run, kills)
        assert_nothing_lost(audit)
