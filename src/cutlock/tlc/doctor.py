"""Says which Java and which TLC there are, where, and what to do when one is missing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from cutlock.errors import ToolMissingError
from cutlock.tlc.jar import find_jar
from cutlock.tlc.java import Candidate, choose_java, java_candidates

__all__ = ["Diagnosis", "Tried", "diagnose"]


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One place where a Java may be."""

    source: str
    path: str | None
    version: str | None
    problem: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What was found; `ok` if models can be checked."""

    ok: bool
    java: str | None
    """Path of the Java that is used."""
    java_version: str | None
    tried: tuple[Tried, ...]
    """Every place, in the order in which they are tried."""
    jar: str | None
    jar_source: str | None
    jar_build: str | None
    jar_sha256: str | None
    jar_pinned: bool
    """Whether it is the jar that the results are shown with."""
    advice: tuple[str, ...]


def diagnose(jar: Path | None = None, environment: Mapping[str, str] = os.environ) -> Diagnosis:
    """Look for everything that checking needs; raises nothing."""
    candidates = list(java_candidates(environment))
    java, found = None, None
    advice = []
    try:
        java = choose_java(candidates)
    except ToolMissingError as error:
        advice.append(str(error))
    try:
        found = find_jar(jar, environment)
    except ToolMissingError as error:
        advice.append(str(error))
    if found is not None and not found.pinned:
        advice.append(
            f"{found.path} is not the pinned jar; counts and traces may differ from the manifest"
        )
    return Diagnosis(
        ok=java is not None and found is not None,
        java=str(java.path) if java else None,
        java_version=java.version if java else None,
        tried=tuple(map(_tried, candidates)),
        jar=str(found.path) if found else None,
        jar_source=found.source if found else None,
        jar_build=found.build if found else None,
        jar_sha256=found.sha256 if found else None,
        jar_pinned=found is not None and found.pinned,
        advice=tuple(advice),
    )


def _tried(candidate: Candidate) -> Tried:
    java = candidate.java
    return Tried(
        source=candidate.source,
        path=str(java.path) if java else None,
        version=java.version if java else None,
        problem=candidate.problem,
    )
