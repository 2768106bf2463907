"""The fixtures of the races: a directed run on either plane."""

from __future__ import annotations

from tests.races.conftest import memory_rig, one_thread, root

__all__ = ["memory_rig", "one_thread", "root"]
