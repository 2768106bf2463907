"""Samplers of the user's own, loaded by `module:Class`.

A class that has the split admission is used like a shipped one. A class that only offers
`async admit(version) -> Admission` gets the whole call wrapped in a slot. That alone would
deadlock as soon as a save is requested while `admit` waits for the trainer, because the
trainer is the one who saves; so a waiting `admit` is cancelled when a cut queues up, its
slot ends, the cut passes, and `admit` is called again. Hence its contract:

* it may wait for at most one trainer step; a longer wait raises AdmissionWaitError;
* cancelled while it waits, it leaves the cursor as it was.

Source: design, section 6.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from cutlock.barrier import Barrier, Slot
from cutlock.errors import AdmissionWaitError, ConfigError, InvariantError
from cutlock.samplers.base import (
    Admission,
    Sampler,
    TrainerVersion,
    TransactionalAdmissionSampler,
)
from cutlock.waiting import until_done

__all__ = ["AdmitOnlySampler", "AnySampler", "admit_split", "admit_whole", "load_class"]

T = TypeVar("T")

_METHODS = tuple(
    name for name, member in vars(Sampler).items() if name[0] != "_" and callable(member)
)


@runtime_checkable
class AdmitOnlySampler(Sampler, Protocol):
    """A custom sampler without the split."""

    restorable: ClassVar[bool]
    """Whether finished groups of a bundle may be restored under this sampler."""

    async def admit(self, version: TrainerVersion) -> Admission:
        """Wait at the gate, raise the cursor, and stamp one batch."""
        ...


AnySampler = TransactionalAdmissionSampler | AdmitOnlySampler


def load_class(path: str) -> type[Any]:
    """Find a sampler class without constructing it.

    Raises:
        ConfigError: the path is not `module:Class`, cannot be imported, is not a class, or
            the class lacks `restorable`, both forms of admission, or a method of `Sampler`.
    """
    module_name, _, class_name = path.partition(":")
    if not module_name or not class_name:
        raise ConfigError(
            f"sampler path {path!r} is not of the form 'module:Class'; name the class so"
        )
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except Exception as error:  # a module may raise anything when it is imported
        raise ConfigError(
            f"sampler {path!r} cannot be imported ({type(error).__name__}: {error}); is its "
            "module on the Python path?"
        ) from error
    if not isinstance(found, type):
        raise ConfigError(f"sampler {path!r} is {found!r}; name a class")
    if not isinstance(getattr(found, "restorable", None), bool):
        raise ConfigError(
            f"sampler {path!r} does not say whether a bundle may be restored under it; set "
            "`restorable = True` or `restorable = False` at class level"
        )
    split = hasattr(found, "wait_until_admissible") and hasattr(found, "commit_admission")
    if not split and not hasattr(found, "admit"):
        raise ConfigError(
            f"sampler {path!r} has neither wait_until_admissible() and commit_admission() nor "
            "admit(); give it one of the two"
        )
    missing = [name for name in _METHODS if not hasattr(found, name)]
    if missing:
        raise ConfigError(
            f"sampler {path!r} has no {', '.join(missing)}; give it every method of "
            "cutlock.samplers.Sampler"
        )
    return found


async def admit_split(
    sampler: TransactionalAdmissionSampler,
    barrier: Barrier,
    version: TrainerVersion,
    opened: Callable[[], Awaitable[None]],
    commit: Callable[[Slot, Admission], T],
) -> T:
    """Admit one batch: gate outside, then cursor and `commit` in one slot without an await.

    Args:
        opened: awaited between the two, outside every slot.
    """
    await sampler.wait_until_admissible(version)
    await opened()
    async with barrier.atomic_mutation("admission") as slot:
        return commit(slot, sampler.commit_admission(slot, version.value))


async def admit_whole(
    sampler: AdmitOnlySampler,
    barrier: Barrier,
    version: TrainerVersion,
    opened: Callable[[], Awaitable[None]],
    commit: Callable[[Slot, Admission], T],
) -> T:
    """Admit one batch with the whole wait in a slot, giving way to every cut.

    Args:
        opened: awaited in the slot, when `admit` has returned and before `commit`.
    """
    asked_at = version.value
    while True:
        async with barrier.mutation("admission") as slot:
            admission, cancelled = await _admit_unless_cut(sampler, barrier, version, asked_at)
            if admission is None:
                continue
            # The cursor has moved, so the batch is admitted whatever comes meanwhile.
            try:
                await opened()
            except asyncio.CancelledError as error:
                cancelled = error
            admitted = commit(slot, admission)
            if cancelled is not None:
                raise cancelled
            return admitted


async def _admit_unless_cut(
    sampler: AdmitOnlySampler, barrier: Barrier, version: TrainerVersion, asked_at: int
) -> tuple[Admission | None, asyncio.CancelledError | None]:
    """What `admit` gave, None if a cut came first; and the cancellation that came meanwhile.

    The slot lasts as long as `admit` runs, however often its caller is cancelled.
    """
    name = type(sampler).__qualname__
    before = sampler.cursor
    admit = asyncio.ensure_future(sampler.admit(version))
    cut = asyncio.ensure_future(barrier.cut_requested())
    limit = asyncio.ensure_future(version.wait_for(lambda now: now >= asked_at + 2))
    tasks = [admit, cut, limit]
    cancelled = None
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError as error:
        cancelled = error
    for task in tasks:
        task.cancel()
    for task in tasks:
        cancelled = await until_done(task) or cancelled
    if not admit.cancelled():
        if cancelled is not None and (failed := admit.exception()) is not None:
            raise cancelled from failed
        return admit.result(), cancelled
    if cancelled is not None:
        raise cancelled
    if sampler.cursor != before:
        raise InvariantError(
            f"{name}.admit() moved its cursor from {before} to {sampler.cursor} and was then "
            "cancelled at an await; raise the cursor after the last await"
        )
    if version.value >= asked_at + 2:
        raise AdmissionWaitError(
            f"{name}.admit() was called at trainer version {asked_at} and still waits at "
            f"{version.value}; it may wait for one trainer step, so open its gate one step "
            "ahead or implement wait_until_admissible() and commit_admission()"
        )
    return None, None
