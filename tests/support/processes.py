"""`cutlock` as users start it, in a process of its own, and the processes of its Ray."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path


class Cutlock:
    """One command that runs; `with` ends it at the latest.

    Args:
        output: where stdout and stderr go, a new directory.
    """

    def __init__(self, output: Path, *arguments: object) -> None:
        self.arguments = [*map(str, arguments)]
        output.mkdir()
        self._files = [output / "stdout", output / "stderr"]
        with self._files[0].open("wb") as stdout, self._files[1].open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cutlock", *self.arguments], stdout=stdout, stderr=stderr
            )

    def __enter__(self) -> Cutlock:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()

    @property
    def stdout(self) -> str:
        return self._files[0].read_text()

    @property
    def stderr(self) -> str:
        return self._files[1].read_text()

    def ends(self, *, code: int, limit_s: float = 240.0) -> None:
        """Wait for the end, which has to be this one."""
        self.process.wait(limit_s)
        assert self.process.returncode == code, self.stdout + self.stderr
        assert "Traceback" not in self.stderr

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something on disk; the end of the process is a failure."""
        while not holds():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
            assert self.process.poll() is None, self.stdout + self.stderr

    def kill(self, actor: str) -> None:
        """SIGKILL one of the Ray actors of that class."""
        for process in _descendants(self.process.pid):
            if f"ray::{actor}" in _command(process):
                os.kill(process, signal.SIGKILL)
                return
        raise AssertionError(f"no {actor} runs under `cutlock {' '.join(self.arguments)}`")


def _descendants(ancestor: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and ancestor in _ancestors(int(entry.name)):
            yield int(entry.name)


def _ancestors(process: int) -> Iterator[int]:
    while process > 1:
        try:
            stat = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return
        process = int(stat.rpartition(")")[2].split()[1])
        yield process


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
