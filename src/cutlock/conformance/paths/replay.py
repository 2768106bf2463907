"""Walks done on the real code, by several processes, and what came of each.

Walks share nothing but the model: each is a run of its own in a directory of its own.
"""

from __future__ import annotations

import multiprocessing
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from cutlock.bond.coverage import Done, take_walk
from cutlock.bond.walk import INITIAL
from cutlock.bond.walks import Planned
from cutlock.conformance.replay.walk import Foreseen
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.planes import PlaneHost
from cutlock.conformance.stepping.stepper import Stepper
from cutlock.errors import ToolError
from cutlock.tlc.action import ActionCall
from cutlock.tlc.graph import Graph, Node

__all__ = ["Replayers"]

_MEMORY = Path("/dev/shm")
_PIECES = 24  # of the plan for each process: an even load, and progress that can be seen


class _Step(NamedTuple):
    call: ActionCall
    node: Node | None
    """With the state to compare; None if nothing is compared."""


class _Walk(NamedTuple):
    number: int
    steps: list[_Step]
    """The first is the initial state."""


class Replayers:
    """Processes that replay; use it with `with`.

    Args:
        workers: how many; with 1 it is this process.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None
        memory = _MEMORY if _MEMORY.is_dir() else None
        self._folder = tempfile.TemporaryDirectory(prefix="cutlock-paths-", dir=memory)

    def __enter__(self) -> Replayers:
        if self._workers > 1:
            self._pool = ProcessPoolExecutor(
                max_workers=self._workers,
                # A fork would take over threads and the terminal.
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_begin,
            )
            # The first work starts all of them; what they import takes seconds.
            self._pool.submit(int)
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._folder.cleanup()

    def replay(
        self,
        graph: Graph,
        bounds: Bounds,
        plan: Sequence[Planned],
        on_done: Callable[[Done], None],
        host: PlaneHost | None = None,
    ) -> None:
        """Do all walks of a plan.

        Args:
            on_done: told of every walk, in any order.
            host: a store that all walks share, one after another, in this process; None for
                stores in memory.

        Raises:
            ToolError: a process has died.
        """
        folder = Path(self._folder.name)
        if self._pool is None or host is not None:
            for number, planned in enumerate(plan):
                on_done(_replay_walk(_walk(graph, number, planned), bounds, folder, host))
            return
        walks = [_walk(graph, number, planned) for number, planned in enumerate(plan)]
        size = -(-len(walks) // (self._workers * _PIECES)) or 1
        futures = [
            self._pool.submit(_replay_piece, walks[at : at + size], replace(bounds), folder)
            for at in range(0, len(walks), size)
        ]
        try:
            for future in as_completed(futures):
                for done in future.result():
                    on_done(done)
        except BrokenProcessPool as error:
            raise ToolError(
                f"one of {self._workers} processes has died: {error}; try --workers 1"
            ) from error


def _walk(graph: Graph, number: int, planned: Planned) -> _Walk:
    edges = [graph.edges[edge] for edge in planned.path]
    # As they were read, without values: hashes differ from process to process.
    first = _Step(INITIAL, replace(graph.nodes[edges[0].source]))
    rest = [
        _Step(edge.action, replace(graph.nodes[edge.target]) if at in planned.compared else None)
        for at, edge in enumerate(edges)
    ]
    return _Walk(number, [first, *rest])


def _begin() -> None:
    # The tensors are tiny, and an interrupt is for the process that waits.
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _replay_piece(walks: Sequence[_Walk], bounds: Bounds, folder: Path) -> list[Done]:
    return [_replay_walk(walk, bounds, folder) for walk in walks]


def _replay_walk(walk: _Walk, bounds: Bounds, folder: Path, host: PlaneHost | None = None) -> Done:
    """Do one walk to its end or to the first difference, as a run that is then removed."""
    directory = folder / str(walk.number)
    (_, first), *rest = walk.steps
    steps = [(call, None if node is None else node.state) for call, node in rest]
    start = None if first is None else first.state
    try:
        with Stepper(bounds, directory, host=host) as stepper:
            subject = Foreseen(stepper, [call for call, _ in steps])
            return take_walk(walk.number, steps, subject, start=start, explain=subject.explain)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
