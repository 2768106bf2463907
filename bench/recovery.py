"""How long a save closes the door, with finished rollouts in the bundle and without.

`checkpoint.rows = true` writes the rows into the bundle, inside the window. `false` returns their
prompts to the ledger, to be generated again. The same state is saved both ways in turn, on real
Ray and TransferQueue.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial

from bench.cluster import Cluster, Filled, cluster
from bench.harness import Measurement, Session, compare, interleave
from cutlock.run.config import CheckpointConfig
from cutlock.run.save import SaveTiming

TIMES = {
    "drain": "the wait for slots that were open before the window",
    "exclusive": "the window in which nothing else may change",
    "asynchronous": "the rest of the save, while the pumps run",
}


def measure(session: Session) -> Iterator[Measurement]:
    with cluster() as running:
        for megabytes in session.pick(full=[10, 100, 500], quick=[10], tiny=[1]):
            yield from _at(session, running, megabytes)


def _at(session: Session, running: Cluster, megabytes: int) -> Iterator[Measurement]:
    session.say(f"filling {megabytes} MB")
    running.empty()
    plane = running.connect()
    ways = {
        "on": CheckpointConfig(keep=1, cut="full"),
        "off": CheckpointConfig(keep=1, cut="full", rows=False),
    }
    filled = Filled(plane, running.runner, megabytes, ways["on"])
    timings: dict[str, list[SaveTiming]] = {name: [] for name in ways}

    def save(name: str) -> float:
        filled.save_by(ways[name])
        timings[name].append(running.runner.run(filled.save(running.root / name)))
        return 0.0

    session.say(f"saves of {megabytes} MB")
    turns = session.repetitions(9)
    interleave({name: partial(save, name) for name in ways}, turns)
    for time, words in TIMES.items():
        samples = {
            name: [getattr(timing, time) + 1e-6 for timing in found[-turns:]]
            for name, found in timings.items()
        }
        yield compare(
            time,
            samples,
            "on",
            "off",
            what=f"{words}; rows are saved",
            beside="the same save without rows",
            unit="ms",
            scale=1e3,
            at={"megabytes": megabytes},
        )
    running.runner.run(plane.close())
    for name in ways:
        shutil.rmtree(running.root / name)
