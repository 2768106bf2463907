"""Cancelling a task before any turn of its event loop, in a state made for it.

A turn runs what is ready. A task that is suspended anywhere is so between two turns, so that
to cancel it before each of its turns is to cancel it at each of its awaits, and at each moment
of what it awaits there: a step of the plane, the hand-over of a place in the barrier.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cutlock.alphabet import Action
from cutlock.bundle.consistency import require_consistent
from cutlock.controller.assembly import Parts, assemble, build_prompts
from cutlock.controller.core import Controller, seeded
from cutlock.events import MemoryLog, Record
from cutlock.plane.base import DataPlane
from cutlock.plane.memory import MemoryBootstrap, MemoryPlane, MemoryStore
from cutlock.records import LedgerRecord, Snapshot
from cutlock.run.capture import Capture
from cutlock.run.config import RunConfig
from cutlock.run.cut import read_in_window, require_inventory, take_cut
from cutlock.run.restore import load_plane
from cutlock.run.rollouts import PromptGroup
from cutlock.run.save import RunIdentity, Saver
from cutlock.run.status import RunReport
from cutlock.workers.base import PromptSet
from tests.support.checks import assert_all_accounted, lost_on_purpose, served, trained
from tests.support.local_runs import LightTrainer
from tests.support.loop import StepLoop, ask
from tests.support.scripted import PlaneHolds, ScriptedGenerator, sleep_for_ever

T = TypeVar("T")


class Suspensions:
    """Counts how often a task suspends."""

    def __init__(self) -> None:
        self.count = 0

    @types.coroutine
    def counted(self, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """`work`, which suspends where it did."""
        inner = work.__await__()
        answer: Callable[[], Any] = lambda: next(inner)  # noqa: E731
        while True:
            try:
                waits_for = answer()
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            self.count += 1
            try:
                yield waits_for
            except BaseException as error:
                thrown = error
                answer = lambda: inner.throw(thrown)  # noqa: B023, E731
            else:
                answer = lambda: next(inner)  # noqa: E731


class Pauses(PlaneHolds):
    """Stop points and plane steps at which everybody who comes by suspends for a turn."""

    def __init__(self) -> None:
        super().__init__()
        self.on = False

    async def reach(self, at: Any, /, **where: object) -> None:
        if self.on:
            await asyncio.sleep(0)
        if not isinstance(at, Action):
            await super().reach(at)


class Books:
    """What a controller owns and keeps count of, looked at between slots."""

    def __init__(
        self,
        controller: Controller,
        store: MemoryStore,
        records: Sequence[Record],
        prompts: PromptSet,
    ) -> None:
        self._engine = controller.engine
        self._state = controller.engine.state
        self._store = store
        self._records = records
        self._prompts = prompts

    def owners(self) -> dict[str, list[str]]:
        """Every occurrence, and where it is; the promise is one place each."""
        state, order = self._state, served(self._state.config, self._prompts)
        handed_out = state.loader.epoch * len(self._prompts) + state.loader.position
        claimed = list(state.buffer.claimed)
        places: dict[str, Sequence[str]] = {
            "unread": order[handed_out:],
            "pool": [spare.key for spare in state.pool._spares],
            "ledger": list(state.ledger._records),
            "index": [entry.group_id for entry in state.buffer.ready()],
            "claimed": claimed,
            "trained": [group for group in trained(self._records) if group not in claimed],
            "dropped": lost_on_purpose(self._records),
        }
        owners: dict[str, list[str]] = {group: [] for group in order}
        for place, groups in places.items():
            for group in groups:
                owners.setdefault(group, []).append(place)
        return owners

    def check(self) -> None:
        """P2 and P4, and every count that the runtime keeps beside its state."""
        state, store = self._state, self._store
        barrier, buffer = state.barrier, state.buffer
        assert (barrier.slots, barrier.cut_open, barrier.waiting) == (0, False, ())
        assert not barrier._cut_queued.waiters
        wrong = {group: places for group, places in self.owners().items() if len(places) != 1}
        assert not wrong, f"not exactly one owner: {wrong}"
        owning = (*buffer.ready(), *buffer.claimed.values())
        owned = {key for entry in owning for key in entry.row_keys}
        assert set(store.indexes) == owned, "rows of the plane are not those of the index"
        held = {index for unit in store.units for index in unit}
        assert held == set(store.indexes.values()) == set(store.produced)
        assert not buffer.committing
        assert set(buffer._reserved) == set(self._engine.attempts)
        assert state.permits.held == len(buffer.ready()) + self._engine.in_flight
        assert state.permits._freed._value == state.permits.capacity - state.permits.held
        assert not state.loader.raise_due
        admitted = [r for r in self._records if r.action == Action.COMMIT_ADMISSION]
        assert state.sampler.cursor == len(admitted) - 1


class World(StepLoop):
    """A real controller whose pumps do only what a test asks of them.

    Args:
        root: of its bundles.
    """

    def __init__(self, root: Path, config: RunConfig) -> None:
        super().__init__()
        self.config = config
        self.root = root
        self.prompts = build_prompts(config)
        self.pauses = Pauses()
        self.suspensions = Suspensions()
        self.log = MemoryLog(lambda: 0.0)
        self.generator = ScriptedGenerator(self.prompts.shape)
        self.bootstrap = MemoryBootstrap(units=config.plane.units)
        self.store = self.bootstrap.store
        self.limited = False
        """Whether tasks that are made from now on have a time limit."""
        self.limit: asyncio.Timeout
        """Of the last such task, for a test to end."""
        self.timed_out = False
        self._companions: list[asyncio.Task[None]] = []
        self._assemble()

    def _assemble(self) -> None:
        ready = self.do(load_plane(None, self.bootstrap))
        self.store.steps = self.pauses
        self.trainer = LightTrainer(MemoryPlane(self.store))
        self.controller = self.do(assemble(ready, self.parts()))
        self.engine = self.controller.engine
        self.state = self.engine.state
        self.saver = self.engine.saver
        self.books = Books(self.controller, self.store, self.log.records, self.prompts)

    def parts(self) -> Parts:
        async def connect() -> DataPlane:
            return MemoryPlane(self.store)

        return Parts(
            config=self.config,
            prompts=self.prompts,
            connect=connect,
            trainer=self.trainer,
            generator=self.generator,
            identity=RunIdentity("the run", 1),
            root=self.root,
            events=self.log,
            stops=self.pauses,
            now=lambda: 0.0,
            sleep=sleep_for_ever,
        )

    def new_saver(self) -> None:
        """A saver that goes on after the last one; each is used once."""
        identity = RunIdentity("the run", 1)
        self.saver = Saver(self.state, self.trainer, identity, self.root, self.saver.saved_step)
        self.engine._saver = self.saver

    async def save_final(self) -> None:
        """Save the last step, with a saver of its own."""
        self.new_saver()
        async with self.saver:
            await self.saver.save_final()

    # Bringing a state about.

    def create_task(self, work: Coroutine[Any, Any, T], *, name: str = "") -> asyncio.Task[T]:
        """A task whose suspensions are counted; in place of a task of the rollout loop."""
        if self.limited:
            return self.loop.create_task(self._within_a_limit(work), name=name)
        return self.loop.create_task(self.suspensions.counted(work), name=name)  # type: ignore[arg-type]

    async def _within_a_limit(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The work, or None if its time is up; both sides of the barrier can be entered then."""
        result = None
        try:
            async with asyncio.timeout(None) as self.limit:
                result = await self.suspensions.counted(work)
        except TimeoutError:
            self.timed_out = True
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        self.pauses.on = False  # so that no crowd keeps coming
        for side in ("slot", "cut", "slot"):
            async with ask(self.state.barrier, side):
                pass
        return result

    def companion(self, work: Coroutine[Any, Any, None]) -> None:
        """Another task, which ends by itself."""
        self._companions.append(self.loop.create_task(work))

    def reserve(self) -> int:
        """Take the next batch from the loader."""
        admission = self.do(self.engine._advance_loader())
        assert admission is not None
        return admission

    def admit(self) -> list[LedgerRecord]:
        """Take and admit the next batch; nothing of it is launched."""

        async def commit(admission_id: int) -> list[LedgerRecord]:
            state = self.state
            async with state.barrier.mutation("admission") as slot:
                sampler: Any = state.sampler
                if hasattr(sampler, "admit"):
                    given = await sampler.admit(state.version)
                else:
                    given = sampler.commit_admission(slot, state.version.value)
                return self.engine._commit_admission(slot, admission_id, given)

        return self.do(commit(self.reserve()))

    def launch(self, record: LedgerRecord) -> asyncio.Task[None]:
        """Start the rollout of an admitted group, which gets a place."""
        self.do(self.state.permits.acquire())
        return self.roll_out(self.engine._place(record))

    def roll_out(self, group: PromptGroup) -> asyncio.Task[None]:
        """Start the rollout of a group that has a place."""
        work = self.engine.roll_out(group, seeded(self.generator, self.config))
        return self.create_task(work, name=f"rollout {group.group_id}")

    async def admit_and_launch(self, admission_id: int) -> None:
        """Admit a batch that is taken, and start its rollouts."""
        async for group in self.engine._admit(admission_id):
            self.roll_out(group)

    async def train_a_step(self) -> None:
        """Train the groups that are claimed, and close their step."""
        entries = await self.engine.next_step()
        assert entries
        groups = {entry.group_id: entry.row_keys for entry in entries}
        await self.engine.finish_step(await self.trainer.train(self.state.step, groups))

    def finish(self, *records: LedgerRecord) -> None:
        """Generate and commit admitted groups."""
        self.generator.finish(*(record.group_id for record in records))
        for record in records:
            self.turn_until(self.launch(record).done)

    def select(self) -> list[str]:
        """Claim the groups of the next step."""
        self.do(self.engine._select())
        assert self.state.buffer.claimed
        return list(self.state.buffer.claimed)

    # What is left.

    def check_books(self) -> None:
        """See `Books.check`."""
        self.books.check()
        assert not self.loop.mishaps

    @property
    def _rollouts(self) -> list[asyncio.Task[Any]]:
        return [attempt.task for attempt in self.engine.attempts.values()]

    def left_behind(self) -> set[asyncio.Task[Any]]:
        """Tasks that go on with their work, but for companions and rollouts."""
        known = {*self._companions, *self._rollouts}
        return {task for task in self.tasks - known if not task.cancelling()}

    def settle(self) -> None:
        """Let the companions end; all that is left then is rollouts that nobody has told."""
        self.pauses.on = False
        for companion in self._companions:
            self.turn_until(companion.done)
            companion.result()
        self.turn(5)
        assert not self.left_behind()

    def go_on(self) -> None:
        """Run to the end of the data from this state, looking through a cut at every step.

        What the run has in flight is launched again, as after a restart.
        """
        for task in self._rollouts:
            task.cancel()
        self.turn(5)
        self.check_books()
        self.new_saver()
        self.saver._write = self._look  # type: ignore[method-assign]
        self.saver._prune = _nothing  # type: ignore[method-assign]
        self.generator.finish_all()
        report: RunReport = self.do(self.controller.run())
        assert report.ended == "exhausted"
        history = self.log.records
        lost = len(lost_on_purpose(history))
        assert_all_accounted(history, self.config, self.prompts, lost=lost)
        self.check_books()
        assert (self.state.permits.held, self.engine.in_flight) == (0, 0)
        assert not self.tasks

    def look_at_once(self) -> Snapshot:
        """What a narrow cut reads now, having shown that everything has the one owner it reads."""
        capture = Capture()

        async def cut() -> None:
            async with self.state.barrier.checkpoint() as cut:
                take_cut(self.state, cut, capture)
                self._compare(capture.snapshot(rows=True))
                self.state.plane.unpin()

        self.do(cut())
        return capture.snapshot(rows=True)

    def _compare(self, snapshot: Snapshot) -> None:
        require_consistent(snapshot)
        owners = self.books.owners()
        wrong = {group: places for group, places in owners.items() if len(places) != 1}
        assert not wrong, f"not exactly one owner: {wrong}"
        for place, groups in (
            ("pool", [spare.key for spare in snapshot.spare_pool]),
            ("index", [entry.group_id for entry in snapshot.index]),
            ("ledger", [record.group_id for record in snapshot.ledger]),
        ):
            assert sorted(groups) == sorted(g for g, at in owners.items() if at == [place])
        rows = {key for entry in snapshot.index for key in entry.row_keys}
        assert rows <= set(self.store.indexes)

    async def _look(self, step: int, *_: object) -> None:
        self.saver.saved_step = step
        capture = Capture()
        async with self.state.barrier.checkpoint() as cut:
            await read_in_window(self.state, cut, capture)
            require_consistent(capture.snapshot(rows=True))
            await require_inventory(self.state.plane, capture.index or ())


async def _nothing(*_: object) -> None:
    pass
