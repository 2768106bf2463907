from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cutlock.alphabet import Action
from cutlock.bond import cover
from cutlock.conformance.protocol import CUTLOCK, CutlockStepper
from tests.replay.paths_graphs import graph_of_run
from tests.replay.script import Script

if TYPE_CHECKING:
    from cutlock.plane.transfer_queue import TransferQueueBootstrap
    from tests.support.real_plane import RealCluster


@pytest.mark.real
def test_a_real_transfer_queue_takes_the_states_of_the_store_in_memory(
    real_cluster: RealCluster, ram_path: Path
) -> None:
    """A save, a failed commit, a crash with finished groups, and a restart, in two units."""
    from cutlock.conformance.transfer_queue import TransferQueueHost
    from tests.support.real_plane import UNITS

    with Script(
        ram_path / "run", members=(1, 2), units=("u1", "u2"), max_failures=1, window=2
    ) as script:
        script.start().save().to(Action.PUT_ROWS)
        script.do(Action.ROLLBACK_GROUP, script.done[-1].arguments["group"])
        script.to(Action.RAISE_VERSION).to(Action.SYNC_WEIGHTS).to(Action.COMMIT_GROUP).save()
        script.do(Action.CRASH)
        script.finish()
    graph = graph_of_run(script)

    async def start(units: int) -> TransferQueueBootstrap:
        assert units == UNITS
        return await real_cluster.untouched_store()

    with TransferQueueHost(UNITS, start) as host:
        bond = replace(CUTLOCK, stepper=partial(CutlockStepper, host=host))
        found = cover(bond, "real", graph, constants=script.bounds.constants, every_action=False)
    assert found.divergence is None
    assert found.covered == len(graph.edges)
