"""The dataloader: prompts in a fixed order per epoch, and a position that can be saved.

The order of an epoch is a function of (seed, epoch) alone, so position and epoch are all
that a restore needs; torchdata's StatefulDataLoader keeps the position within the epoch.

Source: spec actions `ReserveBatch`, `RaiseEpoch`; design, section 4.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

import msgspec
from torchdata.stateful_dataloader import StatefulDataLoader

from cutlock.barrier import Barrier, Cut, Slot
from cutlock.errors import ConfigMismatchError, InvariantError
from cutlock.records import LoaderState, Occurrence
from cutlock.workers.base import PromptSet

__all__ = ["Batch", "PromptLoader", "epoch_order"]


class Batch(msgspec.Struct, frozen=True):
    """One batch of occurrences, and where the loader stands after it."""

    epoch: int
    position: int
    """Prompts of this epoch served so far, this batch included."""
    occurrences: tuple[Occurrence, ...]
    ends_epoch: bool


def epoch_order(size: int, epoch: int, seed: int) -> list[int]:
    """The positions of one epoch, in the order in which they are served."""
    order = list(range(size))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order


class _Positions:
    """Map-style data set whose items are the positions themselves."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, position: int) -> int:
        return position


class PromptLoader:
    """Batches of occurrences over a number of epochs.

    The last batch of an epoch may be short; no prompt is left out and epochs do not mix.

    Args:
        batch_size: prompts per batch.
        epochs: how often every prompt is served.
    """

    def __init__(
        self,
        barrier: Barrier,
        prompts: PromptSet,
        *,
        batch_size: int,
        epochs: int,
        seed: int,
    ) -> None:
        self._barrier = barrier
        self._prompts = prompts
        self._batch_size = batch_size
        self._epochs = epochs
        self._seed = seed
        self._epoch = 0
        self._position = 0
        self._exhausted = len(prompts) == 0 or epochs == 0
        self._order, self._loader = self._of_epoch(0)
        self._batches: Iterator[list[int]] | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the next batch; the number of epochs once all are served."""
        return self._epoch

    @property
    def position(self) -> int:
        """Prompts served in this epoch."""
        return self._position

    @property
    def unread(self) -> int:
        """Prompts that are still to be served, over all epochs that are left."""
        if self._exhausted:
            return 0
        return (self._epochs - self._epoch) * len(self._prompts) - self._position

    @property
    def exhausted(self) -> bool:
        """Whether no batch is left."""
        return self._exhausted

    @property
    def raise_due(self) -> bool:
        """Whether all of this epoch is served and the counter still has to be raised."""
        return not self._exhausted and self._position == len(self._prompts)

    def next_batch(self, slot: Slot) -> Batch | None:
        """The next batch, which the caller must give an owner in the same slot; None at the end.

        After a batch that ends its epoch comes `raise_epoch`, in the same slot as well, so
        that a finished position is never saved as one of the epoch that follows.

        Raises:
            InvariantError: the epoch before has ended and was not raised, or the wrapped loader
                does not serve the prompts that are due.
        """
        self._barrier.require_slot(slot)
        self._refuse_raise_due("serve a batch")
        if self._exhausted:
            return None
        if self._batches is None:
            self._batches = iter(self._loader)
        served = self._serve(self._batches)
        occurrences = tuple(self._occurrence(position) for position in served)
        self._position += len(occurrences)
        return Batch(self._epoch, self._position, occurrences, self.raise_due)

    def raise_epoch(self, slot: Slot) -> None:
        """Go to the start of the next epoch, in the slot of the batch that ended this one.

        Raises:
            InvariantError: this epoch has not ended.
        """
        self._barrier.require_slot(slot)
        if not self.raise_due:
            raise InvariantError(
                f"epoch {self._epoch} cannot be raised at prompt {self._position} of "
                f"{len(self._prompts)}; serve the rest of it first"
            )
        self._epoch += 1
        self._position = 0
        self._batches = None
        self._order, self._loader = self._of_epoch(self._epoch)
        self._exhausted = self._epoch >= self._epochs

    def _serve(self, batches: Iterator[list[int]]) -> list[int]:
        """What the wrapped loader serves, if it stands where this one does."""
        due = self._order[self._position : self._position + self._batch_size]
        error: Exception | None = None
        try:
            served: object = next(batches, None)
        except Exception as raised:
            served, error = repr(raised), raised
        if served != due:
            raise InvariantError(
                f"the wrapped loader serves {served} at prompt {self._position} of epoch "
                f"{self._epoch}, where {due} are due; nothing was handed out, resume from "
                "another bundle"
            ) from error
        return due

    def _refuse_raise_due(self, what: str) -> None:
        if self.raise_due:
            raise InvariantError(
                f"the loader cannot {what} at the end of epoch {self._epoch}, all "
                f"{self._position} prompts of which are served; call raise_epoch() in the slot "
                "of its last batch"
            )

    def _occurrence(self, position: int) -> Occurrence:
        prompt = self._prompts[position]
        return Occurrence(self._epoch, position, prompt.prompt_id, prompt.digest)

    def _of_epoch(self, epoch: int) -> tuple[list[int], Any]:
        """The order of an epoch, and a loader that serves it from its start."""
        order = epoch_order(len(self._prompts), epoch, self._seed)
        with warnings.catch_warnings():
            # torchdata 0.11 calls a torch function that newer torch versions deprecate.
            warnings.filterwarnings("ignore", message="'set_vital' is deprecated")
            loader = StatefulDataLoader(
                _Positions(len(self._prompts)),
                batch_size=self._batch_size,
                sampler=order,
                collate_fn=list,
                num_workers=0,
            )
        return order, loader

    def snapshot(self, cut: Cut) -> LoaderState:
        """Epoch and position, together.

        Raises:
            InvariantError: an epoch has ended and was not raised.
        """
        self._barrier.require_cut(cut)
        self._refuse_raise_due("be saved")
        return LoaderState(
            epoch=self._epoch,
            position=self._position,
            exhausted=self._exhausted,
            inner=self._loader.state_dict() if self._batches is not None else None,
        )

    def restore(self, slot: Slot, state: LoaderState) -> None:
        """Take over a saved position; the number of epochs may have grown meanwhile.

        Raises:
            ConfigMismatchError: the saved position does not exist under this configuration.
        """
        self._barrier.require_slot(slot)
        size = len(self._prompts)
        if state.epoch > self._epochs or not 0 <= state.position < max(size, 1):
            raise ConfigMismatchError(
                f"the bundle stands at epoch {state.epoch}, prompt {state.position}; the "
                f"configuration has {self._epochs} epochs of {size} prompts; resume with the "
                "same data set and at least as many epochs"
            )
        if (state.inner is None) != (state.position == 0):
            raise ConfigMismatchError(
                f"the bundle stands at prompt {state.position} of epoch {state.epoch} and its "
                f"loader at {state.inner}; position and loader belong together, resume from "
                "an older bundle"
            )
        order, loader = self._of_epoch(state.epoch)
        batches = None
        if state.inner is not None:
            try:
                loader.load_state_dict(state.inner)
                batches = iter(loader)
            except Exception as error:
                # Whatever another version of torchdata raises about a state of this one.
                raise ConfigMismatchError(
                    f"the loader does not take its saved state {state.inner}: {error!r}; resume "
                    "with the torchdata version of the bundle, or from another bundle"
                ) from error
        self._epoch = state.epoch
        self._position = state.position
        self._exhausted = size == 0 or state.epoch >= self._epochs
        self._order, self._loader, self._batches = order, loader, batches
