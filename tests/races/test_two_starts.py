"""Two starts of one run in each other's way: none acts on what it saw before it held the lock."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cutlock import audit_run, open_run
from cutlock.controller.actor import ActorArguments, ControllerActor
from cutlock.controller.assembly import build_prompts
from cutlock.errors import ConfigError
from cutlock.plane.base import DataPlane
from cutlock.plane.memory import MemoryBootstrap, MemoryPlane
from cutlock.run.directory import RunDirectory
from cutlock.run.restore import load_plane
from cutlock.run.start import plan_start
from cutlock.stops import NO_STOPS
from cutlock.workers.torch_generator import LocalGenerator, TorchGenerator
from cutlock.workers.torch_trainer import LocalTrainer, TorchTrainer
from tests.support.local_runs import tiny_config
from tests.support.own_loop import PROMPTS, Learner, config, rolling, train


def bundles(root: Path) -> dict[str, bytes]:
    return {path.name: (path / "manifest.json").read_bytes() for path in root.glob("step_*")}


async def live(root: Path, until: int) -> None:
    """A start that goes on to a step, and leaves."""
    learner = Learner()
    async with rolling(root, learner, checkpoint={"keep": 2}) as run:
        while run.step < until and await train(run, learner):
            await run.save()


def aside(life: Callable[[], None]) -> None:
    """Another process's life, while this one's loop stands still."""
    thread = threading.Thread(target=life)
    thread.start()
    thread.join()


@contextlib.contextmanager
def before_the_lock(monkeypatch: pytest.MonkeyPatch, life: Callable[[], None]) -> Iterator[None]:
    """Somebody else comes and goes when the next lock is about to be taken."""
    lock, lives = RunDirectory.lock, [life]

    def taken(directory: RunDirectory) -> contextlib.AbstractContextManager[None]:
        if lives:
            aside(lives.pop())
        return lock(directory)

    with monkeypatch.context() as patches:
        patches.setattr(RunDirectory, "lock", taken)
        yield
    assert not lives


@pytest.mark.parametrize("before", [0, 2], ids=["from nothing", "from a bundle"])
async def test_a_start_goes_on_from_what_is_there_behind_the_lock(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    if before:
        await live(ram_path, before)
    with before_the_lock(monkeypatch, lambda: asyncio.run(live(ram_path, 3))):
        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            assert run.step == 3
            assert {"step_2", "step_3"} <= set(bundles(ram_path))
    found = audit_run(ram_path)
    assert found.ok, found.problems


async def test_a_run_that_was_finished_meanwhile_is_not_begun_again(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with before_the_lock(monkeypatch, lambda: asyncio.run(live(ram_path, 9))):
        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            finished = bundles(ram_path)
            assert await run.next_step() is None
    assert bundles(ram_path) == finished
    assert "step_4" in finished
    assert audit_run(ram_path).ok


def test_a_run_is_created_once(ram_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = ram_path / "run"

    def create() -> None:
        RunDirectory(root).create(config(), PROMPTS)

    with before_the_lock(monkeypatch, create), pytest.raises(ConfigError, match="already holds"):
        create()
    assert RunDirectory(root).facts().prompts == tuple(p.prompt_id for p in PROMPTS)


@pytest.mark.parametrize("planned", [0, 2], ids=["with no bundle", "with a bundle"])
async def test_a_plan_is_refused_when_another_start_has_been_there(
    ram_path: Path, planned: int
) -> None:
    """As on Ray: the driver plans, and the controller's actor takes the lock much later."""
    whole = tiny_config(checkpoint={"keep": 2})
    prompts = build_prompts(whole)
    if planned:
        await run_in_actor(ram_path, tiny_config(max_steps=planned, checkpoint={"keep": 2}))
    directory, plan = plan_start(ram_path, whole, prompts)
    arguments = await actor_arguments(directory, plan, whole)
    await run_in_actor(ram_path, whole)
    published = bundles(ram_path)
    with pytest.raises(ConfigError, match="another start has been here, so start again"):
        await ControllerActor().run(arguments)
    assert bundles(ram_path) == published
    report = audit_run(ram_path)
    assert report.ok, report.problems


async def run_in_actor(root: Path, config: object) -> None:
    directory, plan = plan_start(root, config, build_prompts(config))  # type: ignore[arg-type]
    await ControllerActor().run(await actor_arguments(directory, plan, config))


async def actor_arguments(directory: RunDirectory, plan: object, config: object) -> ActorArguments:
    prompts = build_prompts(config)  # type: ignore[arg-type]
    bootstrap = MemoryBootstrap(units=config.plane.units)  # type: ignore[attr-defined]
    ready = await load_plane(plan, bootstrap)  # type: ignore[arg-type]

    async def connect() -> DataPlane:
        return MemoryPlane(bootstrap.store)

    trainer = LocalTrainer(TorchTrainer(prompts.shape), await connect())
    if plan is not None:
        await trainer.load(plan.policy_directory)  # type: ignore[attr-defined]
    return ActorArguments(
        ready=ready,
        config=config,  # type: ignore[arg-type]
        prompts=prompts,
        connect=connect,
        trainer=trainer,
        generator=LocalGenerator(TorchGenerator(prompts.shape, prompts)),
        run_id=directory.facts().run_id,
        root=directory.root,
        seen=directory.seen,
        stops=NO_STOPS,
    )
