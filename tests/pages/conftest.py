from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cutlock.show.command import show_page
from tests.support.chromium import HOW_TO_INSTALL, Browser, find_chromium, started
from tests.support.kept_runs import KEPT
from tests.support.local_runs import Run

TRACES = Path(__file__).parents[2] / "traces"

MakePage = Callable[..., Path]


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in this hook, too
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that looks into a browser runs in one worker: it shares one browser."""
    for item in items:
        if item.get_closest_marker("browser") is not None:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for the whole session."""
    chromium = find_chromium()
    if chromium is None:
        if os.environ.get("CUTLOCK_BROWSER") == "require":
            pytest.fail(f"CUTLOCK_BROWSER=require: {HOW_TO_INSTALL}")
        pytest.skip(HOW_TO_INSTALL)
    with started(chromium) as found:
        yield found


@pytest.fixture(scope="session")
def make_page(tmp_path_factory: pytest.TempPathFactory) -> MakePage:
    """The page of a path, made once."""
    folder = tmp_path_factory.mktemp("pages")
    made: dict[tuple[Path, bool], Path] = {}

    def make(path: Path, *, steps: bool = False) -> Path:
        if (path, steps) not in made:
            target = folder / f"{len(made)}-{path.stem}.html"
            show_page(path, target, {}, steps=steps)
            made[path, steps] = target
        return made[path, steps]

    return make


@pytest.fixture(scope="session")
def fresh_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with narrow saves that was killed and resumed, its bundles included."""
    return KEPT["narrow"].make(tmp_path_factory.mktemp("fresh"))
