"""Files that ship with cutlock, and where they are.

In a clone they are folders of the repository: `spec/`, `model_check/`, `traces/` and
`examples/`. In an installed package the same folders are inside it, under `_shipped/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["named_file", "names", "shipped"]

_PACKAGE = Path(__file__).parent
_INSTALLED = _PACKAGE / "_shipped"
_ROOT = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parents[1]


def shipped(*parts: str) -> Path:
    """Path of a shipped file or folder, e.g. `shipped("model_check", "manifest.toml")`.

    Read only: an installed package belongs to nobody's run.
    """
    return _ROOT.joinpath(*parts)


def named_file(name: str, folders: Sequence[str], suffix: str = "") -> Path | None:
    """The shipped file or folder of that name, with or without `suffix`; None if there is none.

    Args:
        name: a bare name; a path names nothing that is shipped.
        folders: where it may be, e.g. `traces/runs`.
    """
    if name in {"", ".."} or Path(name).name != name:
        return None
    wanted = f"{name.removesuffix(suffix)}{suffix}", name
    places = [shipped(folder, each) for folder in folders for each in wanted]
    return next((place for place in places if place.exists()), None)


def names(folders: Sequence[str], suffix: str = "") -> list[str]:
    """What `named_file` finds in these folders, by its shortest name, in alphabetical order."""
    found = (path for folder in folders for path in shipped(folder).iterdir())
    return sorted(
        path.name.removesuffix(suffix)
        for path in found
        if path.is_dir() or (suffix and path.name.endswith(suffix))
    )
