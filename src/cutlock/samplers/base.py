"""What a sampler is: when a batch may be dispatched, and which finished groups train next.

Admission is split in two. `wait_until_admissible` waits at the gate outside every slot: the
gate opens only when the trainer moves, and the trainer's save waits for slots, so a gate
wait inside one would deadlock. `commit_admission` raises the cursor inside a slot and never
waits. Nothing can shut the gate in between: one rollout pump admits, and the trainer
version only rises.

Source: spec action `CommitAdmission`; design, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Protocol, runtime_checkable

import msgspec

from cutlock.barrier import Barrier, Slot
from cutlock.errors import InvariantError
from cutlock.records import IndexEntry
from cutlock.waiting import Signal

__all__ = [
    "Admission",
    "GatedSampler",
    "GroupView",
    "Sampler",
    "TrainerVersion",
    "TransactionalAdmissionSampler",
    "exactly",
    "older_than",
]


class TrainerVersion:
    """The version of the trainer's weights; it only rises, and gates wait on it."""

    def __init__(self, value: int = 0) -> None:
        self._value = value
        self._raised = Signal()

    @property
    def value(self) -> int:
        """The current version."""
        return self._value

    def raise_to(self, value: int) -> None:
        """Move to a later version and wake every waiter.

        Raises:
            InvariantError: `value` is not later.
        """
        if value <= self._value:
            raise InvariantError(
                f"the trainer version cannot go from {self._value} to {value}; it only rises"
            )
        self._value = value
        self._raised.notify()

    async def wait_for(self, reached: Callable[[int], bool]) -> None:
        """Return as soon as `reached(version)` holds; at once, without suspending, if it does."""
        while not reached(self._value):
            await self._raised.wait()


class Admission(msgspec.Struct, frozen=True):
    """What a batch is given when it is admitted."""

    dispatch_index: int
    """The cursor after this admission."""
    stamp: int | None
    """The trainer step that the batch is meant for; None under samplers that do not stamp."""


class GroupView(Protocol):
    """What a sampler may look at when it chooses groups; counts are of the same instant.

    Nothing of it is a copy: it costs the same however many groups there are, and must not be
    kept after the choice.
    """

    def ready(self) -> Collection[IndexEntry]:
        """Finished groups in the order of their commits."""
        ...

    def ready_with_stamp(self, stamp: int) -> Collection[IndexEntry]:
        """Finished groups of one stamp in the order of their commits."""
        ...

    def ready_with_weight(self, start_weight: int) -> Collection[IndexEntry]:
        """Finished groups of one start weight in the order of their commits."""
        ...

    def ready_stamps(self) -> Sequence[int]:
        """Stamps that some finished group has, ascending."""
        ...

    def ready_weights(self) -> Sequence[int]:
        """Start weights that some finished group has, ascending."""
        ...

    def in_flight_weights(self) -> Mapping[int, int]:
        """Start weight to the number of admitted groups of it that are not finished."""
        ...


class Sampler(Protocol):
    """Choice of groups: the part that every sampler has, custom ones included."""

    @property
    def name(self) -> str:
        """Its name in configurations and bundles."""
        ...

    @property
    def cursor(self) -> int:
        """Dispatch index of the last admitted batch; -1 before the first."""
        ...

    def capacity_needed(self, prompts_per_step: int) -> int:
        """Least buffer capacity, in groups, with which a run cannot deadlock."""
        ...

    def need(self, version: int, groups: int, shortfall: int, view: GroupView) -> int:
        """Groups that the step `version` trains: `groups` less what will never arrive."""
        ...

    def select(self, view: GroupView, version: int, need: int) -> list[str]:
        """Ids of `need` groups to train now, or none while they are not all finished."""
        ...

    def evict(self, view: GroupView, version: int) -> list[str]:
        """Ids of finished groups that can never be selected any more."""
        ...

    def stale_in_flight(self, start_weight: int, version: int) -> bool:
        """Whether an unfinished group of that start weight can never be selected any more."""
        ...

    def credits_shortfall(self) -> bool:
        """Whether a group lost without a substitute has to be credited to its step."""
        ...

    def substitute_weight(self, lost_start_weight: int, version: int) -> int:
        """Start weight of a substitute for a group that was lost."""
        ...

    def restore_cursor(self, slot: Slot, cursor: int) -> None:
        """Set the cursor from a bundle, before the first admission."""
        ...


@runtime_checkable
class TransactionalAdmissionSampler(Sampler, Protocol):
    """A sampler with the split admission; all shipped ones are."""

    async def wait_until_admissible(self, version: TrainerVersion) -> None:
        """Wait at the gate; called outside every slot."""
        ...

    def commit_admission(self, slot: Slot, version: int) -> Admission:
        """Raise the cursor and stamp one batch; called inside a slot, never waits.

        Raises:
            InvariantError: the gate is shut at `version`.
        """
        ...


class GatedSampler:
    """Common part of the samplers whose gate is `cursor < version + window`.

    Args:
        window: how many batches the cursor may run ahead of the trainer version; 0 is
            lock-step.
    """

    name = "gated"

    def __init__(self, barrier: Barrier, window: int) -> None:
        self._barrier = barrier
        self.window = window
        self._cursor = -1

    @property
    def cursor(self) -> int:
        """Dispatch index of the last admitted batch; -1 before the first."""
        return self._cursor

    def capacity_needed(self, prompts_per_step: int) -> int:
        """Every batch that the gate lets in at once."""
        return prompts_per_step * (self.window + 1)

    async def wait_until_admissible(self, version: TrainerVersion) -> None:
        """Wait until the trainer has come within the window."""
        await version.wait_for(self._gate_open)

    def _gate_open(self, version: int) -> bool:
        return self._cursor < version + self.window

    def commit_admission(self, slot: Slot, version: int) -> Admission:
        """Raise the cursor by one; refuses at a shut gate."""
        self._barrier.require_slot(slot)
        if not self._gate_open(version):
            raise InvariantError(
                f"{self.name}: cursor {self._cursor} may not advance at trainer version "
                f"{version} with window {self.window}; await wait_until_admissible() first"
            )
        self._cursor += 1
        return Admission(self._cursor, self._stamp())

    def _stamp(self) -> int | None:
        return None

    def restore_cursor(self, slot: Slot, cursor: int) -> None:
        """Set the cursor from a bundle, before the first admission."""
        self._barrier.require_slot(slot)
        if self._cursor != -1:
            raise InvariantError(
                f"{self.name}: the cursor is already at {self._cursor}; restore a new sampler"
            )
        self._cursor = cursor

    def need(self, version: int, groups: int, shortfall: int, view: GroupView) -> int:
        """`groups` less the shortfall of the step."""
        return max(0, groups - shortfall)

    def evict(self, view: GroupView, version: int) -> list[str]:
        """Nothing."""
        return []

    def stale_in_flight(self, start_weight: int, version: int) -> bool:
        """Never: the gate bounds staleness."""
        return False

    def credits_shortfall(self) -> bool:
        """Yes: a step waits for a known number of groups."""
        return True

    def substitute_weight(self, lost_start_weight: int, version: int) -> int:
        """The lost group's, so that the substitute takes its place exactly."""
        return lost_start_weight


def exactly(need: int, entries: Iterable[IndexEntry]) -> list[str]:
    """Ids of the first `need` entries; none if there are fewer. Looks no further than it must."""
    chosen = [entry.group_id for entry in islice(entries, need)]
    return chosen if len(chosen) == need else []


def older_than(view: GroupView, start_weight: int) -> list[str]:
    """Ids of finished groups of older start weights, the oldest first."""
    older = takewhile(lambda weight: weight < start_weight, view.ready_weights())
    return [e.group_id for weight in older for e in view.ready_with_weight(weight)]
