"""Metrics of a run: one line per training step, for plots; nothing depends on them.

Where they cannot be written, e.g. on a full disk, they are left out and the run goes on.
"""

from __future__ import annotations

import contextlib
from io import RawIOBase
from pathlib import Path

import msgspec

from cutlock.run.directory import RunDirectory
from cutlock.workers.base import StepReport

__all__ = ["Metrics", "TrainedStep", "read_metrics"]


class TrainedStep(msgspec.Struct, frozen=True):
    """One step as the run saw it."""

    step: int
    report: StepReport
    staleness_max: int
    """Greatest difference between trainer version and a group's start weight."""


class Metrics:
    """Appends the steps of one incarnation to its file."""

    def __init__(self, root: Path, incarnation: int) -> None:
        self._path = root / "metrics" / f"incarnation-{incarnation}.ndjson"

    def write(self, step: TrainedStep) -> None:
        """Append one line, whole or not at all."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab", buffering=0) as file:
                size = file.tell()
                try:
                    _write_all(file, msgspec.json.encode(step) + b"\n")
                except OSError:
                    file.truncate(size)
                    raise


def _write_all(file: RawIOBase, line: bytes) -> None:
    while line:
        line = line[file.write(line) :]


def read_metrics(directory: RunDirectory) -> list[TrainedStep]:
    """The steps of a run in order; of a step that was trained again, the last time."""
    steps: dict[int, TrainedStep] = {}
    for incarnation in directory.logs():
        path = directory.root / "metrics" / f"incarnation-{incarnation}.ndjson"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        for line in lines:
            if line.endswith(b"\n"):
                step = msgspec.json.decode(line, type=TrainedStep)
                steps[step.step] = step
    return [steps[number] for number in sorted(steps)]
