"""The demo: a run that is killed three times, resumed each time, and audited.

Every start is a process of its own, as it would be on a cluster; what one leaves behind for
the next is on disk.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cutlock.alphabet import Action
from cutlock.audit import Audit, audit_run
from cutlock.errors import ConfigError, CutlockError
from cutlock.events import read_log
from cutlock.report.progress import Progress
from cutlock.run.config import RunConfig
from cutlock.run.directory import RunDirectory
from cutlock.run.metrics import read_metrics

__all__ = ["DEMO_CONFIG", "DEMO_KILLS", "DemoReport", "Start", "run_demo"]

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
