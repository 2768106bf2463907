"""The command line."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from cutlock import __version__
from cutlock.audit import Audit, audit_run
from cutlock.bench import bench
from cutlock.bundle.artifacts import ARTIFACTS, MANIFEST
from cutlock.bundle.names import parse_name
from cutlock.bundle.publication import DebrisKind, Scan, latest, scan
from cutlock.conformance.paths.command import paths
from cutlock.conformance.replay.command import replay
from cutlock.conformance.validation.command import validate_runs
from cutlock.controller.assembly import build_prompts
from cutlock.controller.config import RunConfig, load_config
from cutlock.controller.core import RunReport, Status
from cutlock.controller.kill_plan import KillPlan
from cutlock.controller.local import build_local
from cutlock.controller.restore import ResumePlan, read_bundle, verify_for_resume
from cutlock.controller.run_directory import RunDirectory
from cutlock.demo import DEMO_CONFIG, DemoReport, run_demo
from cutlock.errors import BundleNotFoundError, ConfigError, CutlockError
from cutlock.example import example
from cutlock.plane.loopback import keep_ray_on_loopback
from cutlock.report.terminal import Progress, key_values, table
from cutlock.samplers import SAMPLER_NAMES
from cutlock.stops import NO_STOPS, StopPoints
from cutlock.tlc.commands import check, doctor, mutants

__all__ = ["main"]

_EXIT_CODES = """\b
Exit codes:
  0  as expected
  1  the run failed, or the audit found a lost or repeated prompt
  2  wrong usage, configuration, or path
"""

_console = Console(markup=False, emoji=False, highlight=False)
_errors = Console(stderr=True, markup=False, emoji=False, highlight=False)

_json_option = click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the result to this file as JSON.",
)
_kill_option = click.option(
    "--kill-at",
    metavar="ACTION[:N]",
    help="Fault injection: the controller kills its own process (SIGKILL) when it comes to "
    "the action for the N-th time, e.g. SavePlane:2.",
)


class _Group(click.Group):
    """Turns errors of the family, and of the system, into one line on stderr and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (CutlockError, OSError) as error:
            _say("error", "; ".join([str(error), *getattr(error, "__notes__", ())]))
            usage = isinstance(error, ConfigError | BundleNotFoundError)
            ctx.exit(2 if usage else 1)


def _say(kind: str, text: str) -> None:
    """One line on stderr, however long."""
    line = " ".join(f"{kind}: {text}".split())
    _errors.print(line, soft_wrap=True)


@click.group(
    cls=_Group, epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="cutlock")
def main() -> None:
    """Checkpoints of asynchronous RL post-training as one atomic cut."""


@main.command(short_help="Run a configuration from the start.")
@click.argument("config", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Directory of the run; new or empty.",
)
@_json_option
@_kill_option
def run(config: Path, out: Path, json_path: Path | None, kill_at: str | None) -> None:
    """Run CONFIG (TOML) from the start.

    \b
    Example:
      cutlock example run.toml > run.toml
      cutlock run run.toml --out runs/first
    """
    loaded = load_config(config)
    stops = KillPlan.parse(kill_at) if kill_at is not None else NO_STOPS
    try:
        prompts = build_prompts(loaded)
    except ConfigError as error:
        raise ConfigError(f"{config}: [task]: {error}") from error
    directory = RunDirectory(out)
    directory.create(loaded, prompts)
    _run(directory, loaded, None, stops, json_path)


@main.command(short_help="Go on with a run from its last bundle.")
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
@_json_option
@_kill_option
def resume(
    directory: Path,
    bundle: str | None,
    config_path: Path | None,
    without_rows: bool,
    json_path: Path | None,
    kill_at: str | None,
) -> None:
    """Go on with the run in DIRECTORY from its last bundle.

    \b
    Examples:
      cutlock resume runs/first
      cutlock resume runs/first --bundle step_8 --config changed.toml
    """
    stops = KillPlan.parse(kill_at) if kill_at is not None else NO_STOPS
    config = load_config(config_path) if config_path else None
    run_directory = RunDirectory(directory)
    path = _bundle_of(run_directory, bundle)
    run_directory.require_idle()
    with Progressing() as progress:
        progress.show("verifying", path.name)
        plan = verify_for_resume(path, build_prompts, config, with_rows=not without_rows)
    if plan.finished:
        _console.print(f"{path.name} is the end of this run; nothing is left to train.")
        if json_path is not None:
            _write_json(json_path, _nothing_left(plan))
        return
    _run(run_directory, plan.config, plan, stops, json_path)


@main.command(short_help="Train, kill three times, resume each time, audit.")
@click.option(
    "--sampler",
    "samplers",
    type=click.Choice([*SAMPLER_NAMES, "all"]),
    default="in_order",
    show_default=True,
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the runs; a temporary one if left out.",
)
@click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=DEMO_CONFIG,
    help="Another configuration than the shipped one.",
)
@_json_option
def demo(samplers: str, out: Path | None, config_path: Path, json_path: Path | None) -> None:
    """Train, kill the controller three times, resume each time, and audit the result.

    Real Ray, TransferQueue and torch. The kills are SIGKILLs: between the cut of a save
    and its rows, between its rows and its publication, and in the middle of a commit.
    """
    names = SAMPLER_NAMES if samplers == "all" else (samplers,)
    root = out or Path(tempfile.mkdtemp(prefix="cutlock-demo-"))
    config = load_config(config_path)
    with Progressing() as progress:
        reports = [run_demo(config, name, root / name, progress.show) for name in names]
    for report in reports:
        _print_demo(report)
    if json_path is not None:
        result = reports[0].audit if len(reports) == 1 else {r.sampler: r.audit for r in reports}
        _write_json(json_path, result)
    _console.print(f"Runs, logs and bundles: {root}", soft_wrap=True)
    sys.exit(0 if all(report.audit.ok for report in reports) else 1)


@main.command(short_help="Account for every prompt of a run.")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@_json_option
def audit(directory: Path, json_path: Path | None) -> None:
    """Account for every prompt of the run in DIRECTORY, from its logs and bundles alone."""
    found = audit_run(RunDirectory(directory))
    _print_audit(found)
    if json_path is not None:
        _write_json(json_path, found)
    sys.exit(0 if found.ok else 1)


@main.command(short_help="Verify a bundle and say what it holds.")
@click.argument("bundle", type=click.Path(path_type=Path))
@_json_option
def inspect(bundle: Path, json_path: Path | None) -> None:
    """Verify BUNDLE (a step_N directory) and say what it holds; unpickles nothing."""
    if not bundle.exists():
        raise BundleNotFoundError(f"{bundle} does not exist; give the path of a step_N directory")
    if (bundle / "run.json").exists():
        raise BundleNotFoundError(
            f"{bundle} is the directory of a run; give one of its bundles: "
            f"{_names(scan(bundle.absolute()))}"
        )
    if not (bundle / MANIFEST).exists() and parse_name(bundle.name) is None:
        raise BundleNotFoundError(
            f"{bundle} is no bundle, it has no {MANIFEST}; give the path of a step_N directory"
        )
    path = bundle.absolute()
    verified, info, cut = read_bundle(path)
    values: list[tuple[str, object]] = [
        ("run", info.run_id),
        ("sequence", verified.manifest.sequence),
        ("step / version", f"{cut.step} / {cut.version}"),
        ("sampler, cursor", f"{info.sampler}, {cut.cursor}"),
        ("loader", f"epoch {cut.loader.epoch}, {cut.loader.position} prompts served"),
        ("index", f"{len(cut.index)} finished groups"),
        ("ledger", f"{len(cut.ledger)} groups owed"),
        ("spare pool", f"{len(cut.spare_pool)} prompts"),
        ("shortfall", dict(cut.shortfall) or "none"),
        ("trained", f"{info.trained_groups} groups, chain {info.trained_chain[:16]}"),
        ("saved by", f"incarnation {info.incarnation}, after {info.log_records} log records"),
        ("packages", ", ".join(f"{k} {v}" for k, v in info.packages.items())),
    ]
    _console.print(key_values(f"{bundle.name}: verified", values))
    files = [(file.name, file.size, file.sha256[:16]) for file in verified.manifest.files]
    _console.print(table("Files", ("name", "bytes", "sha256"), files))
    if json_path is not None:
        _write_json(
            json_path,
            {
                "info": info,
                "cut": cut,
                "manifest": verified.manifest,
                "artifacts": {a.name: a.content for a in ARTIFACTS},
            },
        )


for command in (check, mutants, replay, paths, validate_runs, doctor, bench, example):
    main.add_command(command)


class Progressing:
    """A `Progress` that is closed at the end of a block."""

    def __enter__(self) -> Progress:
        self._progress = Progress(_console)
        return self._progress

    def __exit__(self, *error: object) -> None:
        self._progress.close()


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
                _say("warning", f"passing over {debris}")
        return latest(root, directory.facts().run_id)
    wanted = Path(name)
    inside = wanted.name == name or wanted.absolute().parent == root
    for bundle in found.bundles:
        if inside and bundle.path.name == wanted.name:
            return bundle.path
    raise BundleNotFoundError(
        f"{root} has no resolvable bundle {name!r}; there are: {_names(found)}"
        + "".join(f"; {debris}" for debris in found.debris if debris.path.name == wanted.name)
    )


def _names(found: Scan) -> str:
    return ", ".join(bundle.path.name for bundle in found.bundles) or "none"


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
    with Progressing() as progress:

        def watch(stage: str, status: Status | None) -> None:
            progress.show(stage, _status_line(status) if status else "")

        try:
            if config.plane.kind == "memory":
                report = asyncio.run(_run_here(directory, config, plan, stops))
            else:
                report = _run_on_ray(directory, config, plan, stops, watch)
        except CutlockError as error:
            if "cutlock resume" not in str(error) and not isinstance(error, ConfigError):
                error.add_note(_way_on(directory))
            raise
        except KeyboardInterrupt:
            _say("interrupted", _way_on(directory))
            raise
    _print_report(report)
    if json_path is not None:
        _write_json(json_path, report)


def _way_on(directory: RunDirectory) -> str:
    if scan(directory.root).bundles:
        return f"go on from the last bundle with `cutlock resume {directory.root}`"
    return "nothing was saved yet; start again with `cutlock run` and a new directory"


async def _run_here(
    directory: RunDirectory, config: RunConfig, plan: ResumePlan | None, stops: StopPoints
) -> RunReport:
    with directory.lock():
        controller = await build_local(directory, config, plan, stops=stops)
        return await controller.run()


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


def _status_line(status: Status) -> str:
    parts = [
        f"step {status.step}",
        f"{status.in_flight} in flight",
        f"{status.ready} ready",
        f"{status.saves} saved",
    ]
    if status.reward_mean is not None:
        parts.append(f"reward {status.reward_mean:.2f}")
    if status.waiting_for:
        parts.append(f"waiting for {status.waiting_for}")
    parts += [f"STALL: {stall.message}" for stall in status.stalls[-1:]]
    parts += [f"SAVE OF STEP {save.step} FAILED: {save.error}" for save in status.failed_saves[-1:]]
    return ", ".join(parts)


def _print_report(report: RunReport) -> None:
    rewards = [step.report.reward_mean for step in report.steps]
    edge = max(1, min(5, len(rewards) // 2))
    values: list[tuple[str, object]] = [
        ("ended", report.ended),
        ("steps", len(report.steps)),
        ("dropped", report.dropped),
    ]
    if rewards:
        first, last = sum(rewards[:edge]) / edge, sum(rewards[-edge:]) / edge
        steps = f"first {edge} steps" if edge > 1 else "first step"
        values.append(("mean reward", f"{first:.2f} ({steps}) to {last:.2f} (last)"))
    _console.print(key_values("Run", values))
    if report.saves:
        rows = [
            (f"step_{s.step}", s.groups, s.drain * 1e3, s.exclusive * 1e3, s.asynchronous * 1e3)
            for s in report.saves
        ]
        columns = ("bundle", "groups", "drain ms", "exclusive ms", "rest ms")
        _console.print(table("Saves", columns, rows))
    for save in report.failed_saves:
        _say("warning", f"the save of step {save.step} failed: {save.error}")


def _print_audit(found: Audit) -> None:
    _console.print(
        key_values(
            "Audit",
            [
                ("prompts (x epochs)", found.prompts),
                ("trained once", found.trained_once),
                ("trained twice", found.trained_twice),
                ("lost", found.lost),
                ("dropped on purpose", _dropped(found)),
                ("pending", found.pending),
                ("unread", found.unread),
                ("restarts", found.restarts),
                ("steps", found.steps),
                ("groups trained again", f"{found.redone} (in undone parts of the logs)"),
                ("ended", found.ended or "killed, or still running"),
                ("verdict", "nothing lost, nothing repeated" if found.ok else "NOT CLEAN"),
            ],
        )
    )
    for problem in found.problems[:20]:
        _say("problem", problem)
    if len(found.problems) > 20:
        _say("problem", f"and {len(found.problems) - 20} more; see --json")


def _dropped(found: Audit) -> str:
    reasons = Counter(found.drop_reasons.values()).most_common(3)
    more = len(set(found.drop_reasons.values())) - len(reasons)
    listed = [f"{times} x {reason}" for reason, times in reasons] + [f"{more} more"] * bool(more)
    return f"{found.dropped}{': ' if listed else ''}{'; '.join(listed)}"


def _print_demo(report: DemoReport) -> None:
    rows = [
        (number, start.command, start.kill or "-", start.ended, f"{start.seconds:.0f}")
        for number, start in enumerate(report.starts, 1)
    ]
    columns = ("start", "command", "SIGKILL at", "end", "seconds")
    _console.print(table(f"Demo, sampler {report.sampler}", columns, rows))
    windows = [
        (f"step_{w.step}", w.drain, w.exclusive, w.rest) for w in report.audit.exclusive_window_ms
    ]
    _console.print(table("Saves, in ms", ("bundle", "drain", "exclusive", "rest"), windows))
    if report.reward_first is not None and report.reward_last is not None:
        _console.print(
            f"Mean reward: {report.reward_first:.2f} in the first steps, "
            f"{report.reward_last:.2f} in the last."
        )
    _print_audit(report.audit)


def _write_json(path: Path, result: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")


if __name__ == "__main__":
    main()
