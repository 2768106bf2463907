"""The example of another protocol, as modules and as a folder outside this repository."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, NamedTuple

import cutlock
from cutlock.bond import Bond

__all__ = ["LOCK_FOLDER", "Example", "lock_example"]

LOCK_FOLDER = Path(cutlock.__file__).parents[2] / "examples" / "lock"
_MODULES = ("lock", "bond", "crowd")


class Example(NamedTuple):
    """What the modules of the example hold."""

    lock: Any
    bond: Any
    crowd: Any

    @property
    def bound(self) -> Bond[Any]:
        """The bond of the lock."""
        found = self.bond.LOCK
        assert isinstance(found, Bond)
        return found


def lock_example() -> Example:
    """The example; its modules have common names, so they are not left to be found."""
    sys.path.insert(0, str(LOCK_FOLDER))
    try:
        return Example(*map(importlib.import_module, _MODULES))
    finally:
        sys.path.remove(str(LOCK_FOLDER))
        for name in _MODULES:
            sys.modules.pop(name, None)
