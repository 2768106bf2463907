from __future__ import annotations

import asyncio

import pytest

from cutlock.alphabet import Action
from cutlock.errors import PlaneError
from cutlock.events import MemoryLog
from cutlock.run.ending import logged_failure


class FullDisk(MemoryLog):
    def sync(self) -> None:
        raise OSError("no space is left")


def ended(log: MemoryLog, error: BaseException) -> BaseException:
    """What comes out of a block that ends by an error."""
    with pytest.raises(BaseException) as raised, logged_failure(log):  # noqa: PT011
        raise error
    return raised.value


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PlaneError("the store is gone; restart it"), "PlaneError: the store is gone; restart it"),
        (asyncio.CancelledError(), "CancelledError: "),
    ],
)
def test_the_log_ends_with_what_has_ended_the_run(error: BaseException, reason: str) -> None:
    log = MemoryLog()
    assert ended(log, error) is error
    assert [(r.action, r.args) for r in log.records] == [(Action.END_RUN, {"reason": reason})]


def test_of_several_errors_ours_is_the_cause() -> None:
    ours = PlaneError("the store is gone; restart it")
    inner = ExceptionGroup("inner", [ValueError("foreign"), ours])
    group = ExceptionGroup("outer", [KeyError("first"), inner])
    found = ended(MemoryLog(), group)
    assert found is ours
    assert found.__cause__ is group


def test_a_log_that_cannot_be_written_does_not_hide_the_error() -> None:
    error = PlaneError("the store is gone; restart it")
    assert ended(FullDisk(), error) is error


def test_a_block_that_ends_by_itself_records_nothing() -> None:
    log = MemoryLog()
    with logged_failure(log):
        pass
    assert log.records == []
