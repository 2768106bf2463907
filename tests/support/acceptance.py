"""Whether the specification takes the logs of a run."""

from __future__ import annotations

from pathlib import Path

from cutlock.conformance.validation.logs import read_run, validate
from cutlock.run.directory import RunDirectory
from cutlock.tlc.run import find_toolchain

SPEC = Path(__file__).parents[2] / "spec"


def assert_accepted(*directories: RunDirectory) -> None:
    """Every run is a behaviour of the specification, over all its starts."""
    runs = [read_run(directory) for directory in directories]
    refused = [found.refusal for found in validate(find_toolchain(), SPEC, runs) if not found.ok]
    assert refused == []
