"""The spare pool and the shortfall: what happens to a step that loses a prompt.

A prompt that is given up is replaced by a spare while there is one. Otherwise its step is
closed one group short, and the shortfall remembers that, in the same slot; a restart that
forgot it would wait for ever for a group that nobody will make.

Source: spec variables `pool` and `shortfall`; design, section 7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from cutlock.barrier import Barrier, Cut, Slot
from cutlock.errors import InvariantError
from cutlock.records import Occurrence

__all__ = ["Shortfall", "SparePool"]


class SparePool:
    """Occurrences held back from admission, first in, first out."""

    def __init__(self, barrier: Barrier) -> None:
        self._barrier = barrier
        self._spares: deque[Occurrence] = deque()
        self._keys: set[str] = set()

    def __len__(self) -> int:
        return len(self._spares)

    def fill(self, slot: Slot, batch: Sequence[Occurrence]) -> None:
        """Add a batch, in the slot that took it from the loader."""
        self._barrier.require_slot(slot)
        keys: set[str] = set()
        for spare in batch:
            if spare.key in self._keys or spare.key in keys:
                raise InvariantError(
                    f"{spare.key!r} is already a spare; an occurrence has one owner"
                )
            keys.add(spare.key)
        self._spares.extend(batch)
        self._keys |= keys

    def take(self, slot: Slot, count: int = 1) -> list[Occurrence]:
        """Remove up to `count` spares, oldest first, in the slot that gives them an owner."""
        self._barrier.require_slot(slot)
        taken = [self._spares.popleft() for _ in range(min(count, len(self._spares)))]
        self._keys.difference_update(spare.key for spare in taken)
        return taken

    def snapshot(self, cut: Cut) -> tuple[Occurrence, ...]:
        """The spares, in order."""
        self._barrier.require_cut(cut)
        return tuple(self._spares)

    def restore(self, slot: Slot, spares: Iterable[Occurrence]) -> None:
        """Fill an empty pool from a bundle."""
        if self._spares:
            raise InvariantError(
                f"the pool holds {len(self._spares)} spares; restore into a new one"
            )
        self.fill(slot, list(spares))


class Shortfall:
    """How many groups each step goes without, because they will never arrive.

    Args:
        prompts_per_step: the most that one step can be short of; more goes to later steps.
    """

    def __init__(self, barrier: Barrier, prompts_per_step: int) -> None:
        self._barrier = barrier
        self._prompts_per_step = prompts_per_step
        self._missing: dict[int, int] = {}

    def of(self, step: int) -> int:
        """Groups that the step goes without."""
        return self._missing.get(step, 0)

    def credit(self, slot: Slot, step: int, count: int = 1) -> None:
        """Go without `count` more groups, from `step` on, in the slot that lost them."""
        self._barrier.require_slot(slot)
        if count < 1:
            raise InvariantError(f"a shortfall of {count} groups is none; credit at least 1")
        while count:
            part = min(count, self._prompts_per_step - self.of(step))
            if part:
                self._missing[step] = self.of(step) + part
            count -= part
            step += 1

    def forget_before(self, slot: Slot, step: int) -> None:
        """Drop the entries of steps that have been trained."""
        self._barrier.require_slot(slot)
        for past in [s for s in self._missing if s < step]:
            del self._missing[past]

    def snapshot(self, cut: Cut) -> tuple[tuple[int, int], ...]:
        """(step, count), sorted by step."""
        self._barrier.require_cut(cut)
        return tuple(sorted(self._missing.items()))

    def restore(self, slot: Slot, missing: Iterable[tuple[int, int]]) -> None:
        """Fill an empty shortfall from a bundle."""
        self._barrier.require_slot(slot)
        if self._missing:
            raise InvariantError(f"the shortfall holds {self._missing}; restore into a new one")
        self._missing = dict(missing)
