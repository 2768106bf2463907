"""A disk that refuses one operation on one name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cutlock.bundle.files import FileSystem, RealFileSystem


def refusing(operation: str, name: str) -> FileSystem:
    """The real file system, but for `operation` on what is called `name`."""
    fs = RealFileSystem()
    real = getattr(fs, operation)

    def refuse(path: Path, *rest: Any) -> Any:
        if path.name == name:
            raise PermissionError(13, "no access")
        return real(path, *rest)

    setattr(fs, operation, refuse)
    return fs
