"""A save is of the instant of its window, not of the moment at which it was asked for.

The fault that this project is about: an artifact is read, then others are awaited, and meanwhile
the pumps move. Here every change is made after the save has begun and before its window opens.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from cutlock.barrier import Cut
from cutlock.errors import CutlockError
from cutlock.run import cut as cuts
from tests.support.mutations import (
    ADMISSION,
    ADVANCE,
    COMMIT,
    DRAIN,
    FILL,
    MUTATIONS,
    SUBSTITUTE,
    Mutation,
)
from tests.support.rig import Incarnation, Rig


async def save_after(
    rig: Rig, mutation: Mutation, before: Callable[[Incarnation, Cut], object]
) -> tuple[Incarnation, Path]:
    """Begin a real save, make the change, let the window open; return run and bundle.

    Args:
        before: called when the save has begun and the change has not been made.
    """
    rig.configure(**mutation.changes)
    scripts: list[AsyncGenerator[None]] = []

    async def prepare(run: Incarnation) -> None:
        scripts.append(mutation.script(run))
        await anext(scripts[0])

    run = await rig.run_to(1, prepare)
    async with contextlib.aclosing(scripts[0]) as script:
        await anext(script)
        async with run.state.barrier.checkpoint() as cut:
            before(run, cut)
        seen = run.log.count
        await anext(script)
        await run.logged(mutation.action, after=seen)
        run.cut.release()
        return run, await run.published(1)


@pytest.mark.parametrize("mutation", [m for m in MUTATIONS if not m.foreign], ids=str)
async def test_a_change_after_the_request_and_before_the_window_is_in_the_bundle(
    rig: Rig, mutation: Mutation
) -> None:
    run, bundle = await save_after(rig, mutation, lambda run, cut: None)
    rig.check_bundle(bundle)
    await rig.check_resume(run, bundle, lost=mutation.lost)


def _early_cursor(run: Incarnation, cut: Cut, patch: pytest.MonkeyPatch) -> None:
    cursor = run.state.sampler.cursor
    patch.setattr(cuts, "_read_cursor", lambda state, cut: cursor)


def _early(name: str, *more: object) -> Callable[..., None]:
    def read(run: Incarnation, cut: Cut, patch: pytest.MonkeyPatch) -> None:
        owner: Any = getattr(run.state, name)
        value = owner.snapshot(cut, *more)
        patch.setattr(owner, "snapshot", lambda cut, *rest: value)

    return read


EARLY = [
    pytest.param(_early_cursor, ADMISSION, id="cursor"),
    pytest.param(_early("loader"), ADVANCE, id="loader"),
    pytest.param(_early("pool"), FILL, id="pool filled"),
    pytest.param(_early("pool"), DRAIN, id="pool drained"),
    pytest.param(_early("pool"), SUBSTITUTE, id="pool, substitution"),
    pytest.param(_early("buffer"), COMMIT, id="index"),
    pytest.param(_early("ledger", ()), ADVANCE, id="ledger, advance"),
    pytest.param(_early("ledger", ()), ADMISSION, id="ledger, admission"),
    pytest.param(_early("ledger", ()), COMMIT, id="ledger, commit"),
]


@pytest.mark.parametrize(("read", "mutation"), EARLY)
async def test_an_artifact_that_is_read_too_early_is_noticed(
    memory_rig: Rig,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[..., None],
    mutation: Mutation,
) -> None:
    async def save_and_resume() -> None:
        rig = memory_rig
        run, bundle = await save_after(rig, mutation, lambda run, cut: read(run, cut, monkeypatch))
        rig.check_bundle(bundle)
        await rig.check_resume(run, bundle, lost=mutation.lost)

    with pytest.raises((AssertionError, CutlockError)):
        await save_and_resume()
