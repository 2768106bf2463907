"""What a run directory holds when a program comes to it: nothing, or a run to go on with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from cutlock.bundle.publication import scan
from cutlock.errors import BundleNotFoundError
from cutlock.plane.base import READABLE_VERSIONS
from cutlock.run.config import RunConfig
from cutlock.run.directory import RunDirectory
from cutlock.run.restore import ResumePlan, verify_for_resume
from cutlock.workers.base import PromptSet

__all__ = ["open_directory"]


def open_directory(
    root: Path,
    config: RunConfig,
    prompts: PromptSet,
    *,
    bundle: str | None = None,
    with_rows: bool = True,
    readable: Mapping[str, Collection[str]] = READABLE_VERSIONS,
) -> tuple[RunDirectory, ResumePlan | None]:
    """Begin a run in a new or empty directory, or make the plan of going on with the one there.

    A run that was killed before its first bundle has trained nothing: it begins again.

    Args:
        bundle: name of the bundle to go on from, e.g. `step_8`; None for the latest.
        with_rows, readable: see `verify_for_resume`.

    Raises:
        ConfigError: the directory holds something else, or another process runs the run.
        BundleNotFoundError: there is no bundle of that name.
        CutlockError: what `verify_for_resume` refuses.
    """
    directory = RunDirectory(root)
    if not (directory.root / "run.json").exists():
        directory.create(config, prompts)
    else:
        directory.require_idle()
    found = {path.name: path for path in _bundles(directory)}
    name = bundle or next(reversed(found), None)
    if name is None:
        return directory, None
    if name not in found:
        raise BundleNotFoundError(
            f"{directory.root} has no resolvable bundle {name!r}; there are: "
            f"{', '.join(found) or 'none'}"
        )
    plan = verify_for_resume(
        found[name], lambda _: prompts, config, with_rows=with_rows, readable=readable
    )
    return directory, plan


def _bundles(directory: RunDirectory) -> list[Path]:
    """Resolvable ones, the oldest first."""
    return [bundle.path for bundle in scan(directory.root, directory.facts().run_id).bundles]
