"""cutlock: the checkpoint of an asynchronous RL post-training run as one atomic cut.

All public names are here, and are explained one by one in `docs/guide.md`. They are imported when
they are first used: `import cutlock` alone loads neither torch nor Ray. Errors are in
`cutlock.errors`, one family under `CutlockError`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from cutlock.version import __version__ as __version__

if TYPE_CHECKING:
    from cutlock.audit import Audit as Audit
    from cutlock.audit import audit_run as audit_run
    from cutlock.barrier import Barrier as Barrier
    from cutlock.barrier import Cut as Cut
    from cutlock.barrier import Slot as Slot
    from cutlock.buffer import ReplayBuffer as ReplayBuffer
    from cutlock.controller.single import setup_single_controller as setup_single_controller
    from cutlock.errors import CutlockError as CutlockError
    from cutlock.ledger import Ledger as Ledger
    from cutlock.plane.base import BootstrapPlane as BootstrapPlane
    from cutlock.plane.base import DataPlane as DataPlane
    from cutlock.plane.base import Fields as Fields
    from cutlock.plane.base import PlaneInfo as PlaneInfo
    from cutlock.plane.base import PlaneStamp as PlaneStamp
    from cutlock.records import IndexEntry as IndexEntry
    from cutlock.records import LedgerRecord as LedgerRecord
    from cutlock.run.config import RunConfig as RunConfig
    from cutlock.run.config import load_config as load_config
    from cutlock.run.config import parse_config as parse_config
    from cutlock.run.engine import Run as Run
    from cutlock.run.rollouts import Attempt as Attempt
    from cutlock.run.rollouts import PromptGroup as PromptGroup
    from cutlock.run.start import open_run as open_run
    from cutlock.run.status import RunReport as RunReport
    from cutlock.run.status import Status as Status
    from cutlock.samplers.base import GatedSampler as GatedSampler
    from cutlock.samplers.base import GroupView as GroupView
    from cutlock.samplers.base import TrainerVersion as TrainerVersion
    from cutlock.spare_pool import SparePool as SparePool
    from cutlock.workers.base import Checkpointable as Checkpointable
    from cutlock.workers.base import Generator as Generator
    from cutlock.workers.base import Prompt as Prompt
    from cutlock.workers.base import PromptSet as PromptSet
    from cutlock.workers.base import Rollouts as Rollouts
    from cutlock.workers.base import RowReader as RowReader
    from cutlock.workers.base import StepReport as StepReport
    from cutlock.workers.base import Trainer as Trainer
    from cutlock.workers.prompts import PromptList as PromptList
    from cutlock.workers.training import TrainedHistory as TrainedHistory

_HOMES = {
    "Attempt": "run.rollouts",
    "PromptGroup": "run.rollouts",
    "Audit": "audit",
    "Barrier": "barrier",
    "BootstrapPlane": "plane.base",
    "Checkpointable": "workers.base",
    "Cut": "barrier",
    "CutlockError": "errors",
    "DataPlane": "plane.base",
    "Fields": "plane.base",
    "GatedSampler": "samplers.base",
    "Generator": "workers.base",
    "GroupView": "samplers.base",
    "IndexEntry": "records",
    "Ledger": "ledger",
    "LedgerRecord": "records",
    "PlaneInfo": "plane.base",
    "PlaneStamp": "plane.base",
    "Prompt": "workers.base",
    "PromptList": "workers.prompts",
    "PromptSet": "workers.base",
    "ReplayBuffer": "buffer",
    "Rollouts": "workers.base",
    "RowReader": "workers.base",
    "Run": "run.engine",
    "RunConfig": "run.config",
    "RunReport": "run.status",
    "Slot": "barrier",
    "SparePool": "spare_pool",
    "Status": "run.status",
    "StepReport": "workers.base",
    "TrainedHistory": "workers.training",
    "Trainer": "workers.base",
    "TrainerVersion": "samplers.base",
    "audit_run": "audit",
    "load_config": "run.config",
    "open_run": "run.start",
    "parse_config": "run.config",
    "setup_single_controller": "controller.single",
}
"""Public name to the module that defines it."""

__all__ = sorted(_HOMES)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """Public names too that were not used yet."""
        return sorted({*globals(), *_HOMES})
