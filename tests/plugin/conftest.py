from __future__ import annotations

import pytest

from tests.support.lock_example import Example, lock_example
from tests.support.outside_project import OutsideProject


@pytest.fixture(scope="session")
def example() -> Example:
    return lock_example()


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> OutsideProject:
    """Needs `pytest_plugins = ["pytester"]` in the module of the test."""
    return OutsideProject(pytester, monkeypatch)
