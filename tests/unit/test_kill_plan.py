from __future__ import annotations

import pickle

import pytest

from cutlock.alphabet import Action
from cutlock.cli.run import NEVER_ANNOUNCED, KillPlan
from cutlock.errors import ConfigError


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The signals that the plan has sent instead of dying."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr("os.getpid", lambda: 42)
    monkeypatch.setattr("os.kill", lambda *signal: sent.append(signal))
    return sent


async def test_the_plan_kills_its_process_once_at_the_announcement_that_it_names(
    killed: list[tuple[int, int]],
) -> None:
    plan = KillPlan.parse("SavePlane:3")
    for expected in (0, 0, 1, 1):
        await plan.reach(Action.READ_INDEX)
        await plan.reach(Action.SAVE_PLANE, step=1)
        assert killed == [(42, 9)] * expected


async def test_without_a_count_the_first_announcement_kills(killed: list[tuple[int, int]]) -> None:
    await KillPlan.parse("CommitGroup").reach(Action.COMMIT_GROUP, group="p0@0")
    assert killed == [(42, 9)]


def test_every_action_with_a_stop_point_can_be_chosen_and_no_other() -> None:
    for action in Action:
        if action in NEVER_ANNOUNCED:
            with pytest.raises(ConfigError, match="without a stop point"):
                KillPlan.parse(action)
        else:
            assert KillPlan.parse(action).action is action


async def test_a_plan_counts_from_the_start_in_the_process_that_it_is_sent_to(
    killed: list[tuple[int, int]],
) -> None:
    sent = pickle.loads(pickle.dumps(KillPlan.parse("TrainStep:2")))
    await sent.reach(Action.TRAIN_STEP, step=0)
    assert killed == []
    await sent.reach(Action.TRAIN_STEP, step=1)
    assert killed == [(42, 9)]
