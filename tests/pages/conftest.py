from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cutlock.cli.show import show_page
from tests.support.chromium import Browser, require_chromium, started
from tests.support.kept_runs import KEPT
from tests.support.local_runs import Run

MakePage = Callable[..., Path]
"""Makes the page of a path; `steps=True` for the steps of a run."""


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in this hook, too
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that looks into a browser runs in one worker: it shares one browser."""
    for item in items:
        if item.get_closest_marker("browser") is not None:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for the whole session."""
    with started(require_chromium()) as found:
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
