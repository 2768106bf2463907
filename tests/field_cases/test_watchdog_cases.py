"""Public failures in which a run that stands still looks as if it were healthy."""

from __future__ import annotations

import msgspec
import pytest

from cutlock.alphabet import Action
from cutlock.errors import StallError
from cutlock.watchdog import Progress, StallReport, StallWatchdog
from tests.support.loop import VirtualClock, WakingClock
from tests.support.rig import Rig

LIMIT = 600.0


class TestProgressOfTheWrongKind:
    """FB-55: the trainer waits in order for prompt 3, which will not come; others finish."""

    WAITING = Progress(
        commits=0,
        selections=3,
        finished=False,
        busy=False,
        in_flight=4,
        places=4,
        given_up=0,
        ready=0,
        waiting_for="1 groups of step 3",
    )

    def watched(self, **changes: object) -> list[StallReport]:
        """What is said while a rollout is finished every tenth of the limit, for two limits."""
        clock = VirtualClock()
        watchdog = StallWatchdog(LIMIT, clock)
        progress = msgspec.structs.replace(self.WAITING, **changes)
        said = []
        for commits in range(20):
            said += watchdog.observe(msgspec.structs.replace(progress, commits=commits))
            clock.advance(LIMIT / 10)
        return said

    def test_fb_55_finishing_rollouts_do_not_reset_the_time_since_the_last_selection(self) -> None:
        (report,) = self.watched()
        assert (report.kind, report.seconds) == ("no selection", LIMIT)
        assert "1 groups of step 3" in report.message

    def test_fb_55_a_short_batch_and_starvation_are_told_apart(self) -> None:
        (starved,) = self.watched(in_flight=4, given_up=0)
        assert "4 of 4 rollouts are in flight, no prompt was given up" in starved.message
        assert "a worker is slow or dead" in starved.message
        (short,) = self.watched(in_flight=0, given_up=1)
        assert "0 of 4 rollouts are in flight, 1 prompt was given up" in short.message
        assert "waits for what was given up" in short.message
        (held_up,) = self.watched(in_flight=0, given_up=0)
        assert "the rollout pump is held up" in held_up.message

    async def test_fb_55_a_run_that_selects_nothing_fails_although_its_rollouts_finish(
        self, memory_rig: Rig
    ) -> None:
        rig, clock = memory_rig, WakingClock()
        rig.now, rig.sleep = clock, clock.sleep
        rig.configure(
            prompts_per_step=1,
            sampler={"window": 7},
            watchdog={"stall_s": LIMIT, "action": "fail"},
        )
        run = await rig.launch()
        run.generator.finish(*rig.served[:3])
        await run.logged(Action.SYNC_WEIGHTS, version=3)
        await run.quiet()
        for late in rig.served[4:]:
            await clock.pass_by(LIMIT / 5)
            run.generator.finish(late)
            await run.quiet()
        assert run.state.commits == 7
        await clock.pass_by(LIMIT / 3)
        assert run.task is not None
        with pytest.raises(StallError, match=r"no selection for 600 s .* groups of step 3 ") as end:
            await run.task
        assert "no commit" not in str(end.value)
        assert "1 of 8 rollouts are in flight" in str(end.value)

    @pytest.mark.parametrize("sampler", ["in_order", "ready_first", "weight_fifo", "windowed"])
    async def test_fb_55_a_prompt_that_was_given_up_is_waited_for_by_no_sampler(
        self, memory_rig: Rig, sampler: str
    ) -> None:
        rig = memory_rig
        rig.configure(
            prompts_per_step=1,
            sampler={"name": sampler, "window": 7},
            failures={"attempts": 1, "drop_budget": 1},
        )
        run = await rig.launch(started=False)
        run.generator.fail(rig.served[3])
        await run.finish()
        rig.check_end(run, lost=1)
