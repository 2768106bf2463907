"""What the run directory holds, in the words of the spec: the published bundle, the open save.

Files are read one by one and not compared with each other, so that a bundle which a resume
would refuse can be looked at too. Reading is kept by what cannot change without being
noticed: names and inodes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from cutlock.alphabet import Action
from cutlock.bundle.contents import Recovery, Sidecar, TrainingInfo
from cutlock.bundle.layout import (
    DATA_PLANE,
    INDEX,
    LEDGER,
    LOADER,
    MANIFEST,
    POLICY,
    RESERVE,
    SIDECARS,
    STAMP,
    TRAINING_INFO,
    Place,
    directory_name,
)
from cutlock.bundle.publication import latest
from cutlock.conformance.observation.words import Owned, Words, dropped_in, record
from cutlock.conformance.stepping.bounds import Bounds
from cutlock.conformance.stepping.parts import read_trained
from cutlock.conformance.stepping.planes import PlaneHost, Saved
from cutlock.errors import BundleNotFoundError
from cutlock.events import read_log
from cutlock.plane.base import read_stamp
from cutlock.records import IndexEntry, LoaderState, Occurrence
from cutlock.run.directory import RunDirectory
from cutlock.tlc.values import Function, Value
from cutlock.workers.base import POLICY_FILES

__all__ = ["Disk"]

T = TypeVar("T")

_NOBODY: frozenset[Value] = frozenset()
_NOTHING_SAVED = Saved(frozenset(), {}, frozenset())
_ARTIFACTS = ("cursor", "loader", "pool", "index", "ledger", "rows")


class Disk:
    """The files of one run directory."""

    def __init__(self, bounds: Bounds, directory: RunDirectory, host: PlaneHost) -> None:
        self._bounds = bounds
        self._words = Words(bounds)
        self._directory = directory
        self._host = host
        self._run_id = directory.facts().run_id
        self._looked: tuple[tuple[str, int], ...] | None = None
        self._bundle: Function | None = None
        self._bundles: dict[tuple[Path, int], Function] = {}
        self._steps: dict[str, int] = {}
        self._logs: dict[tuple[int, int], frozenset[str]] = {}
        self._saved: tuple[object, Saved] = None, _NOTHING_SAVED
        self.nothing = self._nothing()
        """`Nothing` of the spec: what a run without a bundle starts from."""

    # The published bundle.

    def published(self) -> Function:
        """`disk`: the newest resolvable bundle."""
        # The names change with every publication and every pruning.
        with os.scandir(self._directory.root) as entries:
            looked = tuple(sorted((e.name, e.inode()) for e in entries if "step_" in e.name))
        if looked != self._looked:
            self._looked, self._bundle = looked, self._newest()
        return self._bundle or self.nothing

    def _newest(self) -> Function | None:
        try:
            path = latest(self._directory.root, self._run_id)
        except BundleNotFoundError:
            return None
        key = path, path.stat().st_ino
        if key not in self._bundles:
            saved = self._host.saved(path / DATA_PLANE)
            try:
                self._bundles[key] = self._read(path, saved)
            except FileNotFoundError:
                # There is no cut to be read; which file is missing can be seen all the same.
                shown: dict[Value, Value] = dict(self.nothing)
                shown["files"] = self._files(path, saved)
                self._bundles[key] = Function(shown)
        return self._bundles[key]

    def _read(self, path: Path, saved: Saved) -> Function:
        words = self._words
        info = msgspec.json.decode((path / TRAINING_INFO).read_bytes(), type=TrainingInfo)
        self._steps[info.cut_id] = info.step
        loader = _sidecar(path, LOADER, Sidecar[LoaderState])
        spares = _sidecar(path, RESERVE, Sidecar[tuple[Occurrence, ...]])
        index = _sidecar(path, INDEX, Sidecar[tuple[IndexEntry, ...]])
        recovery = _sidecar(path, LEDGER, Sidecar[Recovery])
        owned: tuple[Owned, ...] = (*index.payload, *recovery.payload.groups)
        cuts = {
            "cursor": info.cut_id,
            "loader": loader.cut_id,
            "pool": spares.cut_id,
            "index": index.cut_id,
            "ledger": recovery.cut_id,
            "rows": read_stamp((path / STAMP).parent).cut_id,
        }
        return record(
            version=info.version,
            cursor=info.cursor,
            pos=words.position(loader.payload.epoch, loader.payload.position),
            epoch=loader.payload.epoch,
            pool=words.set_of(spare.key for spare in spares.payload),
            index=words.set_of(entry.group_id for entry in index.payload),
            order=words.order_of(entry.group_id for entry in index.payload),
            led=words.led(recovery.payload.groups),
            idx=words.idx(owned),
            wt=words.wt(owned),
            short=words.short(dict(recovery.payload.shortfall)),
            keys=words.keys(saved.keys),
            rows=words.rows(saved.rows),
            derived=words.derived(saved.rows),
            trained=words.trained(read_trained(path / POLICY)),
            dropped=words.set_of(self.dropped_by(info.incarnation, info.log_records)),
            files=self._files(path, saved),
            of=record(**{name: self._steps.get(cuts[name], -1) for name in _ARTIFACTS}),
        )

    def _nothing(self) -> Function:
        words = self._words
        return record(
            version=0,
            cursor=-1,
            pos=0,
            epoch=0,
            pool=_NOBODY,
            index=_NOBODY,
            order=(),
            led=words.led(()),
            idx=words.idx(()),
            wt=words.wt(()),
            short=words.short({}),
            keys=_NOBODY,
            rows=_NOBODY,
            derived=_NOBODY,
            trained=words.trained([]),
            dropped=_NOBODY,
            files=_NOBODY,
            of=record(**dict.fromkeys(_ARTIFACTS, -1)),
        )

    def _files(self, path: Path, saved: Saved) -> frozenset[Value]:
        """`files`: which parts of a bundle are there."""
        found: set[Value] = {self._bounds.units[unit] for unit in saved.units}
        parts: dict[str, Sequence[str]] = {
            "policy": [f"{POLICY}/{name}" for name in POLICY_FILES],
            "sidecars": (*SIDECARS, TRAINING_INFO),
            "manifest": (MANIFEST,),
        }
        for part, names in parts.items():
            if all((path / name).exists() for name in names):
                found.add(part)
        return frozenset(found)

    # The save in progress.

    def in_progress(self, step: int, attempt: int) -> tuple[Saved, frozenset[Value]]:
        """Of an attempt at the save of a step that is not published: its rows, and its files."""
        path = self._directory.root / directory_name(Place.TEMPORARY, step, attempt)
        try:
            with os.scandir(path / DATA_PLANE) as entries:
                key = (path, tuple(sorted((e.name, e.inode()) for e in entries)))
        except FileNotFoundError:
            return _NOTHING_SAVED, _NOBODY
        if self._saved[0] != key:
            self._saved = key, self._host.saved(path / DATA_PLANE)
        return self._saved[1], self._files(path, self._saved[1])

    # The logs.

    def dropped_by(self, incarnation: int, count: int) -> frozenset[str]:
        """Groups given up in the surviving history up to that many records of a log."""
        if (incarnation, count) not in self._logs:
            records = list(read_log(self._directory.log_path(incarnation)))[:count]
            past: frozenset[str] = frozenset()
            for found in records:
                if found.action == Action.VERIFY_BUNDLE:
                    before, kept = found.args["incarnation"], found.args["log_records"]
                    assert isinstance(before, int)
                    assert isinstance(kept, int)
                    past = self.dropped_by(before, kept)
            self._logs[incarnation, count] = past | dropped_in(records)
        return self._logs[incarnation, count]


def _sidecar(path: Path, name: str, kind: type[Sidecar[T]]) -> Sidecar[T]:
    return msgspec.msgpack.decode((path / name).read_bytes(), type=kind)
