from __future__ import annotations

from pathlib import Path

import pytest

from tests.tlc.playback import Player

SPECS = Path(__file__).parent / "specs"


@pytest.fixture
def player(tmp_path: Path) -> Player:
    """A Java that plays recorded outputs."""
    return Player(tmp_path / "player")
