"""Starts TLC, follows it, and stops it in time."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cutlock.errors import ToolError
from cutlock.tlc.jar import Jar, find_jar
from cutlock.tlc.java import Java, find_java
from cutlock.tlc.outcome import Outcome, Progress
from cutlock.tlc.output import OutputReader

__all__ = ["GRAPH_FILE", "Job", "Simulation", "Toolchain", "find_toolchain"]

GRAPH_FILE = "graph.dot"
_WORK = "@work@"  # stands for the run's private folder until there is one


@dataclass(frozen=True)
class Simulation:
    """Random walks instead of a search."""

    walks: int
    depth: int
    """Steps of a walk."""
    seed: int = 0


@dataclass(frozen=True)
class Job:
    """One run of TLC.

    `module` is the `.tla` file; TLC runs in its folder. `libraries` are more folders with
    modules. `tiny` trades speed in the long run for a quicker start.
    """

    module: Path
    config: Path
    workers: int = 1
    deadlock: bool = True
    """Whether a state without a successor is an error."""
    coverage: bool = False
    simulation: Simulation | None = None
    dump: bool = False
    """Whether to write the state graph, to `GRAPH_FILE` in the run's private folder."""
    libraries: tuple[Path, ...] = ()
    heap: str = "2g"
    tiny: bool = False
    limit_s: float = 600.0


@dataclass(frozen=True)
class Toolchain:
    """A Java and a TLC that go together."""

    java: Java
    jar: Jar

    def command(self, job: Job) -> str:
        """The job as a line for a shell; it makes its own private folder."""
        words = (shlex.quote(word) for word in self._arguments(job))
        line = " ".join(words).replace(shlex.quote(_WORK), '"$work"').replace(_WORK, "$work")
        return f"cd {shlex.quote(str(_folder(job)))} && work=$(mktemp -d) && {line}"

    def run(
        self,
        job: Job,
        on_progress: Callable[[Progress], None] | None = None,
        work: Path | None = None,
    ) -> Outcome:
        """Run the job to its end, or kill its process group at its limit.

        Args:
            on_progress: told what TLC reports, about once a minute.
            work: the run's private folder, empty; a temporary one if left out.

        Raises:
            ToolError: Java cannot be started.
        """
        if work is None:
            with tempfile.TemporaryDirectory(prefix="cutlock-tlc-") as made:
                return self.run(job, on_progress, Path(made))
        reader = OutputReader()
        arguments = [word.replace(_WORK, str(work.absolute())) for word in self._arguments(job)]
        began = time.monotonic()
        exit_code = _follow(arguments, _folder(job), job.limit_s, reader, on_progress)
        seconds = time.monotonic() - began
        return reader.outcome(exit_code, seconds, simulated=job.simulation is not None)

    def _arguments(self, job: Job) -> list[str]:
        # Two runs share nothing: TLC unpacks its modules into the temporary folder, and names
        # the folder of its states by the second. The language decides how it writes numbers,
        # the fingerprint function the order of what it finds.
        arguments = [str(self.java.path), f"-Xmx{job.heap}"]
        arguments += (
            ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"] if job.tiny else ["-XX:+UseParallelGC"]
        )
        arguments += [f"-Djava.io.tmpdir={_WORK}", "-Duser.language=en", "-Duser.country=US"]
        # TLC 2.15 writes its other queue in a thread that reads values while workers change
        # them: a run then ends with an internal error once in a while.
        arguments.append("-Dtlc2.tool.ModelChecker.BAQueue=true")
        if job.libraries:
            folders = os.pathsep.join(str(folder.absolute()) for folder in job.libraries)
            arguments.append(f"-DTLA-Library={folders}")
        arguments += ["-cp", str(self.jar.path), "tlc2.TLC", "-tool"]
        arguments += ["-workers", str(job.workers), "-metadir", f"{_WORK}/states", "-fp", "0"]
        # Otherwise liveness is checked now and then as well, by the clock: a slow machine would
        # find another counterexample, in what is known of the graph until then.
        arguments += ["-lncheck", "final"]
        # TLC 2.15 does not find a configuration by an absolute path.
        arguments += ["-config", os.path.relpath(job.config.resolve(), _folder(job))]
        if job.coverage:
            arguments += ["-coverage", "1"]
        if not job.deadlock:
            arguments.append("-deadlock")
        if job.dump:
            arguments += ["-dump", "dot,actionlabels", f"{_WORK}/{GRAPH_FILE}"]
        if job.simulation is not None:
            walks = job.simulation
            arguments += ["-simulate", f"num={walks.walks}", "-depth", str(walks.depth)]
            arguments += ["-seed", str(walks.seed)]
        return [*arguments, job.module.stem]


def find_toolchain(jar: Path | None = None) -> Toolchain:
    """Find Java and the jar; see `find_java` and `find_jar`.

    Raises:
        ToolMissingError: one of them is missing.
    """
    return Toolchain(find_java(), find_jar(jar))


def _folder(job: Job) -> Path:
    return job.module.resolve().parent  # TLC follows `..` of a real folder only


def _follow(
    arguments: list[str],
    folder: Path,
    limit_s: float,
    reader: OutputReader,
    on_progress: Callable[[Progress], None] | None,
) -> int | None:
    """Exit code, or None if the limit came first."""
    process: subprocess.Popen[str] | None = None
    late = threading.Event()

    def stop() -> None:
        late.set()
        if process is not None:
            _kill_group(process)

    timer = threading.Timer(limit_s, stop)
    timer.daemon = True
    with contextlib.ExitStack() as stack:
        try:
            with _interrupts_wait():
                process = stack.enter_context(_start(arguments, folder))
            timer.start()
            assert process.stdout is not None
            shown = None
            for line in process.stdout:
                reader.feed(line)
                progress = reader.progress
                if on_progress is not None and progress is not None and progress is not shown:
                    shown = progress
                    on_progress(progress)
        except BaseException:
            if process is not None:
                _kill_group(process)
            raise
        finally:
            timer.cancel()
    return None if late.is_set() else process.returncode


def _start(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            arguments,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ToolError(
            f"{arguments[0]} cannot be started in {folder}: {error}; "
            "`cutlock doctor` says which Java is used"
        ) from error


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Ctrl-C comes at the end of the block: a process that nobody knows of would go on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: waiting.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if waiting.is_set():
            signal.raise_signal(signal.SIGINT)


def _kill_group(process: subprocess.Popen[str]) -> None:
    """Kill the process and all that it started; the group is there until it is waited for."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
