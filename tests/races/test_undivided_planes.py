"""A plane that has to be left alone while it writes its rows is saved in a full window."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from cutlock.errors import ConfigError
from cutlock.events import read_log
from cutlock.plane.base import DelegatingPlane, Fields, PlaneStamp
from tests.support.local_runs import Run, tiny_config


class Undivided(DelegatingPlane):
    """Takes nothing between the two parts of a snapshot."""

    _writing = False

    @property
    def splits_snapshot(self) -> bool:
        return False

    async def put(self, keys: Sequence[str], fields: Fields) -> None:
        assert not self._writing, f"{keys} are put while rows are written"
        await super().put(keys, fields)

    def clear(self, keys: Sequence[str]) -> Coroutine[Any, Any, None]:
        assert not self._writing, f"{keys} are cleared while rows are written"
        return super().clear(keys)

    async def snapshot_index(self, directory: Path) -> None:
        self._writing = True
        await super().snapshot_index(directory)

    async def snapshot_rows(self, directory: Path, stamp: PlaneStamp) -> None:
        await super().snapshot_rows(directory, stamp)
        self._writing = False


def cut_of_the_last_start(run: Run) -> object:
    (log,) = [*run.directory.logs().values()][-1:]
    return next(read_log(log)).args["cut"]


@pytest.mark.parametrize("cut", [None, "full"])
def test_a_plane_that_has_to_be_left_alone_gets_its_window_without_being_asked_for(
    ram_path: Path, cut: str | None
) -> None:
    config = tiny_config(checkpoint={"cut": cut})
    run = Run.create(ram_path / "run", config)
    run.in_front = Undivided
    run.first(config)
    assert cut_of_the_last_start(run) == "full"
    assert run.audit().ok


def test_a_plane_that_need_not_be_left_alone_is_cut_narrowly(ram_path: Path) -> None:
    config = tiny_config(checkpoint={"cut": None})
    run = Run.create(ram_path / "run", config)
    run.first(config)
    assert cut_of_the_last_start(run) == "narrow"
    assert run.audit().ok


def test_a_narrow_cut_that_is_asked_for_is_refused_before_anything_has_begun(
    ram_path: Path,
) -> None:
    config = tiny_config(checkpoint={"cut": "narrow"})
    run = Run.create(ram_path / "run", config)
    run.in_front = Undivided
    with pytest.raises(ConfigError, match=r"cut = 'narrow'.*'memory'.*leave checkpoint.cut out"):
        run.first(config)
    assert [*read_log(run.directory.log_path(1))] == []


def test_a_resume_on_the_other_kind_of_plane_goes_on_in_the_way_that_it_bears(
    ram_path: Path,
) -> None:
    config = tiny_config(checkpoint={"cut": None}, max_steps=2)
    run = Run.create(ram_path / "run", config)
    run.first(config)
    run.in_front = Undivided
    run.resume(run.plan(config=tiny_config(checkpoint={"cut": None})))
    assert cut_of_the_last_start(run) == "full"
    assert run.audit().ok
