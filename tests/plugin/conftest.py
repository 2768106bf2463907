from __future__ import annotations

import pytest

from tests.support.lock_example import Example, lock_example


@pytest.fixture(scope="session")
def example() -> Example:
    return lock_example()
