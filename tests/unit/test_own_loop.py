"""A run in a loop of the caller's own: what `open_run` and `Run` do and refuse."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cutlock import Attempt, Fields, Prompt, PromptGroup, PromptList, Run, audit_run, open_run
from cutlock.alphabet import Action
from cutlock.bundle.publication import latest
from cutlock.errors import (
    BundleNotFoundError,
    ConfigError,
    ConfigMismatchError,
    DropBudgetError,
    InvariantError,
    MisuseError,
    NoWorkerError,
    PlaneTouchedError,
    SaveError,
    StallError,
    WorkerLostError,
)
from cutlock.events import read_log
from cutlock.plane.memory import MemoryBootstrap, MemoryStore, PlaneStep
from cutlock.run.directory import RunDirectory
from cutlock.samplers.builtin import ReadyFirstSampler
from tests.support.acceptance import assert_accepted
from tests.support.own_loop import (
    PROMPTS,
    Killed,
    Learner,
    config,
    dispatch,
    finish,
    first,
    rolling,
    rows,
    train,
)
from tests.support.settle import settle

WINDOWED: dict[str, Any] = {
    "sampler": {"name": "windowed", "window": 0},
    "prompts_per_step": 1,
    "buffer": {"capacity": 2},
}
"""Whatever is not of the newest version is too old."""


class Holding:
    """Steps of a store whose next put waits, when it is told to."""

    def __init__(self) -> None:
        self.held = False
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def reach(self, step: PlaneStep, /) -> None:
        if self.held and step.op == "put":
            self.held = False
            self.reached.set()
            await self.go.wait()


async def fail(run: Run, group: PromptGroup) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async with run.attempt(group):
            raise ZeroDivisionError("no reward")


async def fail_aloud(run: Run, group: PromptGroup) -> None:
    async with run.attempt(group):
        raise ZeroDivisionError("no reward")


async def never(run: Run, group: PromptGroup) -> None:
    """A rollout that does not end by itself."""
    async with run.attempt(group):
        await asyncio.Event().wait()


async def fail_after(run: Run, count: int, handed_out: list[str]) -> None:
    """A loop that fails with a group in its hand, and starts no rollout."""
    async for group in run.dispatch():
        handed_out.append(group.group_id)
        if len(handed_out) == count:
            raise ZeroDivisionError("the loop failed")


def actions(root: Path, incarnation: int = 1) -> list[Action]:
    return [Action(r.action) for r in read_log(RunDirectory(root).log_path(incarnation))]


def assert_trained_once(root: Path, learner: Learner, epochs: int = 1) -> None:
    assert Counter(learner.trained) == Counter(
        f"p{n}@{epoch}" for n in range(12) for epoch in range(epochs)
    )
    found = audit_run(root)
    assert found.ok, found.problems


def assert_agree(run: Run) -> None:
    """Every group that is admitted or finished has at most one place, and no other place is taken.

    Where no group waits for its place, all of them have one.
    """
    owed = {record.group_id for record in run.ledger.admitted()}
    ready = {entry.group_id for entry in run.buffer.ready()}
    assert not owed & ready
    assert set(run.attempt_phases()) <= owed
    assert run.state.permits.held == run.in_flight + len(ready)


async def roll_and_train(run: Run, learner: Learner) -> None:
    """Dispatch again, and train to the end."""
    async with asyncio.TaskGroup() as tasks:
        rollouts = tasks.create_task(dispatch(run))
        while await train(run, learner):
            pass
        await rollouts
    assert_agree(run)
    assert run.state.permits.held == 0


class TestStartAndResume:
    @pytest.mark.parametrize("cut", ["narrow", "full"])
    @pytest.mark.parametrize("sampler", ["in_order", "ready_first", "weight_fifo"])
    async def test_a_run_that_is_killed_after_each_step_trains_every_prompt_once(
        self, ram_path: Path, sampler: str, cut: str
    ) -> None:
        changes = {
            "epochs": 2,
            "sampler": {"name": sampler, "window": 1},
            "checkpoint": {"cut": cut},
        }
        for kill in (1, 3, 4, 7, 0):
            learner = Learner()
            with contextlib.suppress(Killed):
                async with rolling(ram_path, learner, **changes) as run:
                    while await train(run, learner):
                        if run.step % 2:
                            await run.save()
                        if run.step == kill:
                            raise Killed
        assert_trained_once(ram_path, learner, epochs=2)

    async def test_a_run_that_died_before_its_first_bundle_begins_again(
        self, ram_path: Path
    ) -> None:
        copying = asyncio.Event()

        class Slow(Learner):
            async def copy(self) -> tuple[int, str]:
                copying.set()
                return await asyncio.Future()

        async def start() -> None:
            async with rolling(ram_path, Slow()):
                pass

        first_start = asyncio.create_task(start())
        await copying.wait()
        first_start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first_start
        learner = Learner()
        async with rolling(ram_path, learner) as run:
            while await train(run, learner):
                pass
        assert_trained_once(ram_path, learner)

    async def test_an_older_bundle_can_be_gone_on_from(self, ram_path: Path) -> None:
        learner = Learner()
        async with rolling(ram_path, learner, checkpoint={"cut": "full"}) as run:
            while await train(run, learner):
                await run.save()
        learner = Learner()
        async with open_run(
            ram_path, config(checkpoint={"cut": "full"}), PROMPTS, learner, bundle="step_2"
        ) as run:
            assert run.step == 2
            assert len(learner.trained) == 6

    async def test_finished_groups_can_be_left_behind(self, ram_path: Path) -> None:
        learner = Learner()
        async with open_run(ram_path, config(), PROMPTS, learner) as run:
            for group in await first(run, 5):
                await finish(run, group)
            assert await train(run, learner)
        for with_rows, finished in ((False, 0), (True, 2)):
            async with open_run(ram_path, config(), PROMPTS, Learner(), with_rows=with_rows) as run:
                assert len(run.buffer.ready()) == finished
                assert len(run.ledger.admitted()) == 3 - finished

    async def test_a_step_budget_ends_a_start_and_a_greater_one_goes_on(
        self, ram_path: Path
    ) -> None:
        learner = Learner()
        async with open_run(ram_path, config(max_steps=1), PROMPTS, learner) as run:
            for group in await first(run, 3):
                await finish(run, group)
            assert await train(run, learner)
            assert await run.next_step() is None
            assert run.ending == "max_steps"
        assert latest(ram_path).name == "step_1"
        learner = Learner()
        async with rolling(ram_path, learner) as run:
            while await train(run, learner):
                pass
            assert run.ending == "exhausted"
        assert_trained_once(ram_path, learner)

    async def test_another_data_set_is_refused(self, ram_path: Path) -> None:
        async with open_run(ram_path, config(max_steps=0), PROMPTS, Learner()):
            pass
        other = PromptList("eleven", [Prompt(f"p{n}", (n,)) for n in range(11)])
        with pytest.raises(ConfigMismatchError, match="twelve, 12 prompts"):
            async with open_run(ram_path, config(max_steps=0), other, Learner()):
                pass

    async def test_a_bundle_that_is_not_there_is_refused_with_those_that_are(
        self, ram_path: Path
    ) -> None:
        async with open_run(ram_path, config(max_steps=0), PROMPTS, Learner()):
            pass
        with pytest.raises(BundleNotFoundError, match="'step_7'; there are: step_0"):
            async with open_run(ram_path, config(), PROMPTS, Learner(), bundle="step_7"):
                pass

    async def test_a_directory_with_something_else_is_refused(self, ram_path: Path) -> None:
        (ram_path / "thesis.tex").touch()
        with pytest.raises(ConfigError, match="is not an empty directory"):
            async with open_run(ram_path, config(), PROMPTS, Learner()):
                pass

    async def test_a_run_is_opened_by_one_process_at_a_time(self, ram_path: Path) -> None:
        async with open_run(ram_path, config(max_steps=0), PROMPTS, Learner()):
            with pytest.raises(ConfigError, match="another controller runs"):
                async with open_run(ram_path, config(max_steps=0), PROMPTS, Learner()):
                    pass

    async def test_a_store_that_is_in_use_is_refused_before_a_log_is_begun(
        self, ram_path: Path
    ) -> None:
        store = MemoryBootstrap()

        await store.connect()
        with pytest.raises(PlaneTouchedError):
            async with open_run(ram_path, config(), PROMPTS, Learner(), store=store):
                pass
        assert not RunDirectory(ram_path).logs()

    async def test_what_was_admitted_is_generated_again_with_its_stamp_and_before_all_else(
        self, ram_path: Path
    ) -> None:
        learner = Learner()
        async with open_run(ram_path, config(), PROMPTS, learner) as run:
            admitted = await first(run, 6)
            for group in admitted[:3]:
                await finish(run, group)
            assert await train(run, learner)
        learner = Learner()
        async with open_run(ram_path, config(), PROMPTS, learner) as run:
            assert await first(run, 3) == admitted[3:]
            assert run.sampler.cursor == 1

    async def test_what_was_reserved_is_admitted_before_the_data_set_is_read(
        self, ram_path: Path
    ) -> None:
        learner = Learner()
        async with rolling(ram_path, learner, max_steps=1) as run:
            while await train(run, learner):
                pass
            (batch,) = [records for _, records in run.ledger.reserved()]
        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            dispatched = [group.group_id for group in await first(run, 3)]
            assert dispatched == [record.group_id for record in batch]


@pytest.mark.tlc
async def test_the_logs_of_loops_are_behaviours_of_the_model(ram_path: Path) -> None:
    lossy, late = ram_path / "lossy", ram_path / "late"
    with contextlib.suppress(Killed):
        changes: dict[str, Any] = {"failures": {"drop_budget": 1}}
        async with open_run(lossy, config(**changes), PROMPTS, learner := Learner()) as run:
            lost, *others = await first(run, 5)
            await fail(run, lost)
            await run.give_up(lost, RuntimeError("hopeless"))
            for group in others:
                await finish(run, group)
            await train(run, learner)
            await run.save()
            raise Killed
    async with rolling(lossy, learner := Learner(), **changes) as run:
        while await train(run, learner):
            await run.save()

    async with open_run(late, config(**WINDOWED), PROMPTS, learner := Learner()) as run:
        one, two = await first(run, 2)
        waits = asyncio.create_task(never(run, one))
        await finish(run, two)
        await train(run, learner)
        await waits
    assert Action.ABORT_STALE in actions(late)
    assert_accepted(RunDirectory(lossy), RunDirectory(late))


class TestRollouts:
    async def test_a_failed_attempt_leaves_the_group_owed_and_counts(self, ram_path: Path) -> None:
        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            (group,) = await first(run)
            await fail(run, group)
            assert group.group_id in run.ledger
            async with run.attempt(group) as attempt:
                assert attempt.number == 1
                await attempt.commit(rows(run))
            assert group.group_id not in run.ledger
            assert group.group_id in run.buffer

    async def test_an_attempt_without_a_commit_is_refused(self, ram_path: Path) -> None:
        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            (group,) = await first(run)
            with pytest.raises(MisuseError, match="has ended without a commit"):
                async with run.attempt(group):
                    pass

    async def test_a_commit_after_its_attempt_is_refused(self, ram_path: Path) -> None:
        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            (group,) = await first(run)
            with contextlib.suppress(ZeroDivisionError):
                async with run.attempt(group) as attempt:
                    raise ZeroDivisionError
            with pytest.raises(MisuseError, match=r"attempt 0 at group .* has ended"):
                await attempt.commit(rows(run))
            assert await run.plane.list_keys() == []

    async def test_a_group_that_nobody_has_handed_out_is_not_tried(self, ram_path: Path) -> None:
        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            await first(run)
            record = run.ledger.admitted()[1]
            with pytest.raises(MisuseError, match="has no place in the buffer"):
                async with run.attempt(PromptGroup(record, PROMPTS[0])):
                    pass
            assert run.state.permits.held == run.in_flight == 1

    async def test_a_group_is_replaced_by_a_spare_while_there_is_one(self, ram_path: Path) -> None:
        changes = {"buffer": {"spare_prompts": 1}, "failures": {"drop_budget": 12}}
        learner = Learner()
        async with open_run(ram_path, config(**changes), PROMPTS, learner) as run:
            dispatched = run.dispatch()
            records = [await anext(dispatched) for _ in range(4)]
            assert len(run.pool) == 3
            given_up = records.pop(0)
            await fail(run, given_up)
            spare = await run.give_up(given_up, RuntimeError("hopeless"))
            assert spare is not None
            assert (spare.record.stamp, spare.group_id == given_up.group_id) == (0, False)
            for group in (spare, *records[:2]):
                await finish(run, group)
            assert await train(run, learner)
            assert spare.group_id in learner.trained
            await dispatched.aclose()
        found = audit_run(ram_path)
        assert found.ok, found.problems
        assert found.drop_reasons[given_up.group_id].startswith("replaced by")

    async def test_without_a_spare_the_step_goes_short(self, ram_path: Path) -> None:
        learner = Learner()
        async with open_run(ram_path, config(failures={"drop_budget": 3}), PROMPTS, learner) as run:
            for group in (records := await first(run, 3))[1:]:
                await finish(run, group)
            await fail(run, records[0])
            assert await run.give_up(records[0], RuntimeError("hopeless")) is None
            assert await train(run, learner)
            assert len(learner.trained) == 2
        found = audit_run(ram_path)
        assert (found.ok, found.dropped) == (True, 1)

    async def test_a_step_that_lost_all_its_groups_is_counted_without_training(
        self, ram_path: Path
    ) -> None:
        learner = Learner()
        changes = {"failures": {"drop_budget": 3}, "sampler": {"name": "in_order", "window": 0}}
        async with (
            open_run(ram_path, config(**changes), PROMPTS, learner) as run,
            asyncio.TaskGroup() as tasks,
        ):
            for group in await first(run, 3):
                await fail(run, group)
                await run.give_up(group, RuntimeError("hopeless"))
            tasks.create_task(dispatch(run))
            while await train(run, learner):
                pass
            assert run.step == 4
        assert len(learner.trained) == 9
        assert audit_run(ram_path).ok

    async def test_the_drop_budget_is_kept(self, ram_path: Path) -> None:
        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            (group,) = await first(run)
            await fail(run, group)
            with pytest.raises(DropBudgetError, match="drop_budget = 0 is used up"):
                await run.give_up(group, RuntimeError("hopeless"))
            assert group.group_id in run.ledger

    async def test_a_group_that_was_not_tried_is_not_given_up(self, ram_path: Path) -> None:
        async with open_run(
            ram_path, config(failures={"drop_budget": 1}), PROMPTS, Learner()
        ) as run:
            (group,) = await first(run)
            with pytest.raises(MisuseError, match="before an attempt at it has failed"):
                await run.give_up(group, RuntimeError("hopeless"))
            assert group.group_id in run.ledger

    async def test_a_rollout_that_becomes_too_old_ends_and_its_task_goes_on(
        self, ram_path: Path
    ) -> None:
        learner, went_on = Learner(), asyncio.Event()

        async def slow(run: Run, group: PromptGroup) -> None:
            async with run.attempt(group):
                await asyncio.Event().wait()
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            went_on.set()

        async with (
            open_run(ram_path, config(**WINDOWED), PROMPTS, learner) as run,
            asyncio.TaskGroup() as tasks,
        ):
            one, two = await first(run, 2)
            tasks.create_task(slow(run, one))
            await finish(run, two)
            assert await train(run, learner)
            await went_on.wait()
            assert one.group_id not in run.ledger
            assert run.version.value == 1
            assert run.state.permits.held == 0
        assert actions(ram_path).count(Action.ABORT_STALE) == 1
        assert audit_run(ram_path).ok

    async def test_a_commit_that_has_begun_is_not_stopped_however_old_it_is(
        self, ram_path: Path
    ) -> None:
        holding, learner = Holding(), Learner()
        store = MemoryBootstrap(MemoryStore(steps=holding))

        async with (
            open_run(ram_path, config(**WINDOWED), PROMPTS, learner, store=store) as run,
            asyncio.TaskGroup() as tasks,
        ):
            one, two = await first(run, 2)
            await finish(run, two)
            holding.held = True
            tasks.create_task(finish(run, one))
            await holding.reached.wait()
            assert await train(run, learner)
            assert one.group_id in run.ledger
            holding.go.set()
        assert Action.ABORT_STALE not in actions(ram_path)
        assert audit_run(ram_path).ok

    async def test_a_cancellation_from_outside_is_none_of_the_run(self, ram_path: Path) -> None:
        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            (group,) = await first(run)

            async def attempt() -> None:
                async with run.attempt(group):
                    await asyncio.Event().wait()

            task = asyncio.create_task(attempt())
            await settle(lambda: run.buffer)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert group.group_id in run.ledger


class TestDispatchAgain:
    """A group that is owed is handed out again, and keeps the one place that it has."""

    async def test_what_was_handed_out_and_not_finished_comes_first(self, ram_path: Path) -> None:
        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            tried, untried, finished = await first(run, 3)
            await fail(run, tried)
            await finish(run, finished)
            again = await first(run, 3)
            assert again[:2] == [tried, untried]
            assert again[2].group_id not in {tried.group_id, untried.group_id, finished.group_id}
            assert run.state.permits.held == run.in_flight + 1 == 4

    async def test_a_rollout_that_fails_in_its_loop_is_made_good_by_the_next(
        self, ram_path: Path
    ) -> None:
        learner = Learner()
        async with open_run(ram_path, config(), PROMPTS, learner) as run:
            with pytest.raises(ExceptionGroup):
                await dispatch(run, fail_aloud)
            async with asyncio.TaskGroup() as tasks:
                rollouts = tasks.create_task(dispatch(run))
                while await train(run, learner):
                    pass
                await rollouts
        assert_trained_once(ram_path, learner)

    async def test_what_is_being_tried_is_not_handed_out(self, ram_path: Path) -> None:
        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            one, two = await first(run, 2)
            trying = asyncio.create_task(never(run, one))
            await settle(lambda: len(run.attempts))
            assert (await first(run, 1)) == [two]
            trying.cancel()
            await asyncio.wait({trying})
            assert (await first(run, 2)) == [one, two]

    async def test_a_cancelled_wait_at_the_gate_leaves_the_batch_to_the_next(
        self, ram_path: Path
    ) -> None:
        buffer = {"capacity": 12}
        async with open_run(ram_path, config(buffer=buffer), PROMPTS, Learner()) as run:
            iterating = asyncio.create_task(first(run, 7))
            await settle(lambda: len(run.ledger))
            (reserved,) = [batch for _, batch in run.ledger.reserved()]
            held = run.state.permits.held
            iterating.cancel()
            await asyncio.wait({iterating})
            assert run.state.permits.held == held - 1 == run.in_flight == 6
            for group in await first(run, 6):
                await finish(run, group)
            assert await train(run, Learner())
            assert (await first(run, 1))[0].group_id == reserved[0].group_id

    async def test_an_error_between_two_groups_leaves_each_its_one_place(
        self, ram_path: Path
    ) -> None:
        learner = Learner()
        async with open_run(ram_path, config(), PROMPTS, learner) as run:
            for count in (1, 2, 4):
                handed_out: list[str] = []
                with pytest.raises(ZeroDivisionError):
                    await fail_after(run, count, handed_out)
                assert handed_out == [record.group_id for record in run.ledger.admitted()][:count]
                assert run.state.permits.held == count
                assert_agree(run)
            await roll_and_train(run, learner)
        assert_trained_once(ram_path, learner)

    async def test_an_iteration_that_is_closed_within_a_batch_is_taken_up_there(
        self, ram_path: Path
    ) -> None:
        learner = Learner()
        async with open_run(ram_path, config(), PROMPTS, learner) as run:
            iterating = run.dispatch()
            group = await anext(iterating)
            await iterating.aclose()
            assert (len(run.ledger.admitted()), run.state.permits.held) == (3, 1)
            assert_agree(run)
            assert (await first(run, 3))[0] == group
            assert run.state.permits.held == 3
            assert_agree(run)
            await roll_and_train(run, learner)
        assert_trained_once(ram_path, learner)

    async def test_a_cancelled_wait_for_a_place_leaves_the_group_to_the_next(
        self, ram_path: Path
    ) -> None:
        learner = Learner()
        changes: dict[str, Any] = {
            "sampler": {"name": "windowed", "window": 9},
            "buffer": {"capacity": 4},
        }
        async with open_run(ram_path, config(**changes), PROMPTS, learner) as run:
            iterating = asyncio.create_task(first(run, 5))
            await settle(lambda: run.in_flight)
            assert (len(run.ledger.admitted()), run.state.permits.held) == (6, 4)
            iterating.cancel()
            await asyncio.wait({iterating})
            assert_agree(run)
            await roll_and_train(run, learner)
        assert_trained_once(ram_path, learner)

    async def test_attempts_that_their_owner_has_cancelled_are_made_again(
        self, ram_path: Path
    ) -> None:
        learner = Learner()
        async with open_run(ram_path, config(), PROMPTS, learner) as run:
            rolling_out = asyncio.create_task(dispatch(run, never))
            await settle(lambda: len(run.attempts))
            attempts = len(run.attempts)
            rolling_out.cancel()
            await asyncio.wait({rolling_out})
            assert (run.attempts, run.in_flight) == ({}, attempts)
            assert_agree(run)
            await roll_and_train(run, learner)
        assert Counter(learner.trained) == {f"p{n}@0": 1 for n in range(12)}

    async def test_a_group_between_two_tries_is_not_handed_out(self, ram_path: Path) -> None:
        pausing, go_on = asyncio.Event(), asyncio.Event()

        async def sleep(seconds: float) -> None:
            if seconds == 7:
                pausing.set()
                await go_on.wait()
            else:
                await asyncio.Event().wait()

        async def generate(attempt: Attempt) -> Fields:
            if attempt.number == 0:
                raise OSError("one bad try")
            return rows(run)

        learner = Learner()
        async with open_run(ram_path, config(failures={"pause_s": 7}), PROMPTS, learner) as run:
            run.state.sleep = sleep
            one, two = await first(run, 2)
            rolling_out = asyncio.create_task(run.roll_out(one, generate))
            await pausing.wait()
            assert await first(run) == [two]
            with pytest.raises(MisuseError, match=r"is rolled out already; call roll_out\(\) once"):
                await run.roll_out(one, generate)
            go_on.set()
            await rolling_out
            assert_agree(run)
            await roll_and_train(run, learner)
        assert_trained_once(ram_path, learner)

    async def test_a_spare_that_is_rolled_out_is_not_handed_out(self, ram_path: Path) -> None:
        tried: list[PromptGroup] = []
        pauses = 0

        async def sleep(seconds: float) -> None:
            nonlocal pauses
            pauses += 1
            assert tried[-1] not in await first(run, 3 + pauses)

        async def generate(attempt: Attempt) -> Fields:
            tried.append(attempt.group)
            if len(tried) == 4:
                raise NoWorkerError("no generator is left")
            raise OSError("a bad try")

        changes = {
            "buffer": {"spare_prompts": 1},
            "failures": {"attempts": 2, "pause_s": 7, "drop_budget": 1},
        }
        async with open_run(ram_path, config(**changes), PROMPTS, Learner()) as run:
            run.state.sleep = sleep
            hopeless, *_ = await first(run, 4)
            with pytest.raises(NoWorkerError):
                await run.roll_out(hopeless, generate)
            spare = tried[-1]
            assert (tried, pauses) == ([hopeless, hopeless, spare, spare], 2)
            assert spare in await first(run, 6)
            assert_agree(run)

    async def test_two_iterations_at_once_are_refused(self, ram_path: Path) -> None:
        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            iterating = asyncio.create_task(first(run, 7))
            await settle(lambda: len(run.ledger))
            with pytest.raises(MisuseError, match="while another iteration of it waits"):
                await first(run, 1)
            iterating.cancel()
            await asyncio.wait({iterating})

    async def test_an_iteration_ends_when_a_newer_one_has_begun(self, ram_path: Path) -> None:
        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            older = run.dispatch()
            group = await anext(older)
            assert await first(run, 1) == [group]
            with pytest.raises(MisuseError, match="go on with the newer iteration"):
                await anext(older)


class TestRollOut:
    """The tries of one group, with what comes between them."""

    async def test_pauses_grow_and_end_with_the_last_try(self, ram_path: Path) -> None:
        failures = {"attempts": 5, "pause_s": 4, "longest_pause_s": 10, "drop_budget": 1}
        pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)

        async def generate(attempt: Attempt) -> Fields:
            raise OSError(f"try {attempt.number}")

        async with open_run(ram_path, config(failures=failures), PROMPTS, Learner()) as run:
            run.state.sleep = sleep
            (group,) = await first(run)
            await run.roll_out(group, generate)
            assert group.group_id not in run.ledger
        assert pauses == [4, 8, 10, 10]
        assert actions(ram_path).count(Action.FAIL_GROUP) == 5
        assert audit_run(ram_path).drop_reasons[group.group_id] == "try 4"

    async def test_a_lost_worker_is_not_the_fault_of_the_group(self, ram_path: Path) -> None:
        async def generate(attempt: Attempt) -> Fields:
            if attempt.number < 4:
                raise WorkerLostError("the generator died")
            return rows(run)

        async with open_run(
            ram_path, config(failures={"attempts": 1, "pause_s": 0}), PROMPTS, Learner()
        ) as run:
            (group,) = await first(run)
            await run.roll_out(group, generate)
            assert group.group_id in run.buffer

    async def test_what_no_later_try_can_mend_comes_out_at_once(self, ram_path: Path) -> None:
        async def generate(attempt: Attempt) -> Fields:
            raise NoWorkerError("no generator is left")

        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            (group,) = await first(run)
            with pytest.raises(NoWorkerError):
                await run.roll_out(group, generate)
            assert group.group_id in run.ledger
            assert await first(run) == [group]

    async def test_a_spare_takes_the_place_and_has_its_own_tries(self, ram_path: Path) -> None:
        tried: Counter[str] = Counter()

        async def generate(attempt: Attempt) -> Fields:
            tried[attempt.group.group_id] += 1
            if attempt.group == hopeless or attempt.number == 0:
                raise ValueError("no")
            return rows(run)

        changes = {
            "buffer": {"spare_prompts": 1},
            "failures": {"attempts": 2, "pause_s": 0, "drop_budget": 1},
        }
        async with open_run(ram_path, config(**changes), PROMPTS, Learner()) as run:
            hopeless, *_ = await first(run, 4)
            await run.roll_out(hopeless, generate)
            (spare,) = set(tried) - {hopeless.group_id}
            assert spare in run.buffer
            assert set(tried.values()) == {2}

    async def test_a_group_that_two_give_up_is_given_up_once(self, ram_path: Path) -> None:
        async with open_run(
            ram_path, config(failures={"drop_budget": 3}), PROMPTS, Learner()
        ) as run:
            (group,) = await first(run)
            await fail(run, group)
            error = RuntimeError("hopeless")
            outcomes = await asyncio.gather(
                run.give_up(group, error), run.give_up(group, error), return_exceptions=True
            )
            assert [type(outcome) for outcome in outcomes] == [type(None), MisuseError]
            assert run.state.dropped == 1


class TestSteps:
    async def test_a_step_is_finished_before_the_next_is_claimed(self, ram_path: Path) -> None:
        async with rolling(ram_path, Learner()) as run:
            await run.next_step()
            with pytest.raises(MisuseError, match=r"call finish_step\(\)"):
                await run.next_step()
            await run.finish_step()

    async def test_a_step_that_is_not_open_cannot_be_finished(self, ram_path: Path) -> None:
        async with open_run(ram_path, config(), PROMPTS, Learner()) as run:
            with pytest.raises(MisuseError, match=r"call next_step\(\) first"):
                await run.finish_step()

    async def test_nothing_is_saved_while_a_step_is_open(self, ram_path: Path) -> None:
        async def save_in_a_step() -> None:
            learner = Learner()
            async with rolling(ram_path, learner) as run:
                await train(run, learner)
                await run.next_step()
                await run.save()

        with pytest.raises(InvariantError, match="still owns"):
            await save_in_a_step()

    async def test_new_weights_are_handed_on_at_the_start_and_when_the_version_is_raised(
        self, ram_path: Path
    ) -> None:
        handed_on: list[int] = []

        async def sync(version: int) -> None:
            handed_on.append(version)

        learner = Learner()
        async with rolling(ram_path, learner, sync=sync) as run:
            while await train(run, learner):
                assert handed_on == [*range(run.step + 1)]
        assert handed_on == [0, 1, 2, 3, 4]

    async def test_a_step_that_can_never_be_filled_is_named(
        self, ram_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ReadyFirstSampler, "select", lambda *arguments: [])

        async def run_to_the_end() -> None:
            changes = {"sampler": {"name": "ready_first", "window": 4}}
            async with rolling(ram_path, Learner(), **changes) as run:
                await run.next_step()

        with pytest.raises(StallError, match="selects none of the 12"):
            await run_to_the_end()


class TestSaves:
    async def test_a_file_that_the_trainer_names_and_has_not_written_fails_the_save(
        self, ram_path: Path
    ) -> None:
        learner = Learner()
        async with rolling(ram_path, learner, checkpoint={"cut": "full"}) as run:
            await train(run, learner)
            learner.files = ("learner.json", "optimizer.json")
            await run.save()
            (failed,) = run.failed_saves
            assert "optimizer.json is missing" in failed.error
            learner.files = ("learner.json",)
            while await train(run, learner):
                pass
        assert_trained_once(ram_path, learner)

    async def test_saves_that_keep_failing_end_the_run_by_name(self, ram_path: Path) -> None:
        learner = Learner()

        async def save_each_step() -> None:
            async with rolling(ram_path, learner) as run:
                learner.files = ("learner.json", "optimizer.json")
                while await train(run, learner):
                    await run.save()

        with pytest.raises(SaveError, match="3 saves in a row have failed"):
            await save_each_step()
        assert actions(ram_path)[-1] is Action.END_RUN

    async def test_the_end_of_the_block_saves_the_last_step(self, ram_path: Path) -> None:
        learner = Learner()
        async with rolling(ram_path, learner) as run:
            while await train(run, learner):
                pass
        assert latest(ram_path).name == "step_4"
        assert [save.step for save in run.saves] == [0, 4]

    async def test_a_loop_that_is_left_early_is_saved_and_says_so(self, ram_path: Path) -> None:
        learner = Learner()
        async with rolling(ram_path, learner) as run:
            await train(run, learner)
        found = audit_run(ram_path)
        assert (found.ok, found.ended, found.trained_once) == (True, "stopped", 3)
        assert latest(ram_path).name == "step_1"

    async def test_an_error_of_the_loop_comes_out_as_it_is_and_ends_the_log(
        self, ram_path: Path
    ) -> None:
        with pytest.raises(Killed):
            async with rolling(ram_path, Learner()):
                raise Killed
        *_, end = read_log(RunDirectory(ram_path).log_path(1))
        assert end.args == {"reason": "Killed: "}
        assert audit_run(ram_path).ok
