"""Every change that may meet a save, as a script in three acts.

A script puts up its holds before the run starts, brings the run to the point just before the
change while the train pump stands before its cut, and makes the change while the window is
open.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutlock.alphabet import Action
from tests.support.rig import Incarnation, Rig
from tests.support.scripted import Hold

Script = Callable[[Incarnation], AsyncGenerator[None]]


@dataclass(frozen=True)
class Mutation:
    """One change: how it comes about, the kind of its slot, and the record that it leaves."""

    name: str
    kind: str
    action: Action
    script: Script
    changes: dict[str, Any] = field(default_factory=dict)
    """To the configuration."""
    lost: int = 0
    """Prompts that it drops on purpose."""
    lost_anyway: int = 0
    """Prompts that are dropped as well when it has not happened, because they are stale."""
    foreign: bool = False
    """Made by a task of the test, after which the run itself cannot go on."""

    def __str__(self) -> str:
        return self.name


FAILS = {"attempts": 1, "drop_budget": 1}
SPARES = {"spare_prompts": 1}


async def _commit(run: Incarnation) -> AsyncGenerator[None]:
    first, second = run.rig.batch(1)
    yield
    run.generator.finish(first)
    await run.logged(Action.COMMIT_GROUP, group=first)
    await run.logged(Action.LAUNCH_GROUP, group=second)
    yield
    run.generator.finish(second)
    yield


async def _admission(run: Incarnation) -> AsyncGenerator[None]:
    hold = run.holds.hold(Action.COMMIT_ADMISSION, admission=2)
    yield
    await run.at(hold)
    yield
    hold.release()
    yield


async def _third_advance(run: Incarnation) -> AsyncGenerator[None]:
    hold = run.holds.hold(Action.RESERVE_BATCH, skip=2)
    yield
    await run.at(hold)
    yield
    hold.release()
    yield


async def _second_advance(run: Incarnation) -> AsyncGenerator[None]:
    hold = run.holds.hold(Action.RESERVE_BATCH, skip=1)
    yield
    await run.at(hold)
    yield
    hold.release()
    yield


async def _drain(run: Incarnation) -> AsyncGenerator[None]:
    hold = run.holds.hold(Action.DRAIN_SPARE_POOL)
    yield
    await run.at(hold)
    yield
    hold.release()
    yield


async def _drop(run: Incarnation) -> AsyncGenerator[None]:
    # With a spare pool the second batch is in it.
    group = run.rig.batch(2 if run.rig.config.buffer.spare_prompts else 1)[0]
    run.generator.fail(group)
    run.generator.finish(group)
    hold = run.holds.hold(Action.DROP_GROUP, group=group)
    yield
    await run.at(hold)
    yield
    hold.release()
    yield


async def stale_in_flight(run: Incarnation) -> AsyncGenerator[None]:
    """The second batch begins to be generated when its weights are too old already.

    Held before its launch, it is not seen by the watchdog that runs with the weight sync.
    """
    launch = [run.holds.hold(Action.LAUNCH_GROUP, group=g) for g in run.rig.batch(1)]
    yield
    for hold, group in zip(launch, run.rig.batch(1), strict=True):
        hold.release()
        await run.logged(Action.LAUNCH_GROUP, group=group)
    await run.quiet()
    yield


async def _stale_abort(run: Incarnation) -> AsyncGenerator[None]:
    async for _ in stale_in_flight(run):
        yield
    run.spawn(run.engine.abort_stale(run.state.version.value))
    yield


def _foreign(kind: str) -> Script:
    async def change(run: Incarnation) -> None:
        state, groups = run.state, run.rig.batch(1)
        async with state.barrier.mutation(kind) as slot:
            match kind:
                case "evict":
                    await state.buffer.evict(slot, state.version.value, groups)
                case "select":
                    state.buffer.select(slot, state.step, groups)
                case "clear":
                    await state.buffer.clear_claimed(slot, state.step)

    async def script(run: Incarnation) -> AsyncGenerator[None]:
        yield
        run.generator.finish(*run.rig.batch(1))
        for group in run.rig.batch(1):
            await run.logged(Action.COMMIT_GROUP, group=group)
        yield
        run.spawn(change(run))
        yield

    return script


COMMIT = Mutation("commit", "group_commit", Action.COMMIT_GROUP, _commit)
ADMISSION = Mutation("admission", "admission", Action.COMMIT_ADMISSION, _admission)
ADVANCE = Mutation("loader advance", "loader_advance", Action.RESERVE_BATCH, _third_advance)
EPOCH = Mutation(
    "loader advance over an epoch",
    "loader_advance",
    Action.RAISE_EPOCH,
    _third_advance,
    {"task": {"prompts": 6}, "epochs": 2},
)
FILL = Mutation(
    "spare pool fill",
    "loader_advance",
    Action.FILL_SPARE_POOL,
    _second_advance,
    {"buffer": SPARES},
)
DRAIN = Mutation(
    "spare pool drain",
    "spare_drain",
    Action.DRAIN_SPARE_POOL,
    _drain,
    {"buffer": SPARES, "task": {"prompts": 4}},
)
SUBSTITUTE = Mutation(
    "substitution",
    "drop",
    Action.SUBSTITUTE_GROUP,
    _drop,
    {"buffer": SPARES, "failures": FAILS},
    lost=1,
)
DROP = Mutation(
    "drop without a spare", "drop", Action.DROP_GROUP, _drop, {"failures": FAILS}, lost=1
)
STALE = {
    "sampler": {"name": "windowed", "window": 0},
    "task": {"prompts": 4},
    "buffer": {"capacity": 4},
}


@contextlib.asynccontextmanager
async def two_stale_groups(rig: Rig) -> AsyncIterator[Incarnation]:
    """A run whose second batch is being generated and is too old already, and nothing else."""
    rig.configure(**STALE)
    run = await rig.launch(started=False)
    async with contextlib.aclosing(stale_in_flight(run)) as script:
        await anext(script)
        run.start()
        await run.published(0)
        run.generator.finish(*rig.batch(0))
        await run.logged(Action.SYNC_WEIGHTS, version=1)
        await anext(script)
        yield run


STALE_ABORT = Mutation(
    "stale abort",
    "stale_abort",
    Action.ABORT_STALE,
    _stale_abort,
    STALE,
    lost=2,
    lost_anyway=2,
)
EVICT = Mutation("eviction", "evict", Action.EVICT_GROUPS, _foreign("evict"), foreign=True)
SELECT = Mutation("selection", "select", Action.SELECT_GROUPS, _foreign("select"), foreign=True)
CLEAR = Mutation("clear", "clear", Action.CLEAR_ROWS, _foreign("clear"), foreign=True)

MUTATIONS = (
    COMMIT,
    ADMISSION,
    ADVANCE,
    EPOCH,
    FILL,
    DRAIN,
    SUBSTITUTE,
    DROP,
    STALE_ABORT,
    EVICT,
    SELECT,
    CLEAR,
)


async def meet(
    rig: Rig,
    mutation: Mutation,
    point: Action,
    inside: Callable[[Incarnation], Awaitable[object]] | None = None,
) -> tuple[Incarnation, Path]:
    """Make the change while a real save stands at `point` of its window; let the save go on.

    Args:
        inside: called while the window is still open and nothing moves any more.

    Returns:
        The run, which goes on, and the published bundle.
    """
    rig.configure(**mutation.changes)
    async with standing(rig, mutation, point) as (run, window, script):
        await anext(script)
        await run.quiet()
        if inside is not None:
            await inside(run)
        window.release()
        return run, await run.published(1)


@contextlib.asynccontextmanager
async def standing(
    rig: Rig, mutation: Mutation, point: Action
) -> AsyncIterator[tuple[Incarnation, Hold, AsyncGenerator[None]]]:
    """A run whose save of step 1 stands at `point`, what holds it, and the change to be made."""
    scripts: list[AsyncGenerator[None]] = []

    async def prepare(run: Incarnation) -> None:
        scripts.append(mutation.script(run))
        await anext(scripts[0])

    run = await rig.run_to(1, prepare)
    async with contextlib.aclosing(scripts[0]) as script:
        await anext(script)
        stands = run.holds.hold(point)
        run.cut.release()
        await run.at(stands)
        yield run, stands, script
