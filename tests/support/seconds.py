"""What tests take: a list of suites with their seconds, and slow tests that are not marked so.

A test is slow if its body takes more than `SLOW_S` of processor time, its own and that of the
processes it started and waited for. Processor time, because a busy machine stretches the wall's.
Tests of a real Ray spend theirs in other processes and are marked `real` instead.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SLOW_S = 1.0
NAMED_S = 2 * SLOW_S
"""An unmarked test above this is named at the end of the run."""
FAILED_S = 40 * SLOW_S
"""An unmarked test above this fails the run."""

MARKED = {"slow", "real", "tlc", "browser", "long"}
BEGIN, END = "<!-- suites: written by `make suites` -->\n", "<!-- end of suites -->"


class Seconds:
    """Collects what each test took, in the process that reports them."""

    def __init__(self, page: Path | None = None) -> None:
        if page is not None:
            with_table(page.read_text(), "")  # better now than after the run
        self.page = page
        self.tests: Counter[str] = Counter()
        self.wall: Counter[str] = Counter()
        self.processor: Counter[str] = Counter()
        self.unmarked: dict[str, float] = {}
        self._at = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self._at = _processor_s()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report = yield
        now = _processor_s()
        # pytest-xdist hands attributes of a report over as they are.
        report.processor_s = now - self._at
        self._at = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        suite = report.nodeid.split("/")[1] if "/" in report.nodeid else report.nodeid
        processor_s: float = getattr(report, "processor_s", 0.0)
        self.wall[suite] += report.duration
        self.processor[suite] += processor_s
        if report.when == "call":
            self.tests[suite] += 1
            if processor_s > NAMED_S and not MARKED & set(report.keywords):
                self.unmarked[report.nodeid] = processor_s

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return
        if any(seconds > FAILED_S for seconds in self.unmarked.values()):
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        if self.page is not None:
            self.page.write_text(with_table(self.page.read_text(), self.table()))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test, seconds in sorted(self.unmarked.items(), key=lambda found: -found[1]):
            verdict = "fails the run" if seconds > FAILED_S else "is not marked slow"
            terminalreporter.write_line(f"{seconds:.1f} s of processor time {verdict}: {test}")

    def table(self) -> str:
        """One line per folder, in Markdown; the folder that took longest comes first."""
        rows = [
            f"| `{suite}/` | {self.tests[suite]:,} | {wall:.0f} | {self.processor[suite]:.0f} |"
            for suite, wall in self.wall.most_common()
        ]
        total = (
            f"| all | {self.tests.total():,} | {sum(self.wall.values()):.0f} "
            f"| {sum(self.processor.values()):.0f} |"
        )
        head = ["| suite | tests | seconds | of processor |", "| --- | ---: | ---: | ---: |"]
        return "\n".join([*head, *rows, total, ""])


def with_table(page: str, table: str) -> str:
    """`page` with `table` between its two markers."""
    found = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    if len(found.findall(page)) != 1:
        raise ValueError(f"the page needs the lines {BEGIN!r} and {END!r}, once each")
    return found.sub(lambda _: BEGIN + table + END, page)


def _processor_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
