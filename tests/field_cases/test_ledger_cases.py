"""Public failures in which what is in flight, lost or trained is counted wrongly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cutlock.alphabet import Action
from cutlock.bundle.contents import decode_cut, read_training_info
from cutlock.bundle.verification import verify
from cutlock.controller.assembly import build_prompts
from tests.support.checks import groups_of, lost_on_purpose, served, trained, trained_per_step
from tests.support.local_runs import Run, Trouble, tiny_config
from tests.support.rig import Incarnation, Rig

ONE_BY_ONE = {"prompts_per_step": 1, "group_size": 1}


class TestCursorAheadOfInFlightWork:
    """FB-01: 0 is trained, 1 is finished, 2 and 3 are being generated, the loader is at 4."""

    async def saved(self, rig: Rig, **changes: Any) -> Path:
        rig.configure(**ONE_BY_ONE, sampler={"window": 2}, **changes)

        async def read_four(run: Incarnation) -> None:
            run.pump_hold = run.holds.hold(Action.RESERVE_BATCH, skip=4)

        run = await rig.run_to(1, read_four)
        _, one, two, three, *_ = rig.served
        run.generator.finish(one)
        await run.logged(Action.COMMIT_GROUP, group=one)
        for group in (two, three):
            await run.logged(Action.LAUNCH_GROUP, group=group)
        await run.at(run.pump_hold)
        bundle = await run.save_and_crash(1)
        assert rig.check_bundle(bundle).loader.position == 4
        return bundle

    async def served_once(self, rig: Rig, bundle: Path, launched: list[str], **how: Any) -> None:
        resumed = await rig.resume(bundle, **how)
        await resumed.finish()
        assert groups_of(resumed.log.records, Action.LAUNCH_GROUP) == launched
        assert trained_per_step(resumed.history) == {
            step: [group] for step, group in enumerate(rig.served)
        }
        rig.check_end(resumed)

    async def test_fb_01_what_was_being_generated_is_generated_again_before_the_loader_moves(
        self, memory_rig: Rig
    ) -> None:
        bundle = await self.saved(memory_rig)
        await self.served_once(memory_rig, bundle, memory_rig.served[2:])

    async def test_fb_01_what_was_finished_is_generated_again_if_its_rows_are_not_restored(
        self, memory_rig: Rig
    ) -> None:
        bundle = await self.saved(memory_rig)
        await self.served_once(memory_rig, bundle, memory_rig.served[1:], with_rows=False)

    async def test_fb_01_what_was_finished_is_generated_again_if_its_rows_are_not_saved(
        self, memory_rig: Rig
    ) -> None:
        bundle = await self.saved(memory_rig, checkpoint={"rows": False})
        await self.served_once(memory_rig, bundle, memory_rig.served[1:])


LOST = [(1,), (0,), (5,), (1, 2), (0, 5), (1, 3, 4)]


@pytest.mark.parametrize("lost", LOST, ids=str)
def test_fb_20_a_resume_goes_on_at_the_first_prompt_without_an_end(
    ram_path: Path, lost: tuple[int, ...]
) -> None:
    """Prompts that failed for good have an end, and do not make the position a count."""
    config = tiny_config(
        prompts_per_step=1,
        epochs=1,
        task={"prompts": 6, "length": 2, "vocabulary": 3},
        failures={"attempts": 1, "drop_budget": 6},
        checkpoint={"every": 1, "keep": 100},
    )
    order = served(config, build_prompts(config))
    failing = frozenset(order[ordinal].partition("@")[0] for ordinal in lost)
    run = Run.create(ram_path / "run", config, Trouble(failing=failing))
    run.first(config)
    for bundle in sorted(run.root.glob("step_[1-5]")):
        copy = run.copy(ram_path / bundle.name)
        plan = copy.plan(bundle.name)
        cut = plan.snapshot
        assert plan.info.trained_groups == sum(o not in lost for o in range(cut.step))
        handed_out = cut.loader.epoch * 6 + cut.loader.position
        owed = {*order[handed_out:], *(r.group_id for r in (*cut.ledger, *cut.index))}
        ended = {o for o in range(6) if order[o] not in owed}
        assert {*range(cut.step)} <= ended <= {*range(cut.step), *lost}
        copy.resume(plan)
        if not plan.finished:
            kept = (group for ordinal, group in enumerate(order) if ordinal not in lost)
            assert copy.trainer.trained == Counter(kept)
        found = copy.audit()
        assert (found.ok, found.trained_once, found.dropped) == (True, 6 - len(lost), len(lost))
        assert {*found.drop_reasons} == {order[ordinal] for ordinal in lost}


class TestHoleInTheTrained:
    """FB-40: 0, 1 and 3 to 8 of ten prompts are trained, 2 has been dropped as stale."""

    async def saved(self, rig: Rig, step: int, **changes: Any) -> Path:
        rig.configure(
            **ONE_BY_ONE,
            task={"prompts": 10},
            sampler={"name": "windowed", "window": 2},
            buffer={"capacity": 2},
            checkpoint={"every": 1},
            **changes,
        )
        run = await rig.launch(started=False)
        run.holds.hold(Action.RESERVE_BATCH, skip=9)
        run.generator.finish(*(rig.served[number] for number in (0, 1, *range(3, 9))))
        run.start()
        bundle = await run.published(step)
        await run.quiet()
        await run.crash()
        return bundle

    async def test_fb_40_a_resume_behind_a_hole_trains_only_what_is_left(
        self, memory_rig: Rig
    ) -> None:
        rig = memory_rig
        bundle = await self.saved(rig, 8)
        past = rig.surviving(bundle)
        assert lost_on_purpose(past) == [rig.served[2]]
        assert trained(past) == [rig.served[number] for number in (0, 1, *range(3, 9))]
        verified = verify(bundle)
        assert decode_cut(verified).loader.position == 9
        assert read_training_info(verified).trained_groups == 8
        resumed = await rig.resume(bundle)
        report = await resumed.finish()
        assert report.ended == "exhausted"
        assert trained(resumed.log.records) == [rig.served[9]]
        rig.check_end(resumed, lost=1)

    async def test_fb_40_a_resume_behind_a_hole_stops_at_the_configured_number_of_steps(
        self, memory_rig: Rig
    ) -> None:
        bundle = await self.saved(memory_rig, 6, max_steps=8)
        resumed = await memory_rig.resume(bundle)
        report = await resumed.finish()
        assert report.ended == "max_steps"
        assert [step.step for step in report.steps] == [6, 7]
        assert len(trained(resumed.history)) == 8
