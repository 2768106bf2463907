"""cutlock as a user has it: the wheel, in a virtual environment of its own.

The environment sees the packages of the one that the tests run in, but for cutlock itself: a
line of a `.pth` file adds a folder to the path and does not read the `.pth` files in it, which
is how an editable cutlock is found.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]

_HIDDEN = ("PYTHON", "PYTEST", "COV_", "RAY_", "TQ_", "CUTLOCK_", "VIRTUAL_ENV")
"""What the environment of the tests has and that of a user has not."""


class Installed:
    """An installed wheel."""

    def __init__(self, environment: Path, distributions: Path) -> None:
        self.environment = environment
        self.python = environment / "bin" / "python"
        self.distributions = distributions
        """Folder of the wheel and of the source distribution that it was built from."""

    def script(self, path: object, *arguments: object, cwd: Path) -> str:
        """Run a program of a user's, to whom a warning is an error; return what it has printed.

        Not by PYTHONWARNINGS, which the processes that Ray starts would heed too.
        """
        return self.run(self.python, "-W", "error", path, *arguments, cwd=cwd)

    def cutlock(self, *arguments: object, cwd: Path, code: int = 0) -> str:
        """Run a command of the installed `cutlock`; return what it has printed."""
        return self.run(self.environment / "bin" / "cutlock", *arguments, cwd=cwd, code=code)

    def run(
        self,
        *command: object,
        cwd: Path,
        code: int = 0,
        extra: Mapping[str, str] | None = None,
    ) -> str:
        """Run a command as a user would, in a folder; return its output, stderr included.

        Args:
            code: that it has to end with.
            extra: environment variables.
        """
        with subprocess.Popen(
            [*map(str, command)],
            cwd=cwd,
            env={**_environment(), **(extra or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as started:
            try:
                said, _ = started.communicate()
            except BaseException:
                # Whatever it has started goes with it.
                os.killpg(started.pid, signal.SIGKILL)
                raise
        assert started.returncode == code, said
        return said


def install_wheel(shared: Path) -> Installed:
    """Build and install once for all processes that share the folder."""
    with (shared / "installed.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        distributions, environment = shared / "distributions", shared / "installed"
        ready = shared / "installed.ready"
        installed = Installed(environment, distributions)
        if not ready.exists():
            _build(distributions)
            _install(installed)
            ready.touch()
    return installed


def _build(distributions: Path) -> None:
    # The wheel is built from the source distribution, so that this one is seen to be complete.
    _call(sys.executable, "-m", "build", "--no-isolation", "--outdir", distributions, ROOT)


def _install(installed: Installed) -> None:
    venv.create(installed.environment, with_pip=False, symlinks=True)
    (wheel,) = installed.distributions.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", installed.python, "install", "--quiet"]
    _call(*pip, "--no-deps", "--no-index", "--no-compile", wheel)
    paths = {"base": str(installed.environment), "platbase": str(installed.environment)}
    site = Path(sysconfig.get_path("purelib", vars=paths))
    (site / "parent.pth").write_text(f"{sysconfig.get_path('purelib')}\n")


def _call(*command: object) -> None:
    ended = subprocess.run(
        [*map(str, command)],
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_HIDDEN)}
    return {**kept, "COLUMNS": "80"}
