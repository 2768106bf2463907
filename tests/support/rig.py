"""A real run on either plane, directed step by step, killed, and resumed from its bundles.

Only the generator is scripted, and the clock stands still. Everything else is what a user
runs: pumps, saver, restore stages, loader, ledger, samplers, trainer, files.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cutlock.alphabet import Action
from cutlock.audit import audit_run
from cutlock.bundle.contents import decode_cut, read_training_info
from cutlock.bundle.verification import verify
from cutlock.controller.assembly import Parts, assemble, build_prompts
from cutlock.events import MemoryLog, Record
from cutlock.plane.base import DataPlane
from cutlock.plane.memory import MemoryBootstrap
from cutlock.records import Snapshot
from cutlock.run.capture import Capture
from cutlock.run.config import RunConfig, parse_config
from cutlock.run.cut import read_in_window
from cutlock.run.directory import RunDirectory
from cutlock.run.restore import ResumePlan, load_plane, verify_for_resume
from cutlock.run.save import RunIdentity, Saver
from cutlock.run.status import RunReport
from cutlock.workers.base import GENERATED_FIELDS
from cutlock.workers.torch_trainer import Learning, LocalTrainer, TorchTrainer
from tests.support.checks import (
    assert_all_accounted,
    assert_counters,
    assert_one_owner,
    assert_rows,
    served,
)
from tests.support.planes import PlaneHarness
from tests.support.scripted import (
    Hold,
    Holds,
    PlaneHolds,
    ScriptedGenerator,
    WatchedLog,
    sleep_for_ever,
)
from tests.support.settle import settle

LIMIT_S = 60.0
"""Longest wait for something that must happen; only a failing test waits so long."""


def config_of(kind: str, **changes: Any) -> RunConfig:
    """Eight prompts, two per step, a window of one; saves at the start, the end, and on demand."""
    raw: dict[str, Any] = {
        "prompts_per_step": 2,
        "group_size": 2,
        "sampler": {"name": "in_order", "window": 1},
        "task": {"prompts": 8},
        "plane": {"kind": kind},
        "checkpoint": {"every": 100, "keep": 100, "cut": "full"},
        "failures": {"pause_s": 0},
    }
    for name, value in changes.items():
        raw[name] = {**raw[name], **value} if isinstance(raw.get(name), dict) else value
    return parse_config(raw)


class Incarnation:
    """One start of a controller."""

    def __init__(self, rig: Rig, number: int, plan: ResumePlan | None) -> None:
        self.rig = rig
        self.number = number
        self.plan = plan
        self.past: list[Record] = rig.surviving(plan.bundle) if plan else []
        """Records of earlier incarnations that survive in this one's history."""
        self.holds = Holds()
        self.generator = ScriptedGenerator(rig.prompts.shape)
        self.log = WatchedLog(rig.directory.log_path(number))
        self.loaded: list[str] = []
        """Keys in the store when the controller connected."""
        self.task: asyncio.Task[RunReport] | None = None
        self.cut = Hold()
        """Where the train pump stands before a cut, see `Rig.run_to`."""
        self.pump_hold = Hold()
        """Where the rollout pump stands, if a situation has put it there."""
        self._others: list[asyncio.Task[object]] = []

    async def assemble(self, ready: Any) -> None:
        rig = self.rig

        async def connect() -> DataPlane:
            plane = await rig.harness.connect()
            self.loaded = await plane.list_keys()
            return plane

        shape = msgspec.structs.replace(rig.prompts.shape, hidden=4)
        core = TorchTrainer(shape, learning=Learning(passes=1))
        self.trainer = LocalTrainer(core, await rig.harness.connect())
        if self.plan is not None:
            await self.trainer.load(self.plan.policy_directory)
        self.controller = await assemble(
            ready,
            Parts(
                config=self.plan.config if self.plan else rig.config,
                prompts=rig.prompts,
                connect=connect,
                trainer=self.trainer,
                generator=self.generator,
                identity=RunIdentity(rig.directory.facts().run_id, self.number),
                root=rig.directory.root,
                events=self.log,
                stops=self.holds,
                now=rig.now,
                sleep=rig.sleep,
            ),
        )
        # The controller shows no more of itself than users need; a test looks inside.
        self.engine = self.controller.engine
        self.state = self.engine.state
        self.saver = self.engine.saver

    @property
    def history(self) -> list[Record]:
        """The surviving history up to now."""
        return [*self.past, *self.log.records]

    # Directing.

    def start(self) -> None:
        self.task = asyncio.create_task(self.controller.run(), name="run")

    def spawn(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """Let another task than the run's own do something."""
        task = asyncio.create_task(work, name="another task")
        self._others.append(task)
        return task

    async def others(self) -> None:
        """Return when the other tasks have done what they were spawned for."""
        for task in self._others:
            await self._wait(task, "the end of another task")
            task.result()

    async def at(self, hold: Hold) -> None:
        """Return when somebody stands at the hold."""
        await self._wait(asyncio.ensure_future(hold.reached.wait()), "anybody at a hold")

    async def logged(self, action: Action, *, after: int = 0, **args: object) -> Record:
        """Return the first such record from number `after` on, when it is there."""
        while True:
            for record in self.log.records[after:]:
                if record.action == action and record.args.items() >= args.items():
                    return record
            await self._wait(self.log.next_record(), f"{action} {args}")

    async def quiet(self) -> None:
        """Return when nothing in the loop moves any more."""
        state = self.state
        await settle(
            lambda: (
                self.log.count,
                self.holds.announced,
                self.generator.calls,
                state.barrier.waiting,
                state.barrier.slots,
                state.permits.held,
                self.engine.in_flight,
                self.task is not None and self.task.done(),
            )
        )
        if self.task is not None and self.task.done() and not self.task.cancelled():
            error = self.task.exception()
            if error is not None:
                raise error

    async def commit(self, *groups: str) -> None:
        """Finish the rollouts of these groups, and wait until all are committed."""
        self.generator.finish(*groups)
        for group in groups:
            await self.logged(Action.COMMIT_GROUP, group=group)

    async def save_and_crash(self, step: int) -> Path:
        """Let go on the save that `Rig.run_to` holds, and crash when it is published."""
        self.cut.release()
        bundle = await self.published(step)
        await self.crash()
        return bundle

    async def published(self, step: int) -> Path:
        """Return the bundle of a step when it is published."""
        record = await self.logged(Action.PUBLISH_BUNDLE, step=step)
        return self.rig.directory.root / str(record.args["bundle"])

    async def finish(self) -> RunReport:
        """Let everything go, to the end of the run."""
        self.generator.finish_all()
        self.holds.release_all()
        if self.task is None:
            self.start()
        assert self.task is not None
        await self._wait(self.task, "the end of the run")
        return self.task.result()

    async def crash(self) -> None:
        """End the controller at once; what it had in memory is gone."""
        assert self.task is not None
        self.task.cancel()
        self.holds.release_all()
        if isinstance(self.rig.harness.bootstrap, MemoryBootstrap):
            self.rig.plane_holds.release_all()
        for task in self._others:
            task.cancel()
        await asyncio.wait({self.task, *self._others})
        self.log.close()

    async def rows(self) -> dict[str, dict[str, list[float]]]:
        """Values of all rows that the store holds, by key and field."""
        keys = await self.state.plane.list_keys()
        found = await self.state.plane.get(keys, GENERATED_FIELDS)
        return {
            key: {field: found[field][place].tolist() for field in GENERATED_FIELDS}
            for place, key in enumerate(keys)
        }

    async def read_cut(self) -> Snapshot:
        """What a save would read now; before the start, and not in the log."""
        capture = Capture()
        with self._unlogged():
            async with self.state.barrier.checkpoint() as cut:
                await read_in_window(self.state, cut, capture)
        return capture.snapshot(rows=self.state.config.checkpoint.rows)

    async def save_into(self, root: Path) -> Path:
        """Save the present state into another directory, whether it was saved already or not."""
        identity = RunIdentity(self.rig.directory.facts().run_id, self.number)
        with self._unlogged():
            saver = Saver(self.state, self.trainer, identity, root)
            async with saver:
                await saver.save_final()
            assert not saver.failed
        return root / f"step_{self.state.step}"

    @contextlib.contextmanager
    def _unlogged(self) -> Iterator[None]:
        self.state.events = MemoryLog()
        try:
            yield
        finally:
            self.state.events = self.log

    async def _wait(self, future: asyncio.Future[Any], what: str) -> None:
        waited: set[asyncio.Future[Any]] = {future}
        if self.task is not None:
            waited.add(self.task)
        await asyncio.wait(waited, timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            return
        future.cancel()
        recent = [record.action for record in self.log.records[-12:]]
        if self.task is not None and self.task.done():
            self.task.result()
            raise AssertionError(f"the run ended before {what}; {recent}")
        raise AssertionError(
            f"no {what} within {LIMIT_S:g} s; barrier {self.state.barrier.waiting}, {recent}"
        )


class Rig:
    """One run directory, and the controllers that are started in it one after the other."""

    def __init__(self, root: Path, harness: PlaneHarness, **changes: Any) -> None:
        self.harness = harness
        self.kind = harness.bootstrap.info.kind
        self.plane_holds = PlaneHolds()
        """Of the store of the newest incarnation; for the memory plane only."""
        self.now: Callable[[], float] = lambda: 0.0
        self.sleep: Callable[[float], Awaitable[None]] = sleep_for_ever
        """Clock of the incarnations that are launched from now on; it stands still."""
        self.incarnations: list[Incarnation] = []
        self._root = root
        self.configure(**changes)

    def configure(self, **changes: Any) -> None:
        """Choose the configuration, before the first start."""
        self.config = config_of(self.kind, **changes)
        self.prompts = build_prompts(self.config)
        self.directory = RunDirectory(self._root)

    def configure_custom(self, sampler: type, **changes: Any) -> None:
        """Choose a sampler of the tests' own, with a window of one."""
        self.configure(**changes)
        path = f"{sampler.__module__}:{sampler.__qualname__}"
        table = {"name": "custom", "path": path, "options": {"window": 1}}
        self.config = parse_config({**self.config.plain(), "sampler": table})

    @property
    def served(self) -> list[str]:
        """All occurrences in the order of the loader."""
        return served(self.config, self.prompts)

    def batch(self, number: int) -> list[str]:
        """The groups of a batch, counted from 0 over the epochs; of runs without short batches."""
        size = self.config.prompts_per_step
        return self.served[number * size : (number + 1) * size]

    async def launch(self, plan: ResumePlan | None = None, *, started: bool = True) -> Incarnation:
        """Start a controller on the harness's store, which must be untouched."""
        if not self.directory.root.exists():
            self.directory.create(self.config, self.prompts)
        ready = await load_plane(plan, self.harness.bootstrap)
        if isinstance(self.harness.bootstrap, MemoryBootstrap):
            self.plane_holds = PlaneHolds()
            self.harness.bootstrap.store.steps = self.plane_holds
        incarnation = Incarnation(self, self.directory.next_incarnation(), plan)
        self.incarnations.append(incarnation)
        await incarnation.assemble(ready)
        if started:
            incarnation.start()
        return incarnation

    def plan(
        self, bundle: Path, config: RunConfig | None = None, *, with_rows: bool = True
    ) -> ResumePlan:
        return verify_for_resume(bundle, build_prompts, config, with_rows=with_rows)

    async def resume(
        self,
        bundle: Path,
        config: RunConfig | None = None,
        *,
        with_rows: bool = True,
        started: bool = True,
    ) -> Incarnation:
        """Restore a bundle into a new store; the last incarnation must be dead."""
        plan = self.plan(bundle, config, with_rows=with_rows)
        await self.harness.start()
        return await self.launch(plan, started=started)

    async def run_to(
        self, step: int, prepare: Callable[[Incarnation], Awaitable[object]] | None = None
    ) -> Incarnation:
        """Start a run; return when its train pump stands before the cut of `step`.

        The rollouts of the first `step` batches end by themselves, all others when told to.

        Args:
            prepare: called before the start, to put up holds.
        """
        run = await self.launch(started=False)
        run.cut = run.holds.hold(Action.REQUEST_CUT, step=step)
        last = run.holds.hold(Action.TRAIN_STEP, step=step - 1)
        if prepare is not None:
            await prepare(run)
        run.start()
        if step:
            # So that the first save has nothing to race with.
            await run.published(0)
        for number in range(step):
            run.generator.finish(*self.batch(number))
        if step:
            await run.at(last)
            run.controller.request_save()
            last.release()
        await run.at(run.cut)
        return run

    def surviving(self, bundle: Path) -> list[Record]:
        """The history up to the cut of a bundle, across incarnations."""
        info = read_training_info(verify(bundle))
        saved_by = next(i for i in self.incarnations if i.number == info.incarnation)
        return [*saved_by.past, *saved_by.log.records[: info.log_records]]

    def check_bundle(self, bundle: Path) -> Snapshot:
        """P1 to P3, of what is on disk; return the cut."""
        verified = verify(bundle)
        snapshot = decode_cut(verified)
        self.check_snapshot(snapshot, self.surviving(bundle))
        return snapshot

    def check_snapshot(self, snapshot: Snapshot, past: Sequence[Record]) -> None:
        assert_one_owner(snapshot, past, self.config, self.prompts)
        assert_counters(snapshot, past, self.config)

    async def check_resume(
        self,
        run: Incarnation,
        bundle: Path,
        rows: dict[str, Any] | None = None,
        *,
        lost: int = 0,
        audited: bool = True,
    ) -> Incarnation:
        """P1 to P5 of a bundle: kill the run that saved it, and let a new one run to its end.

        Args:
            rows: what `Incarnation.rows` must give after the restore.
        """
        snapshot = self.check_bundle(bundle)
        await run.crash()
        resumed = await self.resume(bundle, started=False)
        assert_rows(snapshot.index, resumed.loaded)
        assert rows is None or await resumed.rows() == rows
        assert await resumed.read_cut() == snapshot
        await resumed.finish()
        self.check_end(resumed, lost=lost, audited=audited)
        return resumed

    def check_end(self, run: Incarnation, *, lost: int = 0, audited: bool = True) -> None:
        """P5 and P7, of a run that has ended; and what the audit says of it.

        Args:
            audited: False where a test has done what no run does by itself.
        """
        assert_all_accounted(run.history, self.config, self.prompts, lost=lost)
        if audited:
            found = audit_run(self.directory)
            assert found.ok, found.problems

    async def close(self) -> None:
        for run in self.incarnations:
            if run.task is not None and not run.task.done():
                await run.crash()
            run.log.close()


@contextlib.asynccontextmanager
async def rig_on(root: Path, harness: PlaneHarness) -> AsyncIterator[Rig]:
    """A rig whose runs are ended with the block."""
    rig = Rig(root, harness)
    try:
        yield rig
    finally:
        await rig.close()
