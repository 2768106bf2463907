"""The start of a run: begin it or plan its resume, restore its state, and take its directory over.

Whatever is looked at before the run's lock is held is looked at again behind it.

Source: spec actions `BeginRun` to `StartPumps`; design, sections 10 and 11.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cutlock.alphabet import Action
from cutlock.bundle.publication import reclaim, scan, set_aside, settle
from cutlock.errors import BundleNotFoundError
from cutlock.events import EventLog, Events
from cutlock.plane.base import READABLE_VERSIONS, BootstrapPlane, DataPlane
from cutlock.plane.memory import MemoryBootstrap
from cutlock.run.config import RunConfig
from cutlock.run.directory import RunDirectory
from cutlock.run.ending import logged_failure
from cutlock.run.engine import Run
from cutlock.run.restore import (
    PlaneConnected,
    PlaneReady,
    ResumePlan,
    connect_plane,
    load_plane,
    restore_state,
    verify_for_resume,
)
from cutlock.run.save import RunIdentity
from cutlock.run.state import RunState, build_state
from cutlock.run.steps import Sync
from cutlock.stops import NO_STOPS, StopPoints
from cutlock.workers.base import Checkpointable, PromptSet

__all__ = ["Start", "StartParts", "begin", "open_run", "plan_start"]

_KINDS = frozenset({"transfer_queue", "memory"})


@contextlib.asynccontextmanager
async def open_run(
    root: Path,
    config: RunConfig,
    prompts: PromptSet,
    trainer: Checkpointable,
    *,
    store: BootstrapPlane | None = None,
    sync: Sync | None = None,
    bundle: str | None = None,
    with_rows: bool = True,
) -> AsyncIterator[Run]:
    """Begin a run, or go on with the one in `root` from its last bundle: one call for both.

    Restoring is all or nothing: the bundle is verified and decoded, the store filled, the state
    restored and compared, and only then is the `Run` given out. Its start is saved, so that there
    is always a bundle. When the block ends by itself, its last step is saved; when it ends by an
    error, what counts is the last bundle.

    Args:
        root: directory of the run; new or empty, or that of a run.
        config: of which `workers`, `task` and `checkpoint.every` are the controller's and mean
            nothing here.
        prompts: the data set; a resume refuses another one.
        trainer: whoever holds the weights. Give a new one: it is loaded from the bundle.
        store: an untouched store, to be filled, e.g. `await TransferQueueBootstrap.start()`; None
            for one in this process's memory.
        sync: hands the weights of a version to whatever generates; awaited at the start and when
            a step has raised the version. Leave it out where both share their weights.
        bundle: name of the bundle to go on from, e.g. `step_8`; None for the latest.
        with_rows: False generates the finished groups of the bundle again.

    Raises:
        ConfigError: the directory holds something else, another process runs the run, or the
            configuration has changed in a way that no rule allows (`docs/resume.md`).
        BundleNotFoundError, BundleCorruptError, RestoreError: there is nothing to go on from.
        PlaneTouchedError: somebody has used the store already.
        CutlockError: what has ended the run; the event log's last record names it.

    Source: spec actions `BeginRun` to `StartPumps`; design, section 10.
    """
    store = MemoryBootstrap(units=config.plane.units) if store is None else store
    kind, version = store.info.kind, store.info.version
    config = msgspec.structs.replace(
        config,
        plane=msgspec.structs.replace(
            config.plane, kind=kind if kind in _KINDS else "own", units=store.info.units
        ),
    )
    readable = {kind: (version,), **READABLE_VERSIONS}
    with RunDirectory(root).opened(config, prompts) as directory:
        plan = _plan(
            directory, config, prompts, bundle=bundle, with_rows=with_rows, readable=readable
        )
        ready = await load_plane(plan, store)
        if plan is not None:
            await trainer.load(plan.policy_directory)
        incarnation = directory.next_incarnation()
        events = EventLog(directory.log_path(incarnation))
        try:
            with logged_failure(events):
                start = await begin(
                    ready,
                    StartParts(
                        config=config,
                        prompts=prompts,
                        connect=store.connect,
                        trainer=trainer,
                        identity=RunIdentity(directory.facts().run_id, incarnation),
                        root=directory.root,
                        events=events,
                        sync=sync,
                    ),
                )
                run = await start.restore()
            async with run.going():
                await run.save()
                # Nothing is trained before there is a bundle, or an attempt at one has failed.
                while run.saver.start_due:
                    await run.state.changed.wait()
                yield run
        except BaseException:
            # A log that cannot be written any more must not hide why the run has ended.
            with contextlib.suppress(OSError):
                events.close()
            raise
        events.close()


def plan_start(
    root: Path,
    config: RunConfig,
    prompts: PromptSet,
    *,
    bundle: str | None = None,
    with_rows: bool = True,
) -> tuple[RunDirectory, ResumePlan | None]:
    """Begin a run in a new or empty directory, or make the plan of going on with the one there.

    For a controller in another process, which takes the lock later: `RunDirectory.taken` shows
    there that the plan is still that of the directory.

    Args:
        bundle: name of the bundle to go on from, e.g. `step_8`; None for the latest.
        with_rows: see `verify_for_resume`.

    Raises:
        ConfigError: the directory holds something else, or another process runs the run.
        BundleNotFoundError: there is no bundle of that name.
        CutlockError: what `verify_for_resume` refuses.
    """
    with RunDirectory(root).opened(config, prompts) as directory:
        plan = _plan(
            directory,
            config,
            prompts,
            bundle=bundle,
            with_rows=with_rows,
            readable=READABLE_VERSIONS,
        )
    return directory, plan


def _plan(
    directory: RunDirectory,
    config: RunConfig,
    prompts: PromptSet,
    *,
    bundle: str | None,
    with_rows: bool,
    readable: Mapping[str, Collection[str]],
) -> ResumePlan | None:
    """How to go on; None for a run that was killed before its first bundle: it begins again."""
    run_id = directory.facts().run_id
    found = {other.path.name: other.path for other in scan(directory.root, run_id).bundles}
    name = bundle or next(reversed(found), None)
    if name is None:
        return None
    if name not in found:
        raise BundleNotFoundError(
            f"{directory.root} has no resolvable bundle {name!r}; there are: "
            f"{', '.join(found) or 'none'}"
        )
    return verify_for_resume(
        found[name], lambda _: prompts, config, with_rows=with_rows, readable=readable
    )


@dataclass(kw_only=True)
class StartParts:
    """What a run is made from, beside its restored store; the directory's lock is held."""

    config: RunConfig
    prompts: PromptSet
    connect: Callable[[], Awaitable[DataPlane]]
    trainer: Checkpointable
    """Already loaded with the policy of the bundle, if there is one."""
    identity: RunIdentity
    root: Path
    events: Events
    every: int | None = None
    sync: Sync | None = None
    stops: StopPoints = NO_STOPS
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


async def begin(ready: PlaneReady, parts: StartParts) -> Start:
    """Begin the log of this start, connect, and build the empty state of the run.

    Raises:
        InventoryError: the store does not hold exactly the rows of the index.
    """
    config = parts.config
    if ready.plan is not None:
        settle(parts.root)
    connected = await connect_plane(ready, parts.connect)
    state = build_state(
        config,
        parts.prompts,
        connected.plane,
        parts.events,
        lineage=f"r{parts.identity.incarnation}",
        now=parts.now,
        sleep=parts.sleep,
        stops=parts.stops,
    )
    sampler = config.plain()["sampler"]
    parts.events.record(
        Action.BEGIN_RUN,
        incarnation=parts.identity.incarnation,
        sampler=sampler["name"],
        window=sampler.get("window"),
        prompts_per_step=config.prompts_per_step,
        group_size=config.group_size,
        epochs=config.epochs,
        max_steps=config.max_steps,
        capacity=state.permits.capacity,
        spare_prompts=config.buffer.spare_prompts,
        units=connected.plane.info.units,
        cut=config.checkpoint.cut_of(connected.plane),
    )
    return Start(connected, state, parts)


@dataclass(frozen=True)
class Start:
    """A start that has connected: its state is empty until `restore` has filled it."""

    connected: PlaneConnected
    state: RunState
    parts: StartParts

    async def restore(self) -> Run:
        """Fill the state from the plan, and take the directory over.

        What dead saves left is removed, and the bundles of a given-up timeline are set aside.

        Raises:
            CutlockError: a stage refused; nothing in the directory was changed.
        """
        parts, plan = self.parts, self.connected.ready.plan
        restored = await restore_state(self.connected, self.state)
        reclaim(scan(parts.root))
        if plan is not None:
            # Before the bundles go, the log must say for good why: an audit would miss them.
            parts.events.sync()
            set_aside(parts.root, plan.sequence, plan.info.run_id)
        return Run(
            restored,
            parts.trainer,
            parts.identity,
            parts.root,
            every=parts.every,
            sync=parts.sync,
        )
