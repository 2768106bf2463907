"""Stand-ins for Java: programs that play recorded outputs of TLC."""

from __future__ import annotations

import shlex
import zipfile
from pathlib import Path

from cutlock.tlc.jar import Jar
from cutlock.tlc.java import Java
from cutlock.tlc.outcome import Outcome
from cutlock.tlc.output import read_output
from cutlock.tlc.run import Toolchain

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> tuple[int, list[str]]:
    """Exit code and lines of a recorded output."""
    first, *lines = (RECORDED / f"{name}.txt").read_text().splitlines(keepends=True)
    return int(first.removeprefix("exit ")), lines


def outcome_of(name: str, simulated: bool = False) -> Outcome:
    exit_code, lines = recorded(name)
    return read_output(lines, exit_code, simulated=simulated)


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def java_program(path: Path, version: str = "17.0.15", exit_code: int = 0) -> Path:
    """A program that only says its version."""
    return program(path, f"echo 'openjdk version \"{version}\"' >&2; exit {exit_code}")


def empty_jar(path: Path) -> Path:
    """A jar that looks like one of TLC."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tlc2/TLC.class", b"")
        archive.writestr("META-INF/MANIFEST.MF", "Implementation-Version: none\r\n")
    return path


class Player:
    """Makes toolchains that answer every job with a recorded output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "jobs"

    def plays(self, name: str) -> Toolchain:
        exit_code, lines = recorded(name)
        self.folder.mkdir(parents=True, exist_ok=True)
        said = self.folder / "said"
        said.write_text("".join(lines))
        return self.runs(f"cat {shlex.quote(str(said))}; exit {exit_code}")

    def runs(self, script: str) -> Toolchain:
        log = shlex.quote(str(self._log))
        path = program(self.folder / "java", f'echo "$@" >> {log}\n{script}')
        return Toolchain(Java(path, "17"), Jar(self.folder / "tla2tools.jar", "test", "0", "none"))

    def jobs(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []
