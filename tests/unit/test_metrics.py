"""Metrics are written whole or left out; the run does not depend on them."""

from __future__ import annotations

import errno
import os
from io import FileIO
from pathlib import Path

import pytest

from cutlock.run import metrics as module
from cutlock.run.directory import RunDirectory
from cutlock.run.metrics import Metrics, TrainedStep, read_metrics
from cutlock.workers.base import StepReport


def trained(step: int) -> TrainedStep:
    return TrainedStep(step, StepReport(0.0, 0.5, 8, 2, 0.0), 0)


def test_a_step_for_which_there_is_no_room_is_left_out_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory(tmp_path)
    directory.log_path(1).parent.mkdir()
    directory.log_path(1).touch()
    metrics = Metrics(tmp_path, 1)
    metrics.write(trained(0))

    def half(file: FileIO, line: bytes) -> None:
        file.write(line[:20])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(module, "_write_all", half)
        metrics.write(trained(1))
    metrics.write(trained(2))
    assert [step.step for step in read_metrics(directory)] == [0, 2]
