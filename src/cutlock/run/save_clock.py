"""The limit of one save: all its waits on file system and trainer end when its time is over.

Source: design, promise P10.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar

from cutlock.errors import CutlockError, SaveError, WorkerError
from cutlock.waiting import mark_retrieved, until_any_done

__all__ = ["SaveClock"]

T = TypeVar("T")


class SaveClock:
    """Runs from its making to `stop`, or until the time of the save is over.

    Args:
        limit_s: `checkpoint.limit_s`, seconds for all the work together.
        sleep: of the controller.
    """

    def __init__(self, limit_s: float, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._limit_s = limit_s
        self._over: asyncio.Future[None] = asyncio.ensure_future(sleep(limit_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """The work is over; a second call is no error."""
        self._over.cancel()

    async def in_thread(self, what: str, work: Callable[[], T]) -> T:
        """Run blocking file work, while there is time left.

        The work itself cannot be stopped; what it leaves behind is debris. A cancellation is
        delivered when it has ended: until then it may still publish or prune, and whoever
        resumes the run must not meet it.

        Raises:
            SaveError: the time was over, or is over before the work has ended.
        """
        late = self._late(what, "is the file system reachable, or too slow?")
        if self._over.done():
            raise late
        task: asyncio.Future[T] = asyncio.ensure_future(asyncio.to_thread(work))
        cancelled = await until_any_done(task, self._over)
        if cancelled is not None:
            raise cancelled from task.exception() if task.done() else None
        if not task.done():
            task.add_done_callback(mark_retrieved)
            raise late
        return task.result()

    async def by_trainer(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """Let the trainer do its part, while there is time left.

        Raises:
            SaveError: the time was over, or is over before the trainer has answered.
            WorkerError: the trainer raised something foreign, as the libraries that write
                weights do when the disk is full.
        """
        late = self._late(what, "does the trainer answer?")
        if self._over.done():
            raise late
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:

                def expire(over: asyncio.Future[None]) -> None:
                    with contextlib.suppress(RuntimeError):  # the call has just ended
                        limit.reschedule(loop.time())

                self._over.add_done_callback(expire)
                try:
                    return await call()
                finally:
                    self._over.remove_done_callback(expire)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise late from error
        except (CutlockError, OSError):
            raise
        except Exception as error:
            raise WorkerError(
                f"the trainer failed in {what}: {error!r}; mend what it names, "
                "the next save tries again"
            ) from error

    def _late(self, what: str, question: str) -> SaveError:
        return SaveError(
            f"{what} had not ended {self._limit_s:g} s after the save had begun "
            f"(checkpoint.limit_s); {question}"
        )
