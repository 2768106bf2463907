"""Random schedules: the code goes where the specification does, at larger bounds than a model's."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from cutlock.alphabet import Action
from cutlock.conformance.free.moves import CANCEL_COMMIT, CANCEL_COMMIT_TWICE
from tests.stateful.pair_machine import DEFAULT, REFUSED, run

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from cutlock.plane.transfer_queue import TransferQueueBootstrap
    from tests.support.real_plane import RealCluster

FEW = settings(DEFAULT, max_examples=4)
LONG = settings(DEFAULT, max_examples=5000)


@pytest.mark.timeout(900)
def test_random_schedules_do_every_action_and_code_and_specification_agree() -> None:
    done = run(DEFAULT)
    wanted = {action.value for action in Action}
    assert wanted | {CANCEL_COMMIT, CANCEL_COMMIT_TWICE, REFUSED} <= set(done)


@pytest.mark.real
def test_some_random_schedules_on_a_real_transfer_queue(real_cluster: RealCluster) -> None:
    from cutlock.conformance.transfer_queue import TransferQueueHost
    from tests.support import real_plane

    async def start(units: int) -> TransferQueueBootstrap:
        assert units == real_plane.UNITS
        return await real_cluster.untouched_store()

    with TransferQueueHost(real_plane.UNITS, start) as host:
        done = run(FEW, host=host)
    assert {Action.COMMIT_GROUP, Action.TRAIN_STEP, Action.RESTORE_CURSOR} <= set(done)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_random_schedules(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    given = request.config.getoption("--hypothesis-seed")
    seed = int(given or random.SystemRandom().randrange(2**32))
    with capsys.disabled():
        print(f"\nagain with --hypothesis-seed={seed}")
    run(LONG, seed, steps=300)
