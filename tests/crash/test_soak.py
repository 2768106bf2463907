"""Many lives of random kills and resumes; a seed shows one of them again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest

from cutlock.spare_pool import SparePool
from tests.support.soak import Life, live
from tests.support.tally import tally

LIVES = range(8)
KILLS = 1000


def lived(seed: int, work: Path) -> Life:
    work.mkdir()
    life = live(seed, work)
    tally("soak, kills and resumes", len(life.deaths))
    return life


def all_lived(seeds: Iterable[int], work: Path) -> int:
    """How many kills there were."""
    return sum(len(lived(seed, work / f"{seed}").deaths) for seed in seeds)


@pytest.mark.parametrize("seed", LIVES)
def test_a_life_of_random_kills_loses_and_repeats_nothing(ram_path: Path, seed: int) -> None:
    assert lived(seed, ram_path / "life").deaths


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_thousand_random_kills_lose_and_repeat_nothing(ram_path: Path) -> None:
    seeds = itertools.count(LIVES.stop)
    kills = 0
    while kills < KILLS:
        kills += all_lived([next(seeds)], ram_path)


def test_a_seed_gives_the_same_life_again(ram_path: Path) -> None:
    assert lived(LIVES.start, ram_path / "first") == lived(LIVES.start, ram_path / "second")


def test_a_spare_pool_that_is_not_saved_is_noticed(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparePool, "snapshot", lambda pool, cut: ())
    with pytest.raises(AssertionError, match="seed"):
        all_lived(range(40), ram_path)
