"""The commands `run` and `resume`, what they say while a run goes on, and `--kill-at`."""

from __future__ import annotations

import asyncio
import difflib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from cutlock.alphabet import Action
from cutlock.bundle.publication import DebrisKind, latest, scan
from cutlock.cli.command import ExitCode, ToolCommand, current_terminal
from cutlock.cli.inspect import names_of
from cutlock.cli.options import beginning, json_option, quiet_option
from cutlock.controller.assembly import build_prompts
from cutlock.controller.core import Controller
from cutlock.controller.local import build_local
from cutlock.errors import BundleNotFoundError, ConfigError, CutlockError
from cutlock.plane.loopback import keep_ray_on_loopback
from cutlock.report.progress import Progress
from cutlock.report.terminal import Terminal, key_values, table
from cutlock.run.config import RunConfig, load_config
from cutlock.run.directory import RunDirectory
from cutlock.run.endpoint import require_port
from cutlock.run.restore import ResumePlan, verify_for_resume
from cutlock.run.save import FailedSave
from cutlock.run.status import RunReport, Status
from cutlock.stops import NO_STOPS, StopPoints

__all__ = ["KILLABLE", "NEVER_ANNOUNCED", "Following", "KillPlan", "resume", "run"]

NEVER_ANNOUNCED = frozenset(
    {
        Action.CRASH,
        Action.BEGIN_RUN,
        Action.START_PUMPS,
        Action.END_RUN,
        Action.FILL_SPARE_POOL,
        Action.BEGIN_COMMIT,
        Action.FAIL_GROUP,
        Action.SUBSTITUTE_GROUP,
        Action.FAIL_SAVE,
        Action.STORE_ROW,
        Action.VERIFY_BUNDLE,
        Action.LOAD_PLANE,
        Action.CONNECT_PLANE,
    }
)
"""Actions without a stop point: they follow another one at once, or come from outside."""

KILLABLE = tuple(action.value for action in Action if action not in NEVER_ANNOUNCED)
"""Names of the actions at which a run can be killed."""

_STATUS_PERIOD_S = 0.5

_EXITS = {
    ExitCode.OK: "the run has come to its end",
    ExitCode.FAILED: "the run failed, or the bundle is not whole",
    ExitCode.USAGE: "wrong usage, configuration, or path",
    ExitCode.INTERRUPTED: "interrupted; the last bundle is kept",
}

_kill_option = click.option(
    "--kill-at",
    metavar="ACTION[:N]",
    shell_complete=beginning(lambda ctx: KILLABLE),
    help="Fault injection: the controller kills its own process (SIGKILL) when it comes to "
    "the action for the N-th time, e.g. SavePlane:2.",
)


class KillPlan(msgspec.Struct, frozen=True):
    """Stop points that send SIGKILL to this process at the n-th announcement of an action."""

    action: Action
    count: int
    _seen: list[int] = msgspec.field(default_factory=lambda: [0])

    @classmethod
    def parse(cls, text: str) -> KillPlan:
        """Read `Action` or `Action:N`.

        Raises:
            ConfigError: no such action, one without a stop point, or N is not a positive
                number.
        """
        name, colon, count = text.partition(":")
        if name not in KILLABLE:
            known = name in {action.value for action in Action}
            near = difflib.get_close_matches(name, KILLABLE, 1)
            raise ConfigError(
                f"{name!r} is {'an action without a stop point' if known else 'no action'}"
                f"{f' (did you mean {near[0]}?)' if near else ''}; choose one of "
                f"{', '.join(KILLABLE)}"
            )
        if colon and not (count.isdecimal() and int(count) > 0):
            raise ConfigError(
                f"{text!r}: the count must be 1 or more, not {count!r}; write e.g. {name}:2"
            )
        return cls(Action(name), int(count or 1))

    async def reach(self, action: Action, /, **where: object) -> None:
        """Die if this is the moment."""
        if action is self.action:
            self._seen[0] += 1
            if self._seen[0] == self.count:
                os.kill(os.getpid(), signal.SIGKILL)


@click.command(
    cls=ToolCommand,
    result=RunReport,
    examples=(
        "cutlock example run.toml > run.toml",
        "cutlock run run.toml --out runs/first",
    ),
    exits=_EXITS,
)
@click.argument("config", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Directory of the run; new or empty.",
)
@_kill_option
@quiet_option
@json_option
def run(config: Path, out: Path, kill_at: str | None) -> RunReport:
    """Run CONFIG (TOML) from the start."""
    loaded = load_config(config)
    stops = KillPlan.parse(kill_at) if kill_at is not None else NO_STOPS
    try:
        prompts = build_prompts(loaded)
    except ConfigError as error:
        raise ConfigError(f"{config}: [task]: {error}") from error
    require_port(loaded.metrics.host, loaded.metrics.port)
    directory = RunDirectory(out)
    directory.create(loaded, prompts)
    return _run(directory, loaded, None, stops)


@click.command(
    cls=ToolCommand,
    result=RunReport,
    examples=(
        "cutlock resume runs/first",
        "cutlock resume runs/first --bundle step_8 --config changed.toml",
    ),
    exits=_EXITS,
)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--bundle",
    metavar="NAME",
    help="Resume from this bundle, e.g. step_8, instead of the latest; newer ones are set aside.",
)
@click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Go on with this configuration instead of the saved one.",
)
@click.option(
    "--without-rows",
    is_flag=True,
    help="Do not restore finished rollouts; their prompts are generated again.",
)
@_kill_option
@quiet_option
@json_option
def resume(
    directory: Path,
    bundle: str | None,
    config_path: Path | None,
    without_rows: bool,
    kill_at: str | None,
) -> RunReport:
    """Continue the run in DIRECTORY from its last bundle."""
    stops = KillPlan.parse(kill_at) if kill_at is not None else NO_STOPS
    config = load_config(config_path) if config_path else None
    run_directory = RunDirectory(directory)
    path = _bundle_of(run_directory, bundle)
    terminal = current_terminal()
    with terminal.progress() as progress, run_directory.taken(run_directory.seen):
        progress.show("verifying", path.name)
        plan = verify_for_resume(path, build_prompts, config, with_rows=not without_rows)
    if plan.finished:
        terminal.show(f"{path.name} is the end of this run; nothing is left to train.")
        return _nothing_left(plan)
    require_port(plan.config.metrics.host, plan.config.metrics.port)
    return _run(run_directory, plan.config, plan, stops)


def _bundle_of(directory: RunDirectory, name: str | None) -> Path:
    """The bundle of that name, or else the latest; what is passed over is said."""
    root = directory.root
    found = scan(root, directory.facts().run_id)
    if name is None:
        unpublished = all(debris.kind is DebrisKind.UNPUBLISHED for debris in found.debris)
        if not found.bundles and unpublished:
            raise BundleNotFoundError(
                f"the run in {root} ended before its first save, so that nothing of it is kept; "
                "start it again with `cutlock run` and a new directory"
            )
        for debris in found.debris:
            if debris.kind in {DebrisKind.BROKEN, DebrisKind.FOREIGN, DebrisKind.UNPUBLISHED}:
                current_terminal().say(f"warning: passing over {debris}")
        return latest(root, directory.facts().run_id)
    wanted = Path(name)
    inside = wanted.name == name or wanted.absolute().parent == root
    for bundle in found.bundles:
        if inside and bundle.path.name == wanted.name:
            return bundle.path
    raise BundleNotFoundError(
        f"{root} has no resolvable bundle {name!r}; there are: {names_of(found)}"
        + "".join(f"; {debris}" for debris in found.debris if debris.path.name == wanted.name)
    )


def _nothing_left(plan: ResumePlan) -> RunReport:
    """The report of a resume that had nothing to do."""
    budget = plan.config.max_steps
    spent = budget is not None and plan.snapshot.step >= budget
    ended = "max_steps" if spent else "exhausted"
    return RunReport(ended=ended, steps=(), saves=(), slots={}, dropped=plan.snapshot.dropped)


def _run(
    directory: RunDirectory, config: RunConfig, plan: ResumePlan | None, stops: StopPoints
) -> RunReport:
    terminal = current_terminal()
    with terminal.progress() as progress:
        following = Following(progress, config, plan.snapshot.step if plan is not None else 0)
        try:
            if config.plane.kind == "memory":
                report = asyncio.run(_run_here(directory, config, plan, stops, following.watch))
            else:
                report = _run_on_ray(directory, config, plan, stops, following.watch)
        except CutlockError as error:
            if "cutlock resume" not in str(error) and not isinstance(error, ConfigError):
                error.add_note(_way_on(directory))
            raise
        except KeyboardInterrupt as error:
            error.add_note(_way_on(directory))
            raise
        following.end(report)
    _show(terminal, report, plan)
    return report


def _way_on(directory: RunDirectory) -> str:
    if scan(directory.root).bundles:
        return f"go on from the last bundle with `cutlock resume {directory.root}`"
    return "nothing was saved yet; start again with `cutlock run` and a new directory"


async def _run_here(
    directory: RunDirectory,
    config: RunConfig,
    plan: ResumePlan | None,
    stops: StopPoints,
    watch: Callable[[str, Status | None], None],
) -> RunReport:
    with directory.taken(directory.seen):
        controller = await build_local(directory, config, plan, stops=stops)
        watching = asyncio.create_task(_watch(controller, watch))
        try:
            return await controller.run()
        finally:
            watching.cancel()


async def _watch(controller: Controller, watch: Callable[[str, Status | None], None]) -> None:
    while True:
        watch("running", controller.status())
        await asyncio.sleep(_STATUS_PERIOD_S)


def _run_on_ray(
    directory: RunDirectory,
    config: RunConfig,
    plan: ResumePlan | None,
    stops: StopPoints,
    watch: Callable[[str, Status | None], None],
) -> RunReport:
    keep_ray_on_loopback()
    # What TransferQueue warns of is said by our own errors, in one line.
    os.environ.setdefault("TQ_LOGGING_LEVEL", "ERROR")
    from cutlock.controller.setup import run_on_ray

    return asyncio.run(run_on_ray(directory, config, plan, stops=stops, watch=watch))


def _show(terminal: Terminal, report: RunReport, plan: ResumePlan | None) -> None:
    rewards = [step.report.reward_mean for step in report.steps]
    edge = max(1, min(5, len(rewards) // 2))
    values: list[tuple[str, object]] = [
        ("began with", plan.bundle.name if plan is not None else "nothing"),
        ("ended", report.ended),
        ("steps", len(report.steps)),
        ("dropped", report.dropped),
    ]
    if rewards:
        first, last = sum(rewards[:edge]) / edge, sum(rewards[-edge:]) / edge
        steps = f"first {edge} steps" if edge > 1 else "first step"
        values.append(("mean reward", f"{first:.2f} ({steps}) to {last:.2f} (last)"))
    terminal.show(key_values("Run", values))
    if report.saves:
        rows = [
            (
                f"step_{save.step}",
                save.groups,
                f"{save.size / 1024:,.0f}",
                save.drain * 1e3,
                save.exclusive * 1e3,
                save.asynchronous * 1e3,
            )
            for save in report.saves
        ]
        columns = ("bundle", "groups", "KiB", "drain ms", "exclusive ms", "rest ms")
        terminal.show(table("Saves", columns, rows))


class Following:
    """Tells a `Progress` what a run does; each step is an item.

    Args:
        begins: the step that the run begins with.
    """

    def __init__(self, progress: Progress, config: RunConfig, begins: int) -> None:
        self._progress = progress
        self._told: set[str] = set()
        steps = config.epochs * -(-config.task.prompts // config.prompts_per_step)
        progress.done = begins
        progress.total = steps if config.max_steps is None else min(steps, config.max_steps)

    def watch(self, stage: str, status: Status | None) -> None:
        """Be told the stage, and how the run stands."""
        if status is None:
            self._progress.show(stage)
            return
        if status.metrics_url:
            self._tell(f"metrics: {status.metrics_url}")
        for stall in status.stalls:
            self._warn(stall.message)
        for save in status.failed_saves:
            self._warn(_failed(save))
        if status.step > self._progress.done:
            self._progress.item(_trained(status.reward_mean, status.saves), done=status.step)
        self._progress.show(stage, _line(status))

    def end(self, report: RunReport) -> None:
        """Say what has happened since the last look."""
        if report.steps and (step := report.steps[-1].step + 1) > self._progress.done:
            reward = report.steps[-1].report.reward_mean
            self._progress.item(_trained(reward, len(report.saves)), done=step)
        self._progress.close()
        for save in report.failed_saves:
            self._warn(_failed(save))

    def _warn(self, warning: str) -> None:
        self._tell(f"warning: {warning}")

    def _tell(self, text: str) -> None:
        """Say it once."""
        if text not in self._told:
            self._told.add(text)
            self._progress.note(text)


def _failed(save: FailedSave) -> str:
    return f"the save of step {save.step} failed: {save.error}"


def _trained(reward: float | None, saves: int) -> str:
    mean = "" if reward is None else f"reward {reward:.2f}, "
    return f"steps trained: {mean}{saves} saved"


def _line(status: Status) -> str:
    parts = [f"{status.in_flight} in flight", f"{status.ready} ready", f"{status.saves} saved"]
    if status.reward_mean is not None:
        parts.append(f"reward {status.reward_mean:.2f}")
    if status.waiting_for:
        parts.append(f"waiting for {status.waiting_for}")
    return ", ".join(parts)
