"""Processes that kill themselves, forked from one that has everything imported.

    python -m tests.support.crash_server

takes orders on stdin, one JSON object a line: what `act` takes. Each is carried out by a
process of its own, with real threads; its exit code, negative for a signal, is the answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from cutlock.run.directory import RunDirectory
from tests.support import local_runs
from tests.support.crash_runs import RUN, SITUATIONS
from tests.support.file_calls import Call, watching
from tests.support.local_runs import Run

REPOSITORY = Path(__file__).parents[2]


class Killer:
    """Sends SIGKILL to this process instead of making a call.

    Args:
        at: number of the call, from 1.
    """

    def __init__(self, at: int) -> None:
        self._left = at

    def before(self, call: Call) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    def after(self, call: Call) -> None:
        pass


def act(base: str, situation: str | None, at: int | None) -> None:
    """Start a run and bring it to its end, or die.

    Args:
        base: directory of the run directory.
        situation: name of the situation to start; None resumes what is there.
        at: number of the call to die at.
    """
    directory = RunDirectory(Path(base) / RUN)
    started = next((one for one in SITUATIONS if one.name == situation), None)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(local_runs, "InlineExecutor", ThreadPoolExecutor))
        if at is not None:
            stack.enter_context(watching(Path(base), Killer(at)))
        if started is not None and started.new:
            Run.create(directory.root, started.config)
        run = Run(directory)
        stack.enter_context(directory.lock())
        if started is None:
            run.resume()
            return
        run.trouble = started.trouble
        if started.new:
            run.first(started.config)
        else:
            run.resume(run.plan(started.bundle, with_rows=started.with_rows))


class CrashServer:
    """The process that forks; `with` ends it."""

    def __enter__(self) -> CrashServer:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, base: Path, situation: str | None = None, at: int | None = None) -> int:
        """Have a process carry out `act`; returns its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"base": str(base), "situation": situation, "at": at}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def _carry_out(order: str) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act(**json.loads(order))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    for line in sys.stdin:
        print(_carry_out(line), flush=True)
