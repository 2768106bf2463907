"""What somebody wants to see: recognised by its content, whatever it is called."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from cutlock.audit.history import read_history
from cutlock.bundle.artifacts import MANIFEST
from cutlock.controller.run_directory import RunDirectory
from cutlock.errors import AuditError, BundleNotFoundError, ConfigError, ToolError
from cutlock.report.pages.data import RunPage, Story
from cutlock.show.logs import Expected, Logs, story_of_logs
from cutlock.show.runs import page_of_run, torn_logs
from cutlock.show.traces import story_of_trace
from cutlock.tlc.itf import from_itf

__all__ = ["Shown", "collect"]

_WANTED = (
    "wanted: a trace (*.itf.json), an event log (events/incarnation-N.ndjson), or the directory "
    "of a run"
)


@dataclass(frozen=True)
class Shown:
    """What was found, and what the page is called if nobody says otherwise."""

    data: Story | RunPage
    name: str


def collect(path: Path, whys: Mapping[str, str], *, steps: bool = False) -> Shown:
    """Find out what a path is, and read it.

    Args:
        whys: what is broken in each model.
        steps: of a run, its steps instead of the run as a whole.

    Raises:
        ConfigError: it is nothing that can be shown; says what it is.
        BundleNotFoundError: there is nothing.
        AuditError: it is a run or a log, and cannot be read.
    """
    if not path.exists():
        raise BundleNotFoundError(f"{path} does not exist; {_WANTED}")
    return _directory(path, steps=steps) if path.is_dir() else _file(path, whys)


def _directory(path: Path, *, steps: bool) -> Shown:
    root = path.absolute()
    if (root / "run.json").exists():
        directory = RunDirectory(root)
        expected = _expected(root)
        if steps or expected is not None:
            logs = Logs(
                directory.logs(),
                str(path),
                facts=directory.facts(),
                expected=expected,
                torn=torn_logs(directory),
            )
            return Shown(story_of_logs(logs), f"{root.name}-steps")
        return Shown(page_of_run(directory, str(path)), root.name)
    if root.name == "events" and (root.parent / "run.json").exists():
        return _directory(path.parent, steps=True)
    if (root / MANIFEST).exists():
        raise ConfigError(
            f"{path} is a bundle; give the directory of its run, {path.parent}, or look into it "
            f"with `cutlock inspect {path}`"
        )
    inside = sorted(found.parent for found in root.glob("*/run.json"))
    inside += sorted(found.parent for found in root.glob("*/*/run.json"))
    if inside:
        names = ", ".join(str(path / found.relative_to(root)) for found in inside[:4])
        raise ConfigError(f"{path} holds runs and is none; give one of them: {names}")
    raise ConfigError(f"{path} is a directory without a run (no run.json); {_WANTED}")


def _file(path: Path, whys: Mapping[str, str]) -> Shown:
    data = path.read_bytes()
    if not data.strip():
        raise ConfigError(f"{path} is empty; {_WANTED}")
    whole = _json(data)
    if isinstance(whole, dict) and "states" in whole:
        try:
            example = from_itf(data)
        except ToolError as error:
            raise ToolError(f"{path}: {error}") from error
        name = path.name.removesuffix(".json").removesuffix(".itf")
        return Shown(story_of_trace(example, str(path), whys.get(example.model, "")), name)
    first = _json(data.partition(b"\n")[0])
    if isinstance(first, dict) and {"seq", "action", "args"} <= first.keys():
        return _log(path)
    raise ConfigError(f"{path} is {_described(path, whole, first)}; {_WANTED}")


def _log(path: Path) -> Shown:
    """One log: as a part of its run if it lies in one, else alone."""
    root = path.absolute().parent.parent
    if path.absolute().parent.name == "events" and (root / "run.json").exists():
        directory = RunDirectory(root)
        for number, known in directory.logs().items():
            if known.name == path.name:
                logs = Logs(
                    directory.logs(),
                    str(path),
                    number,
                    directory.facts(),
                    _expected(root),
                    tuple(torn for torn in torn_logs(directory) if torn == number),
                )
                return Shown(story_of_logs(logs), f"{root.name}-{path.stem}")
    # Alone, a log says itself which start it is of.
    (events,) = read_history({1: path}).logs.values()
    if not events:
        raise AuditError(f"{path} holds no whole record; {_WANTED}")
    number = getattr(events[0].args, "incarnation", 1)
    torn = () if path.read_bytes().endswith(b"\n") else (number,)
    return Shown(story_of_logs(Logs({number: path}, str(path), number, torn=torn)), path.stem)


def _expected(root: Path) -> Expected | None:
    path = root / "expected.json"
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Expected)
    except msgspec.DecodeError as error:
        raise AuditError(
            f"{path} does not say what was told otherwise: {error}; mend or remove it"
        ) from error


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _described(path: Path, whole: Any, first: Any) -> str:
    """What a file is that cannot be shown."""
    if isinstance(whole, dict) and {"run_id", "prompts"} <= whole.keys():
        return f"the identity of a run; give its directory, {path.parent}"
    if isinstance(whole, dict) and {"run", "what", "where"} <= whole.keys():
        return f"what is expected of a rejected run; give its directory, {path.parent}"
    if isinstance(first, dict) and {"step", "report"} <= first.keys():
        return f"metrics of a run; give its directory, {path.absolute().parent.parent}"
    if whole is not None:
        kind = f"with {', '.join(map(str, list(whole)[:4]))}" if isinstance(whole, dict) else ""
        return f"JSON of another kind {kind}".rstrip()
    if path.read_bytes()[:200].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "a web page"
    return "no trace and no log"
