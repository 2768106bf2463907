"""The files of a trainer in a bundle: weights, optimizer, and the history that made them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from safetensors.torch import load_file, save_file

from cutlock.errors import BundleCorruptError, MisuseError
from cutlock.workers.base import OPTIMIZER_FILE, TRAINER_FILE, WEIGHTS_FILE, PolicyShape
from cutlock.workers.chain import FIRST_CHAIN

__all__ = ["TrainerFacts", "TrainerState", "read_state", "require_copy", "write_state"]

T = TypeVar("T")


class TrainerFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `trainer.json`."""

    shape: PolicyShape
    step: int = 0
    """Training steps finished, as in `records.Cut`."""
    trained_groups: int = 0
    trained_chain: str = FIRST_CHAIN
    """Hex; see `workers.chain`."""

    @property
    def history(self) -> tuple[int, str]:
        """Groups trained, and chain."""
        return self.trained_groups, self.trained_chain


@dataclass(frozen=True, slots=True)
class TrainerState:
    """A trainer at one instant, detached from the live one."""

    weights: dict[str, torch.Tensor]
    optimizer: dict[str, Any]
    """State dict of the optimizer: tensors, numbers, strings, lists and dicts only."""
    facts: TrainerFacts


def require_copy(state: TrainerState | None) -> TrainerState:
    """What was copied for a save.

    Raises:
        MisuseError: nothing was.
    """
    if state is None:
        raise MisuseError("the trainer has no copy to write; call copy() before each save()")
    return state


def write_state(directory: Path, state: TrainerState) -> None:
    """Write the three files into an existing directory, over what is there."""
    save_file(state.weights, directory / WEIGHTS_FILE)
    torch.save(state.optimizer, directory / OPTIMIZER_FILE)
    (directory / TRAINER_FILE).write_bytes(msgspec.json.encode(state.facts))


def read_state(directory: Path) -> TrainerState:
    """Read the three files, whose digests the caller has verified.

    Raises:
        BundleCorruptError: naming the file that is missing or unreadable.
    """
    return TrainerState(
        weights=_read(directory / WEIGHTS_FILE, load_file),
        optimizer=_read(directory / OPTIMIZER_FILE, _load_plain),
        facts=_read(directory / TRAINER_FILE, _decode_facts),
    )


def _load_plain(path: Path) -> dict[str, Any]:
    try:
        loaded = torch.load(path, weights_only=True)
    except pickle.UnpicklingError:
        # torch's own text advises to load without weights_only: the wrong way out here.
        raise ValueError("damaged, or more than tensors and plain data") from None
    if not isinstance(loaded, dict):
        raise TypeError(f"holds a {type(loaded).__name__}, not a state dict")
    return loaded


def _decode_facts(path: Path) -> TrainerFacts:
    return msgspec.json.decode(path.read_bytes(), type=TrainerFacts)


def _read(path: Path, read: Callable[[Path], T]) -> T:
    # torch and safetensors raise a dozen types for a bad file; all mean the same here.
    try:
        return read(path)
    except Exception as error:
        raise BundleCorruptError(
            f"{path} cannot be read as a trainer's file ({type(error).__name__}: {error}); "
            "resume from another bundle"
        ) from error
