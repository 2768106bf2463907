"""The run directory: who the run is, its event logs, and its bundles.

run.json                    identity, data set and first configuration; tmp_run.json if `create`
                            died
run.lock                    held by the controller while it runs
events/incarnation-N.ndjson one log per start of the controller
step_N/                     bundles
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec

from cutlock.bundle.files import REAL, make_durable_directory
from cutlock.errors import AuditError, BundleNotFoundError, ConfigError
from cutlock.run.config import RunConfig
from cutlock.workers.base import PromptSet

__all__ = ["RunDirectory", "RunFacts", "Seen"]

_LOG_NAME = re.compile(r"incarnation-(\d+)\.ndjson")


class RunFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `run.json`."""

    run_id: str
    config: dict[str, object]
    data_set: str
    data_set_digest: str
    prompts: tuple[str, ...]
    """Stable ids of all prompts: what an audit expects to find, whatever the run says."""


class Seen(msgspec.Struct, frozen=True):
    """What tells one moment of a run directory from another: every start and every save does."""

    run_id: str | None
    incarnations: tuple[int, ...]
    bundles: frozenset[str]

    def __str__(self) -> str:
        """For messages."""
        if self.run_id is None:
            return "no run"
        bundles = ", ".join(sorted(self.bundles, key=lambda name: (len(name), name)))
        return (
            f"run {self.run_id[:8]} with starts: {len(self.incarnations)}, bundles: "
            f"{bundles or 'none'}"
        )


class RunDirectory:
    """One run on disk; `seen` is what it was like when this object was made, or began the run."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.seen = self._look()

    def _look(self) -> Seen:
        try:
            run_id = self.facts().run_id
        except (AuditError, BundleNotFoundError):
            run_id = None
        bundles = frozenset(path.name for path in self.root.glob("step_*"))
        return Seen(run_id, tuple(self.logs()), bundles)

    @contextlib.contextmanager
    def taken(self, seen: Seen) -> Iterator[None]:
        """Hold the lock for a start that was planned without it, when the directory was `seen`.

        Raises:
            ConfigError: another process runs the run, or another start has been here since.
        """
        with self.lock():
            now = self._look()
            if now != seen:
                raise ConfigError(
                    f"{self.root} has changed since this start looked at it: it held {seen} "
                    f"then, and holds {now} now; another start has been here, so start again"
                )
            yield

    @contextlib.contextmanager
    def opened(self, config: RunConfig, prompts: PromptSet) -> Iterator[Self]:
        """Hold the lock; the run is begun behind it if there is none.

        Raises:
            ConfigError: the directory holds something else, or another process runs the run.
        """
        if not self._holds_run():
            self._make_lockable()
        with self.lock():
            if not self._holds_run():
                self._begin(config, prompts)
            self.seen = self._look()
            yield self

    def create(self, config: RunConfig, prompts: PromptSet) -> RunFacts:
        """Begin a new run in a new or empty directory; when it returns, the run is durable.

        Raises:
            ConfigError: there is a run, or something else, already.
        """
        self._make_lockable()
        with self.lock():
            facts = self._begin(config, prompts)
            self.seen = self._look()
            return facts

    def _holds_run(self) -> bool:
        return (self.root / "run.json").exists()

    def _make_lockable(self) -> None:
        """Make the directory, unless it is something else's, which gets no lock file from us."""
        # Where there is one, another start may be beginning the run: only behind it is to be seen.
        if not (self.root / "run.lock").exists():
            self._require_free()
            make_durable_directory(REAL, self.root)

    def _require_free(self) -> None:
        if self._holds_run():
            raise ConfigError(
                f"{self.root} already holds a run; go on with it with `cutlock resume "
                f"{self.root}`, or give a new directory"
            )
        if self.root.exists() and (
            not self.root.is_dir() or any(path.name != "run.lock" for path in self.root.iterdir())
        ):
            raise ConfigError(f"{self.root} is not an empty directory; give a new or an empty one")

    def _begin(self, config: RunConfig, prompts: PromptSet) -> RunFacts:
        self._require_free()
        make_durable_directory(REAL, self.root / "events")
        facts = RunFacts(
            run_id=uuid.uuid4().hex,
            config=config.plain(),
            data_set=prompts.name,
            data_set_digest=prompts.digest,
            prompts=tuple(prompts[i].prompt_id for i in range(len(prompts))),
        )
        encoded = msgspec.json.format(msgspec.json.encode(facts), indent=1)
        # Half of it would be a run that can neither be resumed nor begun again.
        unnamed = self.root / "tmp_run.json"
        REAL.write_file(unnamed, encoded + b"\n")
        REAL.sync_file(unnamed)
        REAL.rename(unnamed, self.root / "run.json")
        REAL.sync_directory(self.root)
        return facts

    def facts(self) -> RunFacts:
        """Read `run.json`.

        Raises:
            BundleNotFoundError: there is no run here.
            AuditError: the file is not what `create` writes.
        """
        path = self.root / "run.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=RunFacts)
        except FileNotFoundError as error:
            raise BundleNotFoundError(
                f"{self.root} holds no run (no run.json); give the directory that `cutlock run "
                "--out` was given"
            ) from error
        except msgspec.DecodeError as error:
            raise AuditError(
                f"{path} is not a run's identity: {error}; put the file back that `cutlock run` "
                "has written"
            ) from error

    def logs(self) -> dict[int, Path]:
        """Event logs by incarnation, ascending."""
        found = {
            int(match[1]): path
            for path in sorted((self.root / "events").glob("*"))
            if (match := _LOG_NAME.fullmatch(path.name))
        }
        return dict(sorted(found.items()))

    def next_incarnation(self) -> int:
        """Number of the next start, from 1; never used before, also not by a failed start."""
        return max(self.logs(), default=0) + 1

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only controller of this run; the lock ends with the process at the latest.

        Raises:
            ConfigError: another process holds it.
        """
        descriptor = os.open(self.root / "run.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(
                    f"another controller runs in {self.root}; stop it first, or give this run "
                    "a directory of its own"
                ) from error
            except OSError as error:
                raise ConfigError(
                    f"{self.root / 'run.lock'} cannot be locked ({error.strerror}); keep the run "
                    "on a file system that has locks"
                ) from error
            yield
        finally:
            os.close(descriptor)

    def log_path(self, incarnation: int) -> Path:
        """Where the log of that start goes."""
        return self.root / "events" / f"incarnation-{incarnation}.ndjson"
