"""A run that goes on, told to a person or to a log."""

from __future__ import annotations

from cutlock.report.progress import Progress
from cutlock.run.config import RunConfig
from cutlock.run.save import FailedSave
from cutlock.run.status import RunReport, Status

__all__ = ["Following"]


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
