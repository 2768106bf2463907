"""A cancellation at every await of every slot and of the cut: once, and twice in a row."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cutlock.alphabet import Action
from cutlock.bundle.publication import scan
from cutlock.bundle.verification import verify
from cutlock.errors import CutlockError
from tests.support.cancelling import World
from tests.support.custom_samplers import Dawdling
from tests.support.local_runs import tiny_config
from tests.support.loop import ask, at_once, turns
from tests.support.rig import Rig
from tests.support.tally import tally

Act = Callable[[World], "asyncio.Task[Any]"]


@dataclass(frozen=True)
class Work:
    """One kind of slot, or the cut: a task that does it, and the state that it starts from.

    Args:
        begin: brings the state about, and returns what starts the task.
        points: how often the task suspends, and how many turns it takes; alone, and among cuts.
    """

    name: str
    begin: Callable[[World], Act]
    points: tuple[tuple[int, int], tuple[int, int]]
    changes: dict[str, Any] = field(default_factory=dict)
    crowd: int = 1000
    """How often it meets a cut, at most; what gives way to each would give way for ever."""
    cuts: bool = False
    """Whether it is the cut."""

    def __str__(self) -> str:
        return self.name


def of_run(method: str, *arguments: Any) -> Act:
    return lambda world: world.create_task(getattr(world.engine, method)(*arguments))


def of_world(method: str, *arguments: Any) -> Act:
    return lambda world: world.create_task(getattr(world, method)(*arguments))


def launching(record: Any) -> Act:
    return lambda world: world.launch(record)


def beside(other: Callable[[], Coroutine[Any, Any, None]], act: Act) -> Act:
    def both(world: World) -> asyncio.Task[Any]:
        world.companion(other())
        return act(world)

    return both


def take_batch(world: World) -> Act:
    return of_run("_advance_loader")


def take_last_batch(world: World) -> Act:
    world.reserve()
    world.reserve()
    return of_run("_advance_loader")


def fill_pool(world: World) -> Act:
    world.finish(*world.admit())
    return of_run("_advance_loader")


def drain_pool(world: World) -> Act:
    world.finish(*world.admit())
    world.do(world.engine._advance_loader())
    return of_run("_drain_pool")


def admit(world: World) -> Act:
    return of_world("admit_and_launch", world.reserve())


def admit_behind_the_gate(world: World) -> Act:
    for record in (*world.admit(), *world.admit()):
        world.finish(record)
    admission = world.reserve()
    world.select()

    async def train_a_step() -> None:
        await turns(6)
        await world.train_a_step()

    return beside(train_a_step, of_world("admit_and_launch", admission))


def commit(world: World) -> Act:
    record, _ = world.admit()
    world.generator.finish(record.group_id)
    return launching(record)


def commit_behind_another(world: World) -> Act:
    record, other = world.admit()
    world.generator.finish(record.group_id)
    world.launch(other)

    async def end_the_other() -> None:
        await turns(4)
        world.generator.finish(other.group_id)

    return beside(end_the_other, launching(record))


def commit_that_fails(world: World) -> Act:
    record, _ = world.admit()
    world.generator.finish(record.group_id)
    world.pauses.fail("put", "notify")
    return launching(record)


def commit_that_cannot_be_rolled_back(world: World) -> Act:
    record, _ = world.admit()
    world.generator.finish(record.group_id)
    world.pauses.fail("put", "reserve")
    world.pauses.fail("clear", "mark")
    return launching(record)


def drop(world: World) -> Act:
    record, _ = world.admit()
    world.generator.fail(record.group_id)
    world.generator.finish(record.group_id)
    return launching(record)


def substitute(world: World) -> Act:
    record, other = world.admit()
    world.finish(other)
    world.do(world.engine._advance_loader())
    world.generator.fail(record.group_id)
    world.generator.finish(record.group_id, *(spare.key for spare in world.state.pool._spares))
    return launching(record)


def abort_stale(world: World) -> Act:
    records = world.admit()
    for record in records:
        world.launch(record)
    world.turn(10)
    return of_run("abort_stale", 1)


def evict(world: World) -> Act:
    world.finish(*world.admit())
    world.state.step = 1
    world.state.next_selection = 1
    world.state.version.raise_to(1)
    return of_run("_evict")


def select(world: World) -> Act:
    world.finish(*world.admit())
    return of_run("_select")


def step(world: World) -> Act:
    world.finish(*world.admit())
    world.select()
    return of_world("train_a_step")


def save(world: World) -> Act:
    first, second = world.admit()
    world.finish(first)
    world.launch(second)
    world.do(world.save_final())
    world.new_saver()
    world.state.step = world.state.next_selection = 1
    world.state.version.raise_to(1)
    world.do(world.engine._advance_loader())
    return lambda world: world.create_task(world.saver.save())


def narrow_save(world: World) -> Act:
    save(world)

    async def beside_the_run() -> None:
        async with world.saver:
            await world.saver.save()

    return lambda world: world.create_task(beside_the_run())


CUSTOM = {
    "name": "custom",
    "path": f"{Dawdling.__module__}:{Dawdling.__qualname__}",
    "options": {"window": 1},
}
NARROW = {"keep": 1, "cut": "narrow"}
SPARES = {"buffer": {"spare_prompts": 1}}
STALE = {"sampler": {"name": "windowed", "window": 0}, "buffer": {"capacity": 4}}
DROPS = {"failures": {"attempts": 1, "drop_budget": 9}}

WORKS = (
    Work("reserve a batch", take_batch, ((1, 1), (2, 5))),
    Work("reserve the last batch of an epoch", take_last_batch, ((2, 2), (3, 6)), {"epochs": 2}),
    Work("fill the spare pool", fill_pool, ((1, 1), (2, 5)), SPARES),
    Work("drain the spare pool", drain_pool, ((1, 1), (2, 5)), SPARES),
    Work("admit", admit, ((2, 2), (3, 5))),
    Work("admit behind the gate", admit_behind_the_gate, ((3, 30), (4, 38))),
    Work("admit in one call", admit, ((4, 11), (11, 41)), {"sampler": CUSTOM}, crowd=3),
    Work(
        "admit in one call behind the gate",
        admit_behind_the_gate,
        ((4, 38), (11, 50)),
        {"sampler": CUSTOM},
        crowd=3,
    ),
    Work("commit", commit, ((4, 11), (5, 14))),
    Work(
        "commit, one at a time",
        commit_behind_another,
        ((8, 16), (10, 20)),
        {"buffer": {"max_in_flight": 1}},
    ),
    Work("commit, roll back, commit again", commit_that_fails, ((9, 28), (11, 37))),
    Work("drop", drop, ((2, 2), (3, 4)), DROPS),
    Work("substitute", substitute, ((6, 13), (8, 20)), SPARES | DROPS),
    Work("abort stale rollouts", abort_stale, ((4, 8), (6, 14)), STALE),
    Work("evict", evict, ((2, 8), (3, 12)), STALE),
    Work("select", select, ((1, 1), (2, 5))),
    Work("train a step and clear its rows", step, ((17, 23), (18, 27))),
    Work("save", save, ((23, 58), (24, 63)), {"checkpoint": {"keep": 1}}, cuts=True),
    Work("narrow save", narrow_save, ((2, 55), (2, 59)), {"checkpoint": NARROW}, cuts=True),
)


ROLLOUTS = frozenset(
    work.name
    for work in WORKS
    if not work.cuts and not {"evict", "gate", "select", "train"} & set(work.name.split())
)
"""Work of the rollout pump, done while no step is open: the train pump's waits for a cut."""


async def crowd(world: World, side: str, stay: int, times: int) -> None:
    """Cuts, or slots, one after the other, for as long as the work goes on."""
    while world.pauses.on and times:
        times -= 1
        async with ask(world.state.barrier, side):
            await turns(stay)
        await turns(1)


class Attempt:
    """The work, cancelled before the turns of these numbers; a turn may come twice.

    Args:
        crowded: among cuts; the cut, among slots.
        limit: the turn before which a time limit around the work ends.
    """

    def __init__(
        self,
        work: Work,
        root: Path,
        *,
        crowded: bool,
        cancelled: tuple[int, ...] = (),
        limit: int | None = None,
    ) -> None:
        self.world = world = World(root, tiny_config(**{"epochs": 1} | work.changes))
        try:
            self._make(work, crowded, cancelled, limit)
        except BaseException:
            world.__exit__()
            raise

    def _make(
        self, work: Work, crowded: bool, cancelled: tuple[int, ...], limit: int | None
    ) -> None:
        world = self.world
        act = work.begin(world)
        world.turn(10)
        world.check_books()
        world.pauses.on = True
        if crowded:
            for side, stay in (("slot", 3), ("slot", 5)) if work.cuts else (("cut", 5),):
                world.companion(crowd(world, side, stay, work.crowd))
            world.turn()
        world.suspensions.count = 0
        world.limited = limit is not None
        self.task = act(world)
        world.turn()
        self.turns = 0
        """That the task took, after its first."""
        while not self.task.done():
            for _ in range(cancelled.count(self.turns)):
                self.task.cancel()
            if limit == self.turns:
                world.limit._on_timeout()  # what the loop calls then
            world.turn()
            self.turns += 1
            assert self.turns < 500, f"no end; {world.state.barrier.waiting}"
        self.points = (world.suspensions.count, self.turns)
        self.left = world.left_behind() if work.cuts else set()
        """Of a save, whose files are written by threads; effects of a slot end before it does."""

    def check(self, work: Work) -> None:
        world = self.world
        if not self.task.cancelled():
            error = self.task.exception()
            assert error is None, error
        assert not self.left, f"still at work when the task has ended: {self.left}"
        world.settle()
        world.check_books()
        if work.cuts:
            world.do(world.save_final())
            found = scan(world.root)
            assert not found.debris
            assert [verify(bundle.path).manifest.step for bundle in found.bundles][-1] == 1
        if world.state.next_selection != world.state.step:
            # The open step is the train pump's; with it the run has ended.
            with pytest.raises(CutlockError, match="open training step"):
                world.do(world._look(0))
        else:
            world.go_on()


@pytest.fixture
def roots() -> Iterator[Callable[[], Path]]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        numbers = iter(range(1_000_000))

        def root() -> Path:
            path = Path(made) / str(next(numbers))
            path.mkdir()
            return path

        yield root


works = pytest.mark.parametrize("work", WORKS, ids=str)
among = pytest.mark.parametrize("crowded", [False, True], ids=["alone", "crowded"])


class Attempts:
    """Attempts at one kind of work, each checked to the end."""

    def __init__(self, work: Work, crowded: bool, root: Callable[[], Path]) -> None:
        self._work = work
        self._crowded = crowded
        self._root = root
        self.count = 0

    def __call__(self, *cancelled: int, limit: int | None = None) -> tuple[int, int]:
        """Returns how often the task has suspended, and how many turns it took."""
        made = Attempt(
            self._work, self._root(), crowded=self._crowded, cancelled=cancelled, limit=limit
        )
        with made.world as world:
            made.check(self._work)
            assert world.timed_out is (limit is not None)
        self.count += bool(cancelled) or limit is not None
        return made.points

    def again(self, first: int) -> range:
        """Cancel once; the turns in which the task is still there to be cancelled again."""
        return range(first, self(first)[1])


@pytest.fixture
def attempts(work: Work, crowded: bool, roots: Callable[[], Path]) -> Iterator[Attempts]:
    made = Attempts(work, crowded, roots)
    yield made
    tally("cancellations tried", made.count)


@among
@works
def test_work_that_is_cancelled_leaves_a_state_from_which_a_run_goes_on(
    attempts: Attempts, work: Work, crowded: bool
) -> None:
    points = attempts()
    for first in range(points[1]):
        again = attempts.again(first)
        # At once, in the first turn of the clean-up, and in its last.
        for second in sorted({first, *again[1:2], *again[-1:]}):
            attempts(first, second)
    assert points == work.points[crowded]


@pytest.mark.long
@pytest.mark.timeout(3600)
@among
@works
def test_work_that_is_cancelled_in_any_two_turns_leaves_a_state_from_which_a_run_goes_on(
    attempts: Attempts, work: Work, crowded: bool
) -> None:
    for first in range(work.points[crowded][1]):
        for second in attempts.again(first):
            attempts(first, second)


@among
@works
def test_work_whose_time_is_up_leaves_a_task_that_can_enter_again(
    attempts: Attempts, work: Work, crowded: bool
) -> None:
    for turn in range(work.points[crowded][1]):
        attempts(limit=turn)


@pytest.mark.parametrize("work", [work for work in WORKS if work.name in ROLLOUTS], ids=str)
def test_a_narrow_cut_between_any_two_turns_of_work_reads_one_owner_of_everything(
    work: Work, roots: Callable[[], Path]
) -> None:
    changes = {"epochs": 1} | work.changes | {"checkpoint": NARROW}
    seen, cuts, ended = set(), 0, False
    while not ended:
        with World(roots(), tiny_config(**changes)) as world:
            act = work.begin(world)
            world.turn(10)
            world.pauses.on = True
            task = act(world)
            world.turn(cuts)
            ended = task.done()
            seen.add(msgspec.json.encode(world.look_at_once()))
            world.turn_until(task.done)
            world.settle()
            world.check_books()
        cuts += 1
    # Some of them before the work is done, and some after it.
    assert len(seen) > 1
    tally("narrow cuts tried", cuts)


def test_rows_that_could_be_neither_put_nor_cleared_are_told_whenever_it_is_cancelled(
    roots: Callable[[], Path],
) -> None:
    for turn in range(12):
        with World(roots(), tiny_config(epochs=1)) as world:
            task = commit_that_cannot_be_rolled_back(world)(world)
            world.pauses.on = True
            world.turn()
            while not task.done():
                if turn == 0:
                    task.cancel()
                turn -= 1
                world.turn()
            world.settle()
            if not task.cancelled():
                with pytest.raises(BaseExceptionGroup, match="could be neither put nor cleared"):
                    task.result()
            barrier = world.state.barrier
            assert (barrier.slots, barrier.waiting) == (0, ())
            assert world.state.permits.held == world.engine.in_flight == 1
    tally("cancellations tried", 12)


def test_a_group_that_is_selected_in_the_turn_of_its_commit_gives_its_place_back_once(
    roots: Callable[[], Path],
) -> None:
    with World(roots(), tiny_config(epochs=1)) as world:
        first, last = world.admit()
        world.finish(first)
        world.generator.finish(last.group_id)
        task = world.launch(last)
        world.turn_until(lambda: last.group_id in world.state.buffer)
        at_once(world.engine._select())
        assert len(world.state.buffer.claimed) == 2
        world.turn_until(task.done)
        world.settle()
        assert world.state.permits.held == 0
        world.check_books()


async def test_a_generator_that_cancels_its_own_call_has_failed(memory_rig: Rig) -> None:
    """A rollout that ended so would look like one that was aborted: its step would wait for it."""
    rig = memory_rig
    rig.configure(failures={"attempts": 2, "drop_budget": 0})
    run = await rig.launch(started=False)
    generate, cancelled = run.generator.generate, []

    async def cancel_once(prompt: Any, **arguments: Any) -> Any:
        if not cancelled:
            cancelled.append(prompt)
            raise asyncio.CancelledError
        return await generate(prompt, **arguments)

    run.generator.generate = cancel_once  # type: ignore[method-assign]
    await run.finish()
    failed = await run.logged(Action.FAIL_GROUP)
    assert "cancelled its own call" in str(failed.args["error"])
    rig.check_end(run)
