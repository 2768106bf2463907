"""The command `demo`: a run that is killed three times, resumed each time, and audited.

Every start is a process of its own, as it would be on a cluster; what one leaves behind for
the next is on disk.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from cutlock.alphabet import Action
from cutlock.audit import Audit, audit_run
from cutlock.cli.audit import show_audit
from cutlock.cli.command import ExitCode, ToolCommand, current_terminal
from cutlock.cli.options import json_option, quiet_option
from cutlock.errors import ConfigError, CutlockError
from cutlock.events import read_log
from cutlock.report.progress import Progress
from cutlock.report.terminal import Terminal, table
from cutlock.run.config import RunConfig, load_config
from cutlock.run.directory import RunDirectory
from cutlock.run.metrics import read_metrics
from cutlock.samplers import SAMPLER_NAMES

__all__ = ["DEMO_CONFIG", "DEMO_KILLS", "Demo", "DemoReport", "Start", "demo", "run_demo"]

DEMO_CONFIG = Path(__file__).parents[1] / "configs" / "demo.toml"

DEMO_KILLS = ("SavePlane:3", "PublishBundle:2", "CommitGroup:30")
"""Between the cut and its rows; between rows and publication; between put and commit."""

_LIMIT_S = 240.0


class Start(msgspec.Struct, frozen=True):
    """One start of the controller."""

    command: str
    kill: str | None
    ended: str
    seconds: float


class DemoReport(msgspec.Struct, frozen=True):
    """What one demo did."""

    sampler: str
    starts: tuple[Start, ...]
    reward_first: float | None
    reward_last: float | None
    audit: Audit


def run_demo(
    config: RunConfig,
    sampler: str,
    out: Path,
    progress: Progress,
    kills: Sequence[str] = DEMO_KILLS,
) -> DemoReport:
    """Run, kill, resume, audit.

    Args:
        sampler: name of the sampler to run with.
        out: new directory of the run.
        progress: each start is an item of it.

    Raises:
        CutlockError: a start did not end as it should have.
    """
    out = out.absolute()
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty; give --out a new directory")
    out.mkdir(parents=True, exist_ok=True)
    raw = config.plain()
    raw["sampler"] = {"name": sampler, "window": 2 if sampler == "windowed" else 1}
    config_path = out / "config.toml"
    config_path.write_text(_to_toml(raw))
    run = out / "run"
    directory = RunDirectory(run)
    starts = []
    for number, kill in enumerate([*kills, None], 1):
        command = (
            ["resume", str(run)] if number > 1 else ["run", str(config_path), "--out", str(run)]
        )
        command += ["--json", str(out / f"start-{number}.json")]
        command += ["--kill-at", kill] if kill else []
        stage = f"{sampler}, start {number} of {len(kills) + 1}"
        progress.show(stage, f"{command[0]}{f', SIGKILL at {kill}' if kill else ''}")
        output = out / f"start-{number}.log"
        starts.append(_start(command, kill, output))
        if kill:
            _require_killed(directory, number, kill, output)
        progress.item(f"{stage}: {starts[-1].ended}")
    return DemoReport(sampler, tuple(starts), *_rewards(directory), audit_run(directory))


def _start(command: list[str], kill: str | None, output: Path) -> Start:
    began = time.monotonic()
    with output.open("wb") as stream:
        try:
            code = subprocess.run(
                [sys.executable, "-m", "cutlock", *command],
                stdout=stream,
                stderr=subprocess.STDOUT,
                timeout=_LIMIT_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise CutlockError(
                f"`cutlock {' '.join(command)}` did not end within {_LIMIT_S:g} s; its output "
                f"is in {output}"
            ) from error
    if (code == 0) is not (kill is None):
        raise CutlockError(
            f"`cutlock {' '.join(command)}` ended with code {code}, "
            f"{'which is no success' if kill is None else f'before it came to {kill}'}; its "
            f"output is in {output}"
        )
    ended = "killed" if kill else "finished"
    return Start(command[0], kill, ended, time.monotonic() - began)


def _require_killed(directory: RunDirectory, number: int, kill: str, output: Path) -> None:
    """A killed controller leaves a log without an end; a start that failed does not count."""
    path = directory.log_path(number)
    actions = [record.action for record in read_log(path)] if path.exists() else []
    if Action.START_PUMPS not in actions or actions[-1] == Action.END_RUN:
        raise CutlockError(
            f"start {number} ended before it came to {kill}; its output is in {output} and its "
            f"event log is {path}"
        )


def _rewards(run: RunDirectory) -> tuple[float | None, float | None]:
    """Mean rewards of the first and the last steps of the run."""
    rewards = [step.report.reward_mean for step in read_metrics(run)]
    edge = min(5, len(rewards) // 2)
    if not edge:
        return None, None
    return sum(rewards[:edge]) / edge, sum(rewards[-edge:]) / edge


def _to_toml(raw: dict[str, object], prefix: str = "") -> str:
    lines = [
        f"{key} = {_toml_value(value)}"
        for key, value in raw.items()
        if value is not None and not isinstance(value, dict)
    ]
    text = "\n".join(lines) + "\n"
    for key, value in raw.items():
        if isinstance(value, dict):
            text += f"\n[{prefix}{key}]\n{_to_toml(value, f'{prefix}{key}.')}"
    return text


def _toml_value(value: object) -> str:
    return msgspec.json.encode(value).decode()


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """All demos of one call."""

    ok: bool
    """Nothing lost and nothing repeated in any of them."""
    out: str
    """Directory of the runs."""
    demos: tuple[DemoReport, ...]


@click.command(
    cls=ToolCommand,
    result=Demo,
    examples=("cutlock demo", "cutlock demo --sampler all --out runs/demo --json demo.json"),
    exits={
        ExitCode.OK: "nothing lost, nothing repeated",
        ExitCode.FAILED: "a run failed, or the audit found a lost or repeated prompt",
        ExitCode.USAGE: "wrong usage or configuration",
        ExitCode.INTERRUPTED: "interrupted; the runs are kept as they are",
    },
)
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
@quiet_option
@json_option
def demo(samplers: str, out: Path | None, config_path: Path) -> Demo:
    """Train, kill the controller three times, resume each time, and audit the result.

    Real Ray, TransferQueue and torch. The kills are SIGKILLs: between the cut of a save
    and its rows, between its rows and its publication, and in the middle of a commit.
    """
    names = SAMPLER_NAMES if samplers == "all" else (samplers,)
    config = load_config(config_path)
    root = out or Path(tempfile.mkdtemp(prefix="cutlock-demo-"))
    terminal = current_terminal()
    with terminal.progress() as progress:
        progress.total = len(names) * (len(DEMO_KILLS) + 1)
        try:
            reports = tuple(run_demo(config, name, root / name, progress) for name in names)
        except KeyboardInterrupt as error:
            error.add_note(f"what the runs have written is kept in {root}")
            raise
    for report in reports:
        _show(terminal, report)
    terminal.show(f"Runs, logs and bundles: {root}")
    return Demo(ok=all(report.audit.ok for report in reports), out=str(root), demos=reports)


def _show(terminal: Terminal, report: DemoReport) -> None:
    rows = [
        (number, start.command, start.kill or "-", start.ended, f"{start.seconds:.0f}")
        for number, start in enumerate(report.starts, 1)
    ]
    columns = ("start", "command", "SIGKILL at", "end", "seconds")
    terminal.show(table(f"Demo, sampler {report.sampler}", columns, rows))
    windows = [
        (f"step_{w.step}", w.drain, w.exclusive, w.rest) for w in report.audit.exclusive_window_ms
    ]
    terminal.show(table("Saves, in ms", ("bundle", "drain", "exclusive", "rest"), windows))
    if report.reward_first is not None and report.reward_last is not None:
        terminal.show(
            f"Mean reward: {report.reward_first:.2f} in the first steps, "
            f"{report.reward_last:.2f} in the last."
        )
    show_audit(terminal, report.audit)
