from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cutlock.plane.loopback import keep_ray_on_loopback
from cutlock.tlc.run import Toolchain, find_toolchain
from tests.support.installed import Installed, install_wheel
from tests.support.seconds import Seconds
from tests.support.tally import TALLIES

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # What a shell starts in the background is deaf to Ctrl-C; the tests of it hear it there too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:
    from tests.support.real_plane import RealCluster

# Before any test module imports ray.
keep_ray_on_loopback()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--suites", type=Path, help="write the list of suites into this page")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Seconds(config.getoption("--suites")), "seconds")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in this hook, too
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that is real runs in one worker: it shares one Ray."""
    for item in items:
        if item.get_closest_marker("real") is not None:
            item.add_marker(pytest.mark.xdist_group("real"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker: hand the tallies over."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["tallies"] = dict(TALLIES)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended; one that died has handed nothing over."""
    TALLIES.update(getattr(node, "workeroutput", {}).get("tallies", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, count in sorted(TALLIES.items()):
        terminalreporter.write_line(f"{name}: {count}")


@pytest.fixture(scope="session")
def real_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """One Ray for the whole session; its TransferQueue starts when a test needs it."""
    from tests.support.real_plane import RealCluster

    cluster = RealCluster(tmp_path_factory.mktemp("untouched"))
    try:
        yield cluster
    finally:
        cluster.shut_down()


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """The real Java and the real TLC."""
    return find_toolchain()


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel, built once and installed outside the source tree."""
    base = tmp_path_factory.getbasetemp()
    # The workers of pytest-xdist have a folder each, inside the one that they share.
    return install_wheel(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture
def ram_path() -> Iterator[Path]:
    """As `tmp_path`, in memory where that can be: for what makes and syncs many files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        yield Path(made)
