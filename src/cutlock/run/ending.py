"""How a run that fails ends its log, and which of several errors it ends with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cutlock.alphabet import Action
from cutlock.errors import CutlockError
from cutlock.events import Events

__all__ = ["logged_failure"]


@contextlib.contextmanager
def logged_failure(events: Events) -> Iterator[None]:
    """Record what ends the block by an error, and raise the one cause of a group of errors.

    Source: spec action `EndRun`.
    """
    try:
        yield
    except BaseException as error:
        cause = _first_error(error)
        events.record(Action.END_RUN, reason=f"{type(cause).__name__}: {cause}")
        # A log that cannot be written ends earlier than the run; its error is not this one.
        with contextlib.suppress(OSError):
            events.sync()
        if cause is error:
            raise
        raise cause from error


def _first_error(error: BaseException) -> BaseException:
    """The first error of ours in a group, else the first of any kind."""
    leaves = _leaves(error)
    return next((leaf for leaf in leaves if isinstance(leaf, CutlockError)), leaves[0])


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
