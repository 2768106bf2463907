"""What the driver is told of a controller that it has given up."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cutlock.run.config import RunConfig


class _Method:
    """A method of an actor that answers when the test says so; stands for `ActorMethod`."""

    def __init__(self) -> None:
        self.answer: Future[Any] = Future()
        self.called = asyncio.Event()

    def remote(self, *arguments: object) -> SimpleNamespace:
        self.called.set()
        return SimpleNamespace(future=lambda: self.answer)


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["run", "status"])
async def test_who_gives_up_waiting_is_not_told_of_the_end_of_the_controller(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Imported here: it takes seconds.
    import ray.exceptions

    from cutlock.controller import setup

    monkeypatch.setattr(setup, "_STATUS_PERIOD_S", 0.0)
    reports: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reports.append(context))
    actor = SimpleNamespace(run=_Method(), status=_Method())
    arguments = cast(Any, SimpleNamespace(config=RunConfig(), root=Path("run")))
    controller = setup.SingleController(cast(Any, actor), arguments, lambda stage, status: None)
    running = asyncio.create_task(controller.run())
    await getattr(actor, asked).called.wait()
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})
    for method in (actor.run, actor.status):
        if not method.answer.cancelled():
            method.answer.set_exception(ray.exceptions.ActorDiedError())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del running, method, actor, controller, arguments
    gc.collect()
    assert reports == []
