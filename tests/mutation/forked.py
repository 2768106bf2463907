"""A pytest plugin: the tests are collected once, and every mutant gets a fork of that process.

mutmut's own loop starts pytest anew for every mutant. Here a mutant costs a fork and the tests
up to the first that fails, which makes some thousands of mutants a matter of minutes. Before
the first mutant, a fork runs all tests on the unchanged code and notes which functions each of
them enters and how long it takes: a mutant is tried with the tests that enter its function,
first those that have killed its neighbours, then the shortest.

The parent runs no test, so that every mutant starts from the same state.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import hypothesis
import pytest
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state
from mutmut.utils.format_utils import mangled_name_from_mutant_name

from tests.mutation.results import Outcome, read, write

WANTED = "wanted.json"
"""Written by the command: the mutants to be tried, each with the digest of its function."""
MEASURED = "measured.json"
"""Kept between runs: what the tests do on the unchanged code."""
RESULTS = "CUTLOCK_MUTATION_RESULTS"
"""Names, in the environment, the file that what became of the mutants is added to."""

PATIENCE = 15.0
"""Seconds that a test may take before its mutant counts as one that hangs, ..."""
SLOWER = 20.0
"""... or this many times as long as it takes on the unchanged code, if that is more."""

# A failure need not be simplified, and must not depend on what an earlier mutant has left.
hypothesis.settings.register_profile(
    "mutation",
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    database=None,
    derandomize=True,
    deadline=None,
    print_blob=False,
)
hypothesis.settings.load_profile("mutation")


@dataclass(frozen=True)
class Measured:
    """One test on the unchanged code."""

    seconds: float
    functions: list[str]
    """Those that it enters, as mutmut writes their names."""


class Marks:
    """What a fork sends: all of it, or one byte at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __iter__(self) -> Iterator[bytes]:
        while data := os.read(self._descriptor, 1 << 16):
            yield data

    def within(self, seconds: float) -> bytes | None:
        """The next byte; empty if the fork has ended, None if there is none in time."""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        return os.read(self._descriptor, 1) if ready else None


class Forked:
    """Takes the place of pytest's own loop over the tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._failed = False
        self._following: pytest.Item | None = None
        self._kills: dict[str, Counter[str]] = defaultdict(Counter)
        """By function and by module; a test that hung counts against itself."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise pytest.UsageError("the tests cannot be collected")
        tests = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()
        measured = self._measure(tests)
        wanted: dict[str, str] = json.loads(Path(WANTED).read_text())
        path = Path(os.environ[RESULTS])
        results = read(path)
        for count, (mutant, digest) in enumerate(wanted.items(), 1):
            status, by = self._try(mutant, tests, measured)
            results[mutant] = Outcome(status, by, digest)
            _say(f"{count}/{len(wanted)} {status:8} {mutant}")
            if count % 20 == 0 or count == len(wanted):
                write(results, path)
        return True

    def _measure(self, tests: dict[str, pytest.Item]) -> dict[str, Measured]:
        kept = json.loads(Path(MEASURED).read_text()) if Path(MEASURED).exists() else {}
        measured = {name: Measured(**values) for name, values in kept.items()}
        missing = [item for name, item in tests.items() if name not in measured]
        _say(f"{len(missing)} tests on the unchanged code")

        def one(item: pytest.Item) -> bytes:
            started = time.perf_counter()
            self._run(item)
            note = Measured(time.perf_counter() - started, sorted(state()._stats))
            state()._stats.clear()
            return json.dumps([item.nodeid, self._failed, asdict(note)]).encode() + b"\n"

        with self._fork("stats", missing, one) as (_, marks):
            for line in b"".join(marks).splitlines():
                name, failed, values = json.loads(line)
                if failed:
                    raise pytest.UsageError(f"{name} fails on the unchanged code")
                measured[name] = Measured(**values)
        Path(MEASURED).write_text(json.dumps({n: asdict(m) for n, m in measured.items()}))
        return measured

    def _try(
        self, mutant: str, tests: dict[str, pytest.Item], measured: dict[str, Measured]
    ) -> tuple[str, str]:
        function = mangled_name_from_mutant_name(mutant)
        here, near = self._kills[function], self._kills[function.rpartition(".")[0]]
        names = sorted(
            (name for name in tests if function in measured[name].functions),
            key=lambda name: (-here[name], -near[name], measured[name].seconds),
        )

        def one(item: pytest.Item) -> bytes:
            self._run(item)
            return b"x" if self._failed else b"."

        with self._fork(mutant, [tests[name] for name in names], one) as (pid, marks):
            for name in names:
                mark = marks.within(max(PATIENCE, SLOWER * measured[name].seconds))
                if mark == b".":
                    continue
                if mark is None:
                    os.kill(pid, signal.SIGKILL)
                for counter in (here, near):
                    counter[name] += -1 if mark is None else 1
                return "hung" if mark is None else "killed", name
        return "survived" if names else "untested", ""

    def _run(self, item: pytest.Item) -> None:
        try:
            hook = item.config.hook
            hook.pytest_runtest_protocol(item=item, nextitem=self._following)
        except BaseException:
            self._failed = True

    @contextmanager
    def _fork(
        self, mutant: str, items: Sequence[pytest.Item], one: Callable[[pytest.Item], bytes]
    ) -> Iterator[tuple[int, Marks]]:
        """Run `items` up to a failure with `mutant` switched in; `one` gives what to send."""
        reading, writing = os.pipe()
        memory = Path("/dev/shm")
        folder = tempfile.mkdtemp(dir=memory if memory.is_dir() else None)
        pid = os.fork()
        if pid == 0:
            try:
                set_mutant_under_test(mutant)
                self._in_the_fork(items, one, writing, Path(folder))
            finally:
                os._exit(0)
        os.close(writing)
        try:
            yield pid, Marks(reading)
        finally:
            os.close(reading)
            os.waitpid(pid, 0)
            shutil.rmtree(folder, ignore_errors=True)

    def _in_the_fork(
        self,
        items: Sequence[pytest.Item],
        one: Callable[[pytest.Item], bytes],
        writing: int,
        folder: Path,
    ) -> None:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        self._config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        for item, self._following in zip(items, [*items[1:], None], strict=True):
            os.write(writing, one(item))
            if self._failed:
                item.session._setupstate.teardown_exact(None)
                break


def _say(text: str) -> None:
    print(text, file=sys.__stdout__, flush=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Forked(config))
