"""What somebody wants to see: recognised by its content, whatever it is called."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutlock.audit.history import read_history
from cutlock.bundle.layout import MANIFEST
from cutlock.errors import AuditError, BundleNotFoundError, ConfigError, ToolError
from cutlock.report.pages.data import RunPage, Story
from cutlock.run.directory import RunDirectory
from cutlock.show.logs import Logs, story_of_logs
from cutlock.show.runs import page_of_run, torn_logs
from cutlock.show.traces import story_of_trace
from cutlock.show.verdicts import Verdict, verdict_on
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


def collect(
    path: Path, whys: Mapping[str, str], *, steps: bool = False, validation: Path | None = None
) -> Shown:
    """Find out what a path is, and read it.

    Args:
        whys: what is broken in each model.
        steps: of a run, its steps instead of the run as a whole.
        validation: what `cutlock validate --json` has said of the run, whose steps are then shown.

    Raises:
        ConfigError: it is nothing that can be shown; says what it is.
        BundleNotFoundError: there is nothing.
        AuditError: it is a run or a log, and cannot be read.
    """
    if not path.exists():
        raise BundleNotFoundError(f"{path} does not exist; {_WANTED}")
    if path.is_dir():
        return _directory(path, validation, steps=steps)
    return _file(path, whys, validation)


def _directory(path: Path, validation: Path | None, *, steps: bool) -> Shown:
    root = path.absolute()
    if (root / "run.json").exists():
        directory = RunDirectory(root)
        verdict = verdict_on(root, validation)
        if steps or verdict is not None:
            logs = _logs(directory, str(path), None, verdict)
            return Shown(story_of_logs(logs), f"{root.name}-steps")
        return Shown(page_of_run(directory, str(path)), root.name)
    if root.name == "events" and (root.parent / "run.json").exists():
        return _directory(path.parent, validation, steps=True)
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


def _logs(directory: RunDirectory, source: str, only: int | None, verdict: Verdict | None) -> Logs:
    return Logs(
        directory.logs(),
        source,
        only,
        directory.facts(),
        refused=verdict.refused if verdict is not None else None,
        accepted=verdict is not None and verdict.refused is None,
        torn=tuple(torn for torn in torn_logs(directory) if only in {None, torn}),
    )


def _file(path: Path, whys: Mapping[str, str], validation: Path | None) -> Shown:
    data = path.read_bytes()
    if not data.strip():
        raise ConfigError(f"{path} is empty; {_WANTED}")
    whole = _json(data)
    if isinstance(whole, dict) and "states" in whole:
        if validation is not None:
            raise ConfigError(f"{path} is a trace, and a validation is of runs; leave it out")
        try:
            example = from_itf(data)
        except ToolError as error:
            raise ToolError(f"{path}: {error}") from error
        name = path.name.removesuffix(".json").removesuffix(".itf")
        return Shown(story_of_trace(example, str(path), whys.get(example.model, "")), name)
    first = _json(data.partition(b"\n")[0])
    if isinstance(first, dict) and {"seq", "action", "args"} <= first.keys():
        return _log(path, validation)
    raise ConfigError(f"{path} is {_described(path, whole, first)}; {_WANTED}")


def _log(path: Path, validation: Path | None) -> Shown:
    """One log: as a part of its run if it lies in one, else alone."""
    root = path.absolute().parent.parent
    if path.absolute().parent.name == "events" and (root / "run.json").exists():
        directory = RunDirectory(root)
        for number, known in directory.logs().items():
            if known.name == path.name:
                logs = _logs(directory, str(path), number, verdict_on(root, validation))
                return Shown(story_of_logs(logs), f"{root.name}-{path.stem}")
    # Alone, a log says itself which start it is of.
    (events,) = read_history({1: path}).logs.values()
    if not events:
        raise AuditError(f"{path} holds no whole record; {_WANTED}")
    number = getattr(events[0].args, "incarnation", 1)
    torn = () if path.read_bytes().endswith(b"\n") else (number,)
    return Shown(story_of_logs(Logs({number: path}, str(path), number, torn=torn)), path.stem)


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
