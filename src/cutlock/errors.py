"""The error family: every error that cutlock raises on purpose derives from `CutlockError`.

Each message names the offending value and the way out, so a caller can act on the text
alone. Programming mistakes (a dead slot, a nested slot) are `MisuseError`s and raise at
once; bad input from disk or configuration never is one.
"""

from __future__ import annotations

from pathlib import Path

__all__ = [
    "AdmissionWaitError",
    "AuditError",
    "BudgetError",
    "BundleCorruptError",
    "BundleExistsError",
    "BundleNotFoundError",
    "CapacityError",
    "ConfigError",
    "ConfigMismatchError",
    "ConformanceError",
    "ConnectError",
    "CutlockError",
    "DeadSectionError",
    "DivergenceError",
    "DropBudgetError",
    "ForeignSectionError",
    "InvariantError",
    "InventoryError",
    "MisuseError",
    "NoPlaceError",
    "NoWorkerError",
    "NotEnabledError",
    "NoticedError",
    "PlaneError",
    "PlaneLostError",
    "PlaneTimeoutError",
    "PlaneTouchedError",
    "ReentryError",
    "RestoreError",
    "RowsMissingError",
    "SaveError",
    "StallError",
    "ToolError",
    "ToolMissingError",
    "WorkerError",
    "WorkerLostError",
    "WorkerTimeoutError",
]


class CutlockError(Exception):
    """Base of the family."""


class MisuseError(CutlockError):
    """The calling code broke a rule of the API; the code has to change."""


class ReentryError(MisuseError):
    """A task that holds a section of a barrier asked for another one, which would deadlock."""


class DeadSectionError(MisuseError):
    """A slot or cut was used after it had ended."""


class ForeignSectionError(MisuseError):
    """The proof of exclusion is of another barrier, or of the wrong side of this one."""


class InvariantError(CutlockError):
    """State that the protocol forbids was about to be made; nothing was changed."""


class AdmissionWaitError(MisuseError):
    """A custom sampler's `admit()` waited for more than one trainer step."""


class ConfigError(CutlockError):
    """A configuration value is unknown or out of range."""


class CapacityError(ConfigError):
    """The buffer capacity is below what the sampler or the restored groups need."""


class ConfigMismatchError(ConfigError):
    """The configuration of a resume differs from the saved one in a field that cannot change."""


class PlaneError(CutlockError):
    """The data plane failed or answered with something else than was asked for."""


class ConnectError(PlaneError):
    """There is no data plane to connect to; a client never starts one by itself."""


class PlaneTimeoutError(PlaneError):
    """A call to the data plane did not end within its limit."""


class PlaneLostError(PlaneError):
    """A part of the data plane is dead or hangs; no later call of this client is begun."""


class PlaneTouchedError(PlaneError):
    """A restore was asked of a data plane that somebody has already used."""


class RowsMissingError(PlaneError):
    """A read returned fewer rows or fields than were asked for."""


class InventoryError(InvariantError):
    """The rows in the plane are not the rows of the index."""


class SaveError(CutlockError):
    """A checkpoint failed; the run goes on and the previous bundle stays the last good one."""


class BundleNotFoundError(CutlockError):
    """There is no resolvable bundle where one was asked for."""


class BundleCorruptError(CutlockError):
    """A file of a bundle is missing, altered, extra, or of another save.

    `bundle` is the directory, so that a caller can go on with an older one.
    """

    def __init__(self, message: str, bundle: Path | None = None) -> None:
        super().__init__(message)
        self.bundle = bundle


class BundleExistsError(CutlockError):
    """A bundle of that step is already published."""


class RestoreError(CutlockError):
    """A verified bundle cannot be restored; nothing was launched."""


class WorkerError(CutlockError):
    """A trainer or generation worker failed."""


class WorkerTimeoutError(WorkerError):
    """A trainer or generation worker did not answer within its limit."""


class WorkerLostError(WorkerError):
    """A worker has died with what it was doing; another one of its kind can do it."""


class NoWorkerError(WorkerError):
    """No worker is left that could do the work."""


class DropBudgetError(CutlockError):
    """More prompts were dropped for good than the configuration allows."""


class StallError(CutlockError):
    """Work remains and nothing has moved for the configured time."""


class AuditError(CutlockError):
    """The logs and bundles of a run cannot be read as one history."""


class ToolMissingError(CutlockError):
    """Java or the model checker was not found, or what was found does not run."""


class ToolError(CutlockError):
    """The model checker did not do its work, or said something that cannot be understood."""


class BudgetError(CutlockError):
    """The model checker was stopped at its time limit before it had an answer."""


class ConformanceError(CutlockError):
    """Specification and code cannot be compared, or do not agree."""


class NotEnabledError(ConformanceError):
    """The code does not stand where the action could happen; nothing was changed."""


class DivergenceError(ConformanceError):
    """Specification and code have done the same action and do not agree about what came of it."""


class NoPlaceError(ConfigError):
    """The code has no place for what a counterexample of the model is about; says why."""


class NoticedError(DivergenceError):
    """A check of the code has raised in the middle of a trace, so that nothing comes after it."""
