"""The commands `run` and `resume`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import click

from cutlock.bundle.publication import DebrisKind, latest, scan
from cutlock.cli.command import ToolCommand, json_option, quiet_option, write_result
from cutlock.cli.exits import ExitCode
from cutlock.cli.following import Following
from cutlock.cli.inspect import names_of
from cutlock.cli.kill_plan import KILLABLE, KillPlan
from cutlock.cli.options import beginning
from cutlock.controller.assembly import build_prompts
from cutlock.controller.core import Controller
from cutlock.controller.local import build_local
from cutlock.errors import BundleNotFoundError, ConfigError, CutlockError
from cutlock.plane.loopback import keep_ray_on_loopback
from cutlock.report.terminal import Terminal, key_values, table
from cutlock.run.config import RunConfig, load_config
from cutlock.run.directory import RunDirectory
from cutlock.run.endpoint import require_port
from cutlock.run.restore import ResumePlan, verify_for_resume
from cutlock.run.status import RunReport, Status
from cutlock.stops import NO_STOPS, StopPoints

__all__ = ["resume", "run"]

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
def run(config: Path, out: Path, json_path: Path | None, kill_at: str | None) -> None:
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
    _run(directory, loaded, None, stops, json_path)


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
    json_path: Path | None,
    kill_at: str | None,
) -> None:
    """Go on with the run in DIRECTORY from its last bundle."""
    stops = KillPlan.parse(kill_at) if kill_at is not None else NO_STOPS
    config = load_config(config_path) if config_path else None
    run_directory = RunDirectory(directory)
    path = _bundle_of(run_directory, bundle)
    run_directory.require_idle()
    terminal = Terminal.current()
    with terminal.progress() as progress:
        progress.show("verifying", path.name)
        plan = verify_for_resume(path, build_prompts, config, with_rows=not without_rows)
    if plan.finished:
        terminal.show(f"{path.name} is the end of this run; nothing is left to train.")
        write_result(json_path, _nothing_left(plan))
        return
    require_port(plan.config.metrics.host, plan.config.metrics.port)
    _run(run_directory, plan.config, plan, stops, json_path)


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
                Terminal.current().say(f"warning: passing over {debris}")
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
    directory: RunDirectory,
    config: RunConfig,
    plan: ResumePlan | None,
    stops: StopPoints,
    json_path: Path | None,
) -> None:
    terminal = Terminal.current()
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
    write_result(json_path, report)


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
