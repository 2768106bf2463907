"""Two starts of one run in each other's way: none acts on what it saw before it held the lock."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cutlock.cli.run
from cutlock import audit_run, open_run
from cutlock.controller import setup
from cutlock.controller.actor import ActorArguments, ControllerActor
from cutlock.controller.assembly import build_prompts
from cutlock.errors import ConfigError
from cutlock.plane.base import DataPlane
from cutlock.plane.memory import MemoryBootstrap, MemoryPlane
from cutlock.run import start
from cutlock.run.config import load_config
from cutlock.run.directory import RunDirectory
from cutlock.run.restore import load_plane
from cutlock.run.save import Saver
from cutlock.run.start import plan_start
from cutlock.stops import NO_STOPS
from cutlock.workers.torch_generator import LocalGenerator, TorchGenerator
from cutlock.workers.torch_trainer import LocalTrainer, TorchTrainer
from tests.support.commands import assert_refused, cutlock_
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


class Met(list[ConfigError]):
    """What the other start was told, if it could not live."""


@contextlib.contextmanager
def meeting(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, life: Callable[[], object]
) -> Iterator[Met]:
    """Somebody else comes and goes, if it may, when a start is about to make a call."""
    call: Callable[..., Any] = getattr(owner, name)
    lives, met = [life], Met()

    def live_if_it_may() -> None:
        try:
            lives.pop()()
        except ConfigError as error:
            met.append(error)

    def called(*args: Any, **kwargs: Any) -> Any:
        if lives:
            aside(live_if_it_may)
        return call(*args, **kwargs)

    with monkeypatch.context() as patches:
        patches.setattr(owner, name, called)
        yield met
    assert not lives, f"{name} was not called"


def before_the_lock(
    monkeypatch: pytest.MonkeyPatch, life: Callable[[], object]
) -> contextlib.AbstractContextManager[Met]:
    return meeting(monkeypatch, RunDirectory, "lock", life)


def assert_told_of_the_other(met: Met) -> None:
    (told,) = met
    assert "another controller runs in" in str(told)


BEFORE_THE_LOCK = [(RunDirectory, "opened"), (RunDirectory, "lock")]
BEHIND_THE_LOCK = [
    (start, "_plan"),
    (start, "verify_for_resume"),
    (start, "load_plane"),
    (Learner, "load"),
    (RunDirectory, "next_incarnation"),
    (start, "EventLog"),
    (start, "settle"),
    (start, "connect_plane"),
    (start, "restore_state"),
    (start, "reclaim"),
    (start, "set_aside"),
    (Saver, "save"),
]


def names(points: list[tuple[Any, str]]) -> list[str]:
    return [name for _, name in points]


async def assert_goes_on(root: Path) -> None:
    """The run can be resumed from its newest bundle to its end, and every prompt trains once."""
    await live(root, 9)
    assert "step_4" in bundles(root)
    found = audit_run(root)
    assert found.ok, found.problems


@pytest.mark.parametrize(("owner", "name"), BEFORE_THE_LOCK, ids=names(BEFORE_THE_LOCK))
@pytest.mark.parametrize("before", [0, 2], ids=["from nothing", "from a bundle"])
async def test_a_start_goes_on_from_what_is_there_behind_the_lock(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, owner: object, name: str
) -> None:
    if before:
        await live(ram_path, before)
    with meeting(monkeypatch, owner, name, lambda: asyncio.run(live(ram_path, 3))) as met:
        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            assert run.step == 3
            assert {"step_2", "step_3"} <= set(bundles(ram_path))
    assert not met
    await assert_goes_on(ram_path)


@pytest.mark.parametrize(("owner", "name"), BEHIND_THE_LOCK, ids=names(BEHIND_THE_LOCK))
async def test_no_other_start_comes_in_behind_the_lock(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    await live(ram_path, 2)
    published = bundles(ram_path)
    with meeting(monkeypatch, owner, name, lambda: asyncio.run(live(ram_path, 3))) as met:
        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            assert run.step == 2
            assert bundles(ram_path) == published
    assert_told_of_the_other(met)
    await assert_goes_on(ram_path)


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


@pytest.mark.parametrize("call", ["_make_lockable", "lock"])
def test_a_run_is_created_once(ram_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    root, made = ram_path / "run", []

    def create() -> None:
        made.append(RunDirectory(root).create(config(), PROMPTS))

    with (
        meeting(monkeypatch, RunDirectory, call, create),
        pytest.raises(ConfigError, match="already holds"),
    ):
        create()
    assert [RunDirectory(root).facts()] == made


@pytest.mark.parametrize(("owner", "name"), [(RunDirectory, "_begin"), (uuid, "uuid4")])
def test_a_run_that_is_being_created_is_another_s(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    directory = RunDirectory(ram_path / "run")
    another = RunDirectory(directory.root)
    with meeting(monkeypatch, owner, name, lambda: another.create(config(), PROMPTS)) as met:
        made = directory.create(config(), PROMPTS)
    assert_told_of_the_other(met)
    assert directory.facts() == made


def test_what_is_no_run_is_left_without_a_lock(ram_path: Path) -> None:
    (ram_path / "notes").touch()
    with pytest.raises(ConfigError, match="is not an empty directory"):
        RunDirectory(ram_path).create(config(), PROMPTS)
    assert [path.name for path in ram_path.iterdir()] == ["notes"]


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
    with pytest.raises(ConfigError, match="another start has been here, so start again") as told:
        await ControllerActor().run(arguments)
    seen = "starts: 1, bundles: step_1, step_2" if planned else "starts: 0, bundles: none"
    assert f"{seen} then" in str(told.value)
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


class Loads:
    """A trainer and a store that read the bundle they are given, and call what a test wants."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self._then = then

    async def load(self, directory: Path) -> None:
        self._then()
        assert [*directory.iterdir()]


async def test_a_driver_does_not_read_a_bundle_that_another_start_has_pruned(
    ram_path: Path,
) -> None:
    whole = tiny_config(checkpoint={"keep": 1})
    await run_in_actor(ram_path, tiny_config(max_steps=2, checkpoint={"keep": 1}))
    directory, plan = plan_start(ram_path, whole, build_prompts(whole))
    await run_in_actor(ram_path, whole)
    assert plan is not None
    assert not plan.bundle.exists()
    store = MemoryBootstrap(units=whole.plane.units)
    with pytest.raises(ConfigError, match="another start has been here, so start again"):
        await setup._restore(directory, plan, store, Loads(), setup.in_silence)  # type: ignore[arg-type]


async def test_no_other_start_comes_in_while_a_driver_reads_the_bundle(ram_path: Path) -> None:
    whole = tiny_config(checkpoint={"keep": 1})
    await run_in_actor(ram_path, tiny_config(max_steps=2, checkpoint={"keep": 1}))
    directory, plan = plan_start(ram_path, whole, build_prompts(whole))

    def other() -> None:
        with pytest.raises(ConfigError, match="another controller runs in"):
            asyncio.run(run_in_actor(ram_path, whole))

    store, trainer = MemoryBootstrap(units=whole.plane.units), Loads(lambda: aside(other))
    ready = await setup._restore(directory, plan, store, trainer, setup.in_silence)  # type: ignore[arg-type]
    assert ready.plan is plan
    await run_in_actor(ram_path, whole)
    assert audit_run(ram_path).ok


SHIPPED = """
epochs = 2
prompts_per_step = 2
group_size = 2
sampler = { name = "in_order" }
checkpoint = { every = 1, keep = 2 }
plane = { kind = "memory" }
task = { prompts = 5, length = 2, vocabulary = 3 }
"""


def shipped(path: Path, more: str = "") -> Path:
    path.write_text(SHIPPED + more)
    return path


@pytest.mark.parametrize("call", ["_bundle_of", "require_port", "_run", "_run_here"])
def test_a_resume_is_refused_when_another_start_has_been_there(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    run = ram_path / "run"
    cutlock_("run", shipped(ram_path / "short.toml", "max_steps = 2"), "--out", run)
    whole = shipped(ram_path / "whole.toml")
    life = functools.partial(run_in_actor, run, load_config(whole))
    with meeting(monkeypatch, cutlock.cli.run, call, lambda: asyncio.run(life())) as met:
        result = cutlock_("resume", run, "--config", whole, code=2)
    assert not met
    published = bundles(run)
    assert_refused(result, "starts: 1, bundles: step_1, step_2 then", "start again")
    cutlock_("resume", run, "--config", whole)
    assert bundles(run) == published
    assert audit_run(run).ok


@pytest.mark.parametrize("call", ["verify_for_resume", "build_local"])
def test_no_other_start_comes_in_while_a_resume_reads_the_bundle(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    run = ram_path / "run"
    cutlock_("run", shipped(ram_path / "short.toml", "max_steps = 2"), "--out", run)
    whole = shipped(ram_path / "whole.toml")
    life = functools.partial(run_in_actor, run, load_config(whole))
    with meeting(monkeypatch, cutlock.cli.run, call, lambda: asyncio.run(life())) as met:
        cutlock_("resume", run, "--config", whole)
    assert_told_of_the_other(met)
    assert audit_run(run).ok


def test_a_run_that_another_start_has_finished_is_not_trained_again(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, whole = ram_path / "run", shipped(ram_path / "whole.toml")
    life = functools.partial(run_in_actor, run, load_config(whole))
    with meeting(monkeypatch, cutlock.cli.run, "_run", lambda: asyncio.run(life())) as met:
        result = cutlock_("run", whole, "--out", run, code=2)
    assert not met
    assert_refused(result, "starts: 0, bundles: none then", "another start has been here")
    assert "step_6" in bundles(run)
    assert audit_run(run).ok
