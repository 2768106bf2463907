"""Samplers of a user's own: loading, and admission without the split."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from cutlock.barrier import Barrier, Slot
from cutlock.errors import AdmissionWaitError, ConfigError, InvariantError, ReentryError
from cutlock.samplers import (
    Admission,
    AnySampler,
    TrainerVersion,
    TransactionalAdmissionSampler,
    build_sampler,
    is_restorable,
    parse_sampler,
)
from cutlock.samplers.builtin import InOrderSampler
from cutlock.samplers.custom import admit_split, admit_whole, load_class
from tests.support.custom_samplers import (
    AdmitOnly,
    Choice,
    Dawdling,
    Failing,
    Impatient,
    Nested,
    Split,
    Stubborn,
    TwoStepsBehind,
)
from tests.support.loop import Holder, settle, turns
from tests.support.samplers import NotRestorable

HERE = "tests.support.custom_samplers"


def built(name: str, **options: object) -> AnySampler:
    raw = {"name": "custom", "path": f"{HERE}:{name}", "options": options}
    return build_sampler(parse_sampler(raw), Barrier())


class TestLoading:
    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("AdmitOnly", r"sampler path 'AdmitOnly' is not of the form 'module:Class'"),
            (":AdmitOnly", r"':AdmitOnly' is not of the form"),
            (f"{HERE}:", r"is not of the form 'module:Class'"),
            ("", r"'' is not of the form"),
            ("no.such.module:C", r"cannot be imported \(ModuleNotFoundError: .*Python path\?"),
            (f"{HERE}:Missing", r"cannot be imported \(AttributeError: .*'Missing'"),
            (f"{HERE}:AdmitOnly:more", r"cannot be imported \(AttributeError"),
            (".relative:C", r"'.relative:C' cannot be imported \(TypeError"),
            ("tests.support.broken_module:C", r"imported \(RuntimeError: no GPU here\)"),
            (f"{HERE}:function", r"is <function function at .*>; name a class"),
            (f"{HERE}:Undeclared", r"does not say whether .*set `restorable = True` or"),
            (f"{HERE}:WronglyDeclared", r"does not say whether"),
            (f"{HERE}:Choice", r"has neither wait_until_admissible\(\) and commit_.* one of the"),
            (f"{HERE}:HalfSplit", r"has neither wait_until_admissible\(\) and commit_admission"),
            (
                f"{HERE}:NoChoice",
                r"has no capacity_needed, need, evict, stale_in_flight, credits_shortfall, "
                r"substitute_weight, restore_cursor; give it every method",
            ),
        ],
    )
    def test_a_path_that_leads_to_no_sampler_is_refused_with_the_reason(
        self, path: str, message: str
    ) -> None:
        with pytest.raises(ConfigError, match=message):
            load_class(path)

    def test_options_are_the_arguments_of_the_class_after_the_barrier(self) -> None:
        sampler = built("AdmitOnly", window=3)
        assert isinstance(sampler, AdmitOnly)
        assert sampler.window == 3
        assert isinstance(sampler.barrier, Barrier)

    def test_options_that_the_class_does_not_take_are_named(self) -> None:
        with pytest.raises(ConfigError, match=r"does not take the options \['depth', 'window'\]"):
            built("AdmitOnly", window=3, depth=1)

    def test_a_sampler_without_a_cursor_is_refused_when_it_is_built(self) -> None:
        with pytest.raises(ConfigError, match=f"'{HERE}:NoCursor' has no cursor; give it"):
            built("NoCursor")

    def test_whether_a_bundle_may_be_restored_is_read_without_constructing_anything(self) -> None:
        for name, restorable in (("NotRestorable", False), ("AdmitOnly", True)):
            config = parse_sampler({"name": "custom", "path": f"{HERE}:{name}"})
            assert is_restorable(config) is restorable

    def test_a_class_with_the_split_is_used_as_it_is(self) -> None:
        sampler = built("Split")
        assert type(sampler) is Split
        assert isinstance(sampler, TransactionalAdmissionSampler)

    def test_a_class_with_the_split_needs_nothing_else(self) -> None:
        assert load_class("tests.support.samplers:NotRestorable") is NotRestorable

    def test_a_class_without_the_split_is_told_apart(self) -> None:
        assert not isinstance(built("AdmitOnly"), TransactionalAdmissionSampler)


async def test_a_split_admission_is_committed_at_the_version_of_that_moment() -> None:
    barrier, version = Barrier(), TrainerVersion(0)

    async def opened() -> None:
        version.raise_to(1)

    seen: list[object] = []
    sampler = InOrderSampler(barrier, window=0)
    sampler._gate_open = lambda at: not seen.append(at)  # type: ignore[method-assign]
    admitted = await admit_split(sampler, barrier, version, opened, lambda _, admission: admission)
    assert admitted == Admission(0, 0)
    assert seen == [0, 1]


class Unhurried(Choice):
    """Ends when `end` is done, however often it is cancelled."""

    def __init__(self, barrier: Barrier) -> None:
        super().__init__(barrier)
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def admit(self, version: TrainerVersion) -> Admission:
        while not self.end.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({self.end})
        self.end.result()
        return self._advance()


class Desk:
    """One admission at a time, as the rollout pump asks for it."""

    def __init__(self, kind: Callable[[Barrier], Choice], *, cursor: int = -1) -> None:
        self.barrier = Barrier()
        self.version = TrainerVersion()
        self.sampler = kind(self.barrier)
        self.sampler.cursor = cursor
        self.log: list[str] = []
        self.admitted: list[Admission] = []

    async def _opened(self) -> None:
        assert self.barrier.slots == (0 if isinstance(self.sampler, Split) else 1)
        self.log.append("opened")

    def commit(self, slot: Slot, admission: Admission) -> Admission:
        self.barrier.require_slot(slot)
        self.log.append(f"committed {admission.dispatch_index}")
        self.admitted.append(admission)
        return admission

    def admit(self) -> Awaitable[Admission]:
        if isinstance(self.sampler, Split):
            return admit_split(self.sampler, self.barrier, self.version, self._opened, self.commit)
        assert isinstance(self.sampler, AdmitOnly | Choice)
        return admit_whole(self.sampler, self.barrier, self.version, self._opened, self.commit)  # type: ignore[arg-type]

    async def asked(self) -> asyncio.Task[Admission]:
        task = asyncio.ensure_future(self.admit())
        await settle()
        return task

    @property
    def slots_entered(self) -> int:
        return self.barrier.statistics().slots["admission"].entered


@pytest.fixture(autouse=True)
async def no_task_is_left() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    await settle()
    assert asyncio.all_tasks() - before - {asyncio.current_task()} == set()


class TestAdmitWhole:
    async def test_an_open_gate_admits_at_once_in_one_slot(self) -> None:
        desk = Desk(AdmitOnly)
        assert await desk.admit() == Admission(0, 0)
        assert desk.log == ["opened", "committed 0"]
        assert desk.slots_entered == 1
        assert desk.barrier.slots == 0

    async def test_a_wait_at_the_gate_holds_the_slot_until_a_cut_is_requested(self) -> None:
        desk = Desk(AdmitOnly, cursor=1)
        waiting = await desk.asked()
        assert desk.barrier.slots == 1
        cut = Holder(desk.barrier.checkpoint())
        await settle()
        assert cut.inside
        assert not waiting.done()
        assert desk.sampler.cursor == 1
        await cut.left()
        await settle()
        assert desk.barrier.slots == 1
        desk.version.raise_to(1)
        assert await waiting == Admission(2, 2)
        assert desk.log == ["opened", "committed 2"]
        assert desk.slots_entered == 2

    async def test_it_gives_way_to_every_cut(self) -> None:
        desk = Desk(AdmitOnly, cursor=1)
        waiting = await desk.asked()
        for _ in range(5):
            cut = Holder(desk.barrier.checkpoint())
            await settle()
            assert cut.inside
            await cut.left()
            await settle()
        desk.version.raise_to(1)
        await waiting
        assert desk.log == ["opened", "committed 2"]
        assert desk.slots_entered == 6

    async def test_a_cut_that_was_cancelled_costs_another_try_and_nothing_else(self) -> None:
        desk = Desk(AdmitOnly, cursor=1)
        waiting = await desk.asked()
        cut = Holder(desk.barrier.checkpoint())
        await turns(1)
        cut.task.cancel()
        await settle()
        assert not waiting.done()
        desk.version.raise_to(1)
        assert await waiting == Admission(2, 2)

    @pytest.mark.parametrize("kind", [AdmitOnly, Dawdling, Stubborn])
    @pytest.mark.parametrize("gap", range(6))
    @pytest.mark.parametrize("first", ["gate", "cut"])
    async def test_gate_and_cut_in_nearly_the_same_turn_admit_once_and_pass_the_cut(
        self, kind: type[Choice], first: str, gap: int
    ) -> None:
        desk = Desk(kind, cursor=1)
        waiting = await desk.asked()
        seen: list[int] = []
        if first == "gate":
            desk.version.raise_to(1)
            await turns(gap)
        cut = Holder(desk.barrier.checkpoint(), lambda: seen.append(desk.sampler.cursor))
        if first == "cut":
            await turns(gap)
            desk.version.raise_to(1)
        await cut.left()
        assert await waiting == Admission(2, 2)
        assert desk.log == ["opened", "committed 2"]
        assert desk.sampler.cursor == 2
        # The cut saw the admission whole or not at all.
        assert seen in ([1], [2])
        assert desk.barrier.slots == 0

    async def test_an_admission_that_ends_although_it_was_cancelled_is_kept(self) -> None:
        desk = Desk(Stubborn, cursor=1)
        waiting = await desk.asked()
        async with desk.barrier.checkpoint():
            assert desk.admitted == [Admission(2, 2)]
        await waiting

    async def test_a_cursor_that_moves_before_the_last_await_is_refused(self) -> None:
        desk = Desk(Impatient)
        waiting = await desk.asked()
        assert waiting.done()
        waiting = await desk.asked()
        cut = Holder(desk.barrier.checkpoint())
        with pytest.raises(
            InvariantError,
            match=r"Impatient.admit\(\) moved its cursor from 0 to 1 .* after the last await",
        ):
            await waiting
        await cut.left()
        assert desk.barrier.slots == 0

    async def test_a_wait_for_more_than_one_trainer_step_names_class_and_versions(self) -> None:
        desk = Desk(TwoStepsBehind)
        desk.version.raise_to(4)
        waiting = await desk.asked()
        desk.version.raise_to(5)
        await settle()
        assert not waiting.done()
        desk.version.raise_to(6)
        with pytest.raises(
            AdmissionWaitError,
            match=r"TwoStepsBehind.admit\(\) was called at trainer version 4 and still waits at 6",
        ):
            await waiting
        assert desk.barrier.slots == 0
        assert desk.log == []

    async def test_the_wait_is_counted_from_the_first_try_over_all_cuts(self) -> None:
        desk = Desk(TwoStepsBehind)
        waiting = await desk.asked()
        for version in (1, 2):
            async with desk.barrier.checkpoint():
                desk.version.raise_to(version)
            await settle()
        with pytest.raises(AdmissionWaitError, match="at trainer version 0 and still waits at 2"):
            await waiting

    async def test_an_error_of_the_sampler_ends_the_slot(self) -> None:
        desk = Desk(Failing)
        with pytest.raises(RuntimeError, match="no batch today"):
            await desk.admit()
        assert desk.barrier.slots == 0
        assert desk.log == []

    async def test_a_sampler_that_enters_the_barrier_itself_is_refused(self) -> None:
        desk = Desk(Nested)
        with pytest.raises(ReentryError, match=r"holds <live slot 'admission'>"):
            await desk.admit()

    @pytest.mark.parametrize("times", [1, 2])
    @pytest.mark.parametrize("kind", [AdmitOnly, Dawdling])
    async def test_a_pump_that_is_cancelled_leaves_the_cursor_and_the_slot(
        self, kind: type[Choice], times: int
    ) -> None:
        desk = Desk(kind, cursor=1)
        waiting = await desk.asked()
        for _ in range(times):
            waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert desk.sampler.cursor == 1
        async with desk.barrier.checkpoint():
            assert desk.barrier.slots == 0

    async def test_a_cancellation_after_the_cursor_has_moved_is_delivered_after_the_commit(
        self,
    ) -> None:
        desk = Desk(AdmitOnly)

        async def opened() -> None:
            await asyncio.Event().wait()

        waiting = asyncio.ensure_future(
            admit_whole(desk.sampler, desk.barrier, desk.version, opened, desk.commit)  # type: ignore[arg-type]
        )
        await settle()
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert desk.admitted == [Admission(0, 0)]
        assert desk.barrier.slots == 0

    async def test_a_cancellation_while_an_admission_makes_way_is_delivered_after_its_end(
        self,
    ) -> None:
        desk = Desk(Unhurried)
        waiting = await desk.asked()
        cut = Holder(desk.barrier.checkpoint())
        await settle()
        waiting.cancel()
        await settle()
        assert not waiting.done()
        desk.sampler.end.set_result(None)  # type: ignore[attr-defined]
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert desk.admitted == [Admission(0, 0)]
        await cut.left()

    async def test_a_cancellation_outranks_the_error_of_an_admission(self) -> None:
        desk = Desk(Unhurried)
        waiting = await desk.asked()
        waiting.cancel()
        await settle()
        desk.sampler.end.set_exception(RuntimeError("no batch"))  # type: ignore[attr-defined]
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert desk.barrier.slots == 0

    async def test_a_pump_that_is_cancelled_while_a_cut_is_open_stops_waiting_for_it(self) -> None:
        desk = Desk(AdmitOnly, cursor=1)
        waiting = await desk.asked()
        async with desk.barrier.checkpoint():
            waiting.cancel()
            await asyncio.wait({waiting})
            assert waiting.cancelled()


class TestAdmitSplit:
    async def test_the_wait_at_the_gate_holds_no_slot(self) -> None:
        desk = Desk(Split, cursor=1)
        waiting = await desk.asked()
        assert desk.barrier.slots == 0
        async with desk.barrier.checkpoint():
            assert not waiting.done()
        desk.version.raise_to(1)
        assert await waiting == Admission(2, 2)
        assert desk.log == ["opened", "committed 2"]
        assert desk.slots_entered == 1

    async def test_an_admission_that_has_passed_the_gate_waits_for_an_open_cut(self) -> None:
        desk = Desk(Split)
        cut = Holder(desk.barrier.checkpoint())
        await settle()
        waiting = await desk.asked()
        assert desk.log == ["opened"]
        assert desk.sampler.cursor == -1
        await cut.left()
        assert await waiting == Admission(0, 0)


class TestNoDeadlock:
    """The trainer that opens the gate is the one that saves, and a save waits for slots."""

    @pytest.mark.parametrize("kind", [AdmitOnly, Dawdling, Split])
    @pytest.mark.parametrize("gap", range(8))
    async def test_a_pump_that_admits_once_more_before_each_save_does_not_stop_the_run(
        self, kind: type[Choice], gap: int
    ) -> None:
        desk, steps = Desk(kind), 6
        saved: list[int] = []

        async def pump() -> None:
            while True:
                await desk.admit()

        async def trainer() -> None:
            for step in range(steps):
                while len(desk.admitted) <= step:
                    await turns(1)
                desk.version.raise_to(step + 1)
                await turns(gap)  # in which the pump admits once more, and waits again
                async with desk.barrier.checkpoint():
                    saved.append(desk.sampler.cursor)
                    assert len(desk.admitted) == desk.sampler.cursor + 1

        pumping = asyncio.create_task(pump())
        async with asyncio.timeout(60):
            await trainer()
        pumping.cancel()
        await asyncio.wait({pumping})
        assert len(saved) == steps
        assert saved == sorted(saved)
        assert all(cursor <= step + 2 for step, cursor in enumerate(saved))
        assert [a.dispatch_index for a in desk.admitted] == list(range(len(desk.admitted)))
