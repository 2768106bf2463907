"""The stall watchdog on a virtual clock."""

from __future__ import annotations

import msgspec
import pytest

from cutlock.watchdog import Progress, StallReport, StallWatchdog
from tests.support.loop import VirtualClock

LIMIT = 600.0


class Watch:
    """A watchdog, its clock, and the progress that it sees next."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.progress = Progress(
            commits=0,
            selections=0,
            finished=False,
            busy=False,
            in_flight=2,
            places=8,
            given_up=0,
            ready=3,
            waiting_for="4 groups of step 7",
        )
        self._watchdog = StallWatchdog(LIMIT, self.clock)
        self.look()

    def look(self, after: float = 0.0, **changes: object) -> list[StallReport]:
        """What the watchdog says after some seconds, with these changes."""
        self.clock.advance(after)
        self.progress = msgspec.structs.replace(self.progress, **changes)
        return self._watchdog.observe(self.progress)

    def kinds(self, after: float = 0.0, **changes: object) -> list[str]:
        return [report.kind for report in self.look(after, **changes)]


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_nothing_is_said_before_the_limit(watch: Watch) -> None:
    assert watch.look(LIMIT - 1) == []


def test_a_run_in_which_nothing_moves_is_told_at_the_limit(watch: Watch) -> None:
    assert watch.kinds(LIMIT) == ["no selection", "no commit"]


def test_a_run_that_moves_is_left_alone(watch: Watch) -> None:
    for step in range(20):
        assert watch.look(LIMIT - 1, commits=step + 1, selections=step + 1) == []


def test_finishing_rollouts_do_not_hide_a_trainer_that_selects_nothing(watch: Watch) -> None:
    kinds = [watch.kinds(LIMIT / 4, commits=commits) for commits in range(1, 10)]
    assert kinds == [[], [], [], ["no selection"], [], [], [], [], []]


def test_a_trainer_that_selects_does_not_hide_that_nothing_is_committed(watch: Watch) -> None:
    kinds = [watch.kinds(LIMIT / 2, selections=selections) for selections in range(1, 5)]
    assert kinds == [[], ["no commit"], [], []]


def test_a_stall_is_told_once_until_it_moves_again(watch: Watch) -> None:
    assert watch.kinds(LIMIT) == ["no selection", "no commit"]
    assert watch.kinds(LIMIT) == []
    assert watch.kinds(1, commits=1, selections=1) == []
    assert watch.kinds(LIMIT) == ["no selection", "no commit"]


@pytest.mark.parametrize("excuse", ["busy", "finished"])
def test_a_busy_trainer_and_a_finished_run_are_no_stall(watch: Watch, excuse: str) -> None:
    assert watch.look(5 * LIMIT, **{excuse: True}) == []
    assert watch.look(LIMIT - 1, **{excuse: False}) == []
    assert watch.kinds(1) == ["no selection", "no commit"]


def test_a_wedge_with_nothing_in_flight_is_told_too(watch: Watch) -> None:
    report = watch.look(LIMIT, in_flight=0)[0]
    assert "0 of 8 rollouts are in flight" in report.message
    assert report.message.endswith("the rollout pump is held up")


def test_the_report_says_what_is_waited_for_and_what_is_there(watch: Watch) -> None:
    report = watch.look(LIMIT + 5)[0]
    assert report == StallReport(
        kind="no selection",
        seconds=605.0,
        message=(
            "no selection for 605 s (limit 600 s) while the trainer waits for 4 groups of step 7 "
            "and 3 groups are ready; 2 of 8 rollouts are in flight, no prompt was given up: "
            "a worker is slow or dead"
        ),
    )


def test_the_first_look_starts_the_timers_whatever_the_clock_says() -> None:
    clock = VirtualClock()
    clock.advance(1e6)
    watchdog = StallWatchdog(LIMIT, clock)
    assert watchdog.observe(Watch().progress) == []
