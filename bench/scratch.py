"""Room on disk for the time of a measurement."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["scratch"]


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory on the disk that holds temporary files; gone with the block."""
    path = Path(tempfile.mkdtemp(prefix="cutlock-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)
