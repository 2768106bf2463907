"""Work that is spread over processes, which are started once and used again."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from cutlock.errors import ToolError

__all__ = ["Processes"]

T = TypeVar("T")
R = TypeVar("R")

_PIECES = 24  # of the work for each process: an even load, and progress that can be seen


def _nothing() -> None:
    """Need no preparation."""


class Processes:
    """Workers; use it with `with`.

    Args:
        count: how many; with 1 it is this process.
        prepare: called first in each of them, unless it is this process.
    """

    def __init__(self, count: int = 1, prepare: Callable[[], None] = _nothing) -> None:
        self._count = count
        self._prepare = prepare
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Processes:
        if self._count > 1:
            self._pool = ProcessPoolExecutor(
                max_workers=self._count,
                # A fork would take over threads and the terminal.
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_begin,
                initargs=(self._prepare,),
            )
            # The first work starts all of them; what they import takes seconds.
            self._pool.submit(int)
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def do(self, work: Callable[[T], R], items: Sequence[T], on_done: Callable[[R], None]) -> None:
        """Do the work on each item.

        Args:
            work: can be pickled if there are several processes, and so can items and results.
            on_done: told of every result, in any order.

        Raises:
            ToolError: a process has died.
        """
        if self._pool is None:
            for item in items:
                on_done(work(item))
            return
        size = -(-len(items) // (self._count * _PIECES)) or 1
        futures = [
            self._pool.submit(_piece, work, items[at : at + size])
            for at in range(0, len(items), size)
        ]
        try:
            for future in as_completed(futures):
                for done in future.result():
                    on_done(done)
        except BrokenProcessPool as error:
            raise ToolError(
                f"one of {self._count} processes has died: {error}; try --workers 1"
            ) from error


def _begin(prepare: Callable[[], None]) -> None:
    # An interrupt is for the process that waits.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare()


def _piece(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    return [work(item) for item in items]
