"""The command `demo`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import msgspec

from cutlock.cli.audit import show_audit
from cutlock.cli.command import ToolCommand, json_option, quiet_option, write_result
from cutlock.cli.demo_runs import DEMO_CONFIG, DEMO_KILLS, DemoReport, run_demo
from cutlock.cli.exits import ExitCode
from cutlock.report.terminal import Terminal, table
from cutlock.run.config import load_config
from cutlock.samplers import SAMPLER_NAMES

__all__ = ["Demo", "demo"]


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
def demo(samplers: str, out: Path | None, config_path: Path, json_path: Path | None) -> ExitCode:
    """Train, kill the controller three times, resume each time, and audit the result.

    Real Ray, TransferQueue and torch. The kills are SIGKILLs: between the cut of a save
    and its rows, between its rows and its publication, and in the middle of a commit.
    """
    names = SAMPLER_NAMES if samplers == "all" else (samplers,)
    config = load_config(config_path)
    root = out or Path(tempfile.mkdtemp(prefix="cutlock-demo-"))
    terminal = Terminal.current()
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
    found = Demo(ok=all(report.audit.ok for report in reports), out=str(root), demos=reports)
    write_result(json_path, found)
    return ExitCode.OK if found.ok else ExitCode.FAILED


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
