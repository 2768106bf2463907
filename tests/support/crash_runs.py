"""Runs whose every call and await is recorded, and restarts from what a crash would leave.

The situations together go through every stage of save, publication, pruning and restore.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from cutlock.alphabet import Action
from cutlock.bundle.manifest import decode_manifest
from cutlock.bundle.publication import DebrisKind, latest, scan
from cutlock.bundle.verification import read_manifest
from cutlock.bundle.writing import BundleWriter
from cutlock.errors import BundleNotFoundError
from cutlock.plane.memory import PlaneStep
from cutlock.run import start as starting
from cutlock.run.config import RunConfig
from cutlock.run.directory import RunDirectory
from cutlock.run.metrics import read_metrics
from cutlock.run.save import Saver
from cutlock.workers.base import POLICY_FILES, TRAINER_FILE
from tests.support import local_runs
from tests.support.crash_points import Disk, Moment, Recorder, during, enter, stage, staged
from tests.support.local_runs import Camera, LightTrainer, Run, Trouble, tiny_config
from tests.support.power_loss import Loss, Tree, image, materialise

RUN = "run"
"""The run directory, in the directory that a crash is about."""

SAVES = ("first save", "save")
NARROW_SAVES = ("first narrow save", "narrow save")

_PARTS = {
    Action.REQUEST_CUT: "cut",
    Action.COPY_POLICY: "copy",
    Action.SAVE_PLANE: "rows",
    Action.SAVE_UNIT: "rows",
    Action.FLUSH_DEFERRED: "flush",
    Action.CLOSE_CUT: "cut",
    Action.WRITE_POLICY: "policy",
    Action.WRITE_SIDECARS: "sidecars",
    Action.WRITE_MANIFEST: "seal",
    Action.PUBLISH_BUNDLE: "publish",
    Action.PRUNE_BUNDLES: "prune",
}
"""Parts of a save, by the announcement that they begin with; before them it is `begin`."""


class _Stops:
    """Announcements that suspend, and say which part of a save the task is in."""

    async def reach(self, action: Action, /, **where: object) -> None:
        of, _, part = stage().partition(": ")
        if of in (*SAVES, *NARROW_SAVES) and part and action in _PARTS:
            enter(f"{of}: {_PARTS[action]}")
        await asyncio.sleep(0)


class _Steps:
    """Steps of the store that suspend; under narrow cuts its units take whole training steps."""

    def __init__(self, config: RunConfig) -> None:
        self._unit_turns = 50 if config.checkpoint.cut == "narrow" else 1

    async def reach(self, step: PlaneStep, /) -> None:
        unit = (step.op, step.phase) == ("snapshot", "unit")
        for _ in range(self._unit_turns if unit else 1):
            await asyncio.sleep(0)


class _SlowTrainer(LightTrainer):
    """A trainer that suspends between its files."""

    async def save(self, directory: Path) -> Sequence[str]:
        for name in POLICY_FILES:
            await asyncio.sleep(0)
            text = json.dumps(self.copied if name == TRAINER_FILE else name)
            (directory / name).write_text(text)
        await asyncio.sleep(0)
        return POLICY_FILES

    async def load(self, directory: Path) -> None:
        with during("load policy"):
            await asyncio.sleep(0)
            await super().load(directory)

    async def copy(self) -> tuple[int, str]:
        await asyncio.sleep(0)
        return await super().copy()


@dataclass(frozen=True)
class Situation:
    """A start of a run, and what is there before it.

    Args:
        config: of the run; it is killed, or ends, before this start.
        killed: announcement at which the start before was killed, and how often the action
            was announced before; None if there was no start, or it came to its end.
        debris: whether there is what dead saves and dead removals have left.
        bundle: resumed from; None for the latest, or for a new run.
        refused: stage and text of the one call that the disk refuses.
    """

    name: str
    config: RunConfig
    new: bool = False
    killed: tuple[Action, int] | None = None
    trouble: Trouble = field(default_factory=Trouble)
    debris: bool = False
    bundle: str | None = None
    with_rows: bool = True
    refused: tuple[str, str] | None = None

    def __str__(self) -> str:
        return self.name


def config(**changes: Any) -> RunConfig:
    """Four prompts in steps of two, saved at every step; one bundle is kept."""
    raw = {"epochs": 1, "task": {"prompts": 4}, "checkpoint": {"every": 1, "keep": 1}}
    return tiny_config(**{**raw, **changes})


SITUATIONS = (
    Situation("a new run", config(), new=True),
    Situation("a resume", config(), killed=(Action.SELECT_GROUPS, 1)),
    Situation("a resume amid debris", config(), killed=(Action.PUBLISH_BUNDLE, 2), debris=True),
    Situation(
        "failed saves",
        config(checkpoint={"every": 1, "keep": 2}),
        killed=(Action.TRAIN_STEP, 0),
        trouble=Trouble(broken_saves=frozenset({1, 2})),
    ),
    Situation(
        "a refused publication",
        config(),
        killed=(Action.TRAIN_STEP, 0),
        refused=("save: publish", f"sync {RUN}"),
    ),
    Situation(
        "a resume from a bundle without rows",
        config(checkpoint={"every": 1, "keep": 1, "rows": False}),
        killed=(Action.TRAIN_STEP, 1),
    ),
    Situation(
        "a resume that leaves the rows",
        config(),
        killed=(Action.TRAIN_STEP, 1),
        with_rows=False,
    ),
    Situation(
        "a resume from an older bundle",
        config(checkpoint={"every": 1, "keep": 4}),
        bundle="step_0",
    ),
)


NARROW_SITUATIONS = (
    Situation(
        "a new run, narrow",
        config(task={"prompts": 8}, checkpoint={"every": 1, "keep": 1, "cut": "narrow"}),
        new=True,
    ),
    Situation(
        "a resume, narrow",
        config(task={"prompts": 8}, checkpoint={"every": 1, "keep": 1, "cut": "narrow"}),
        killed=(Action.SELECT_GROUPS, 2),
    ),
    Situation(
        "failed saves, narrow",
        config(task={"prompts": 8}, checkpoint={"every": 1, "keep": 2, "cut": "narrow"}),
        killed=(Action.SELECT_GROUPS, 2),
        trouble=Trouble(broken_saves=frozenset({1, 2})),
    ),
)
"""What is done meanwhile by the pumps is of the stage `pumps`, as in the others."""


@contextlib.contextmanager
def _stages(saves: Iterator[str]) -> Iterator[None]:
    """Name what the functions of save and restore do."""
    original = Saver._save

    async def save(saver: Saver, *arguments: Any) -> None:
        with during(f"{next(saves)}: begin"):
            await original(saver, *arguments)

    with contextlib.ExitStack() as patches:
        for place, name, replacement in (
            (Saver, "_save", save),
            (BundleWriter, "abandon", staged("abandon", BundleWriter.abandon)),
            (starting, "connect_plane", staged("connect", starting.connect_plane)),
            (starting, "restore_state", staged("restore state", starting.restore_state)),
            (starting, "reclaim", staged("reclaim", starting.reclaim)),
            (starting, "set_aside", staged("set aside", starting.set_aside)),
            (local_runs, "load_plane", staged("load rows", local_runs.load_plane)),
            (local_runs, "EventLog", staged("open log", local_runs.EventLog)),
        ):
            patches.enter_context(mock.patch.object(place, name, replacement))
        yield


@dataclass
class Recording:
    """One start from begin to end."""

    situation: Situation
    before: Disk
    moments: list[Moment]
    promised: int
    """At its begin; see `Crash`."""
    steps: list[tuple[int, list[str]]]
    """What has been trained, by step."""


def before(situation: Situation, base: Path) -> None:
    """Make the run directory as the start of the situation finds it."""
    base.mkdir()
    if situation.new:
        return
    first = Run.create(base / RUN, situation.config)
    if situation.killed is None:
        first.first(situation.config)
        return
    camera = Camera(
        first, base / "kills", lambda number, action, seen: (action, seen) == situation.killed
    )
    first.first(situation.config, camera)
    shutil.rmtree(first.root)
    camera.kills[0].run.root.rename(first.root)
    (base / "kills").rmdir()
    if situation.debris:
        for name in ("trash_step_0", "tmp_step_1", "tmp_step_9"):
            shutil.copytree(first.root / "step_1", first.root / name)


def start(situation: Situation, run: Run, recorder: Recorder) -> None:
    """Start the run and bring it to its end."""
    run.trouble = situation.trouble
    run.steps, run.new_trainer, run.make_task = (
        _Steps(situation.config),
        _SlowTrainer,
        recorder.make_task,
    )
    first, later = NARROW_SAVES if situation.config.checkpoint.cut == "narrow" else SAVES
    saves = iter([first]) if situation.new else iter(())
    named = iter(lambda: next(saves, later), None)
    with _stages(named), contextlib.ExitStack() as stack:
        with during("lock"):
            stack.enter_context(run.directory.lock())
        if situation.new:
            run.first(situation.config, _Stops())
            return
        with during("verify"):
            plan = run.plan(situation.bundle, with_rows=situation.with_rows)
        run.resume(plan, _Stops())


def record(
    situation: Situation, base: Path, disk: Disk | None = None, promised: int = 0
) -> Recording:
    """Go through the situation once, undisturbed.

    Args:
        base: as `before` leaves it, or a crash.
        disk: what of it is durable; None for all.
        promised: see `Crash`.
    """
    disk = disk or Disk.settled(base)
    recorder = Recorder(base, refused=situation.refused)
    with recorder.recording():
        if situation.new:
            with during("create"):
                Run.create(base / RUN, situation.config)
        run = Run(RunDirectory(base / RUN))
        start(situation, run, recorder)
    return Recording(situation, disk, recorder.moments, promised, run.trainer.steps)


@dataclass(frozen=True)
class Crash:
    """A process that dies at a point."""

    number: int
    """Of the point, from 1."""
    moment: Moment
    promised: int
    """Sequence of the bundle that the run last called published or verified; 0 for none."""
    disk: Disk

    def __str__(self) -> str:
        what = self.moment.call or "an await"
        return f"point {self.number}, {self.moment.stage}: after {what}"


def crashes(recording: Recording) -> Iterator[Crash]:
    """The disk at every point; it is valid until the next is asked for."""
    disk, promised = copy.deepcopy(recording.before), recording.promised
    line = b""
    for number, moment in enumerate(recording.moments, 1):
        call = moment.call
        if call is not None:
            disk.apply(call)
            if call.verb == "write" and call.path.startswith(f"{RUN}/events/"):
                line += call.data
                if line.endswith(b"\n"):
                    promised = _promised(line, disk) or promised
                    line = b""
        yield Crash(number, moment, promised, disk)


def _promised(line: bytes, disk: Disk) -> int:
    """Sequence of the bundle that the record is about; 0 if it is about none."""
    record = json.loads(line)
    if record["action"] not in {Action.PUBLISH_BUNDLE, Action.VERIFY_BUNDLE}:
        return 0
    bundle = record["args"]["bundle"]
    content = disk.now()[f"{RUN}/{bundle}/manifest.json"]
    assert content is not None
    return decode_manifest(content, Path(bundle)).sequence


@dataclass
class Restarts:
    """Restarts from the images of one recording.

    What a resume does depends on the bundles, the debris and the number of logs; with that
    the same, only the audit is repeated, unless `thorough`.
    """

    recording: Recording
    work: Path
    thorough: bool = False
    outcomes: Counter[str] = field(default_factory=Counter)
    images: int = 0
    resumed: int = 0
    _seen: dict[object, str] = field(default_factory=dict)
    _resumed: set[object] = field(default_factory=set)
    _losses: Sequence[Loss] = ()
    _outcomes: list[str] = field(default_factory=list)

    def crash(self, crash: Crash, losses: Sequence[Loss]) -> None:
        """Restart from what the losses leave, and audit."""
        if crash.moment.kind != "call" and losses == self._losses:
            # The disk is as it was at the point before.
            self.outcomes.update(self._outcomes)
            return
        self._losses, self._outcomes = losses, []
        for loss in losses:
            tree = image(crash.disk.root, loss)
            try:
                self._outcomes.append(self.restart(tree, crash.promised))
            except Exception as error:
                raise AssertionError(f"{crash}, {loss}: {error!r}") from error
        self.outcomes.update(self._outcomes)

    def restart(self, tree: Tree, promised: int) -> str:
        """How far a restart comes; what must not be is an AssertionError, or a refusal."""
        key = (promised, _digest(tree.items()))
        if key not in self._seen:
            base = self.work / f"image-{len(self._seen)}"
            materialise(tree, base)
            self.images += 1
            try:
                self._seen[key] = self._look(tree, base / RUN, promised)
            finally:
                shutil.rmtree(base)
        return self._seen[key]

    def _look(self, tree: Tree, root: Path, promised: int) -> str:
        run = Run(RunDirectory(root))
        nothing = f"nothing can be resumed, and the bundle with sequence {promised} was published"
        try:
            run_id = run.directory.facts().run_id
        except BundleNotFoundError:
            assert not promised, nothing
            return "no run"
        if not run.directory.logs():
            assert not promised, nothing
            return "not started"
        left = run.audit()
        assert left.problems == (), left.problems
        assert (left.lost, left.trained_twice) == (0, 0), left
        accounted = left.trained_once + left.dropped + left.pending + left.unread
        assert accounted == left.prompts, left
        read_metrics(run.directory)
        try:
            bundle = latest(root, run_id)
        except BundleNotFoundError:
            assert not promised, nothing
            assert (left.bundles, left.steps, left.unread) == ((), 0, left.prompts), left
            return "not saved"
        sequence = read_manifest(bundle).sequence
        assert sequence >= promised, f"sequence {sequence} is the latest, {promised} was published"
        plan = run.plan()
        if plan.finished:
            assert left.trained_once == left.prompts, left
            return "finished"
        resumes = _digest(
            [*((n, c) for n, c in tree.items() if not _is_log(n)), len(run.directory.logs())]
        )
        if self.thorough or resumes not in self._resumed:
            self._resumed.add(resumes)
            self.resumed += 1
            run.resume(plan)
            assert_all_trained(run, restarts=left.restarts + 1)
            assert run.trainer.steps == self.recording.steps, run.trainer.steps
            debris = {debris.kind for debris in scan(root, run_id).debris}
            assert debris <= {DebrisKind.ABANDONED}, debris
        return "resumed"


def assert_all_trained(run: Run, *, restarts: int) -> None:
    """The audit of a run that has come to its end."""
    audit = run.audit()
    assert audit.problems == (), audit.problems
    assert audit.ok
    assert (audit.trained_once, audit.trained_twice) == (audit.prompts, 0), audit
    assert audit.restarts == restarts, audit


def _is_log(name: str) -> bool:
    return name.startswith((f"{RUN}/events/", f"{RUN}/metrics", f"{RUN}/run.lock"))


def _digest(parts: Iterable[object]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(repr(part).encode())
    return digest.hexdigest()
