from __future__ import annotations

from pathlib import Path

import pytest

from cutlock.tlc.run import Toolchain, find_toolchain
from tests.tlc.playback import Player

SPECS = Path(__file__).parent / "specs"


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """The real one."""
    return find_toolchain()


@pytest.fixture
def player(tmp_path: Path) -> Player:
    """A Java that plays recorded outputs."""
    return Player(tmp_path / "player")
