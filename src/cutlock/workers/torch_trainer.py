"""A policy-gradient trainer in torch, its files, and its adapter for one process with the run."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from cutlock.errors import BundleCorruptError, ConfigMismatchError, MisuseError
from cutlock.plane.base import Fields
from cutlock.workers.base import (
    OPTIMIZER_FILE,
    POLICY_FILES,
    TRAINED_FIELDS,
    TRAINER_FILE,
    WEIGHTS_FILE,
    PolicyShape,
    RowReader,
    StepReport,
)
from cutlock.workers.policy import Policy, build_policy
from cutlock.workers.training import FIRST_CHAIN, extend_chain

__all__ = [
    "Learning",
    "LocalTrainer",
    "TorchTrainer",
    "TrainerFacts",
    "TrainerState",
    "read_state",
    "train_from_plane",
    "write_state",
]

T = TypeVar("T")


class Learning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the objective and of Adam."""

    rate: float = 5e-3
    passes: int = 3
    """Updates per training step, each over all its rows."""
    clip: float = 0.4
    """How far the importance ratio may leave 1 before a token stops pulling."""
    grad_norm: float = 1.0
    """Gradients longer than this are scaled down to it."""


class TorchTrainer:
    """Synchronous core: a policy, Adam, and the history of what was trained.

    The objective is the clipped policy gradient: rollouts are as old as the gate window
    allows, so each token is weighted by its probability now over its probability when it
    was sampled. Equal seed and equal steps give bit-equal weights.
    """

    def __init__(
        self, shape: PolicyShape, *, seed: int = 0, learning: Learning | None = None
    ) -> None:
        self._learning = learning or Learning()
        self._policy = build_policy(shape, seed=seed)
        self._optimizer = self._build_optimizer(self._policy)
        self._facts = TrainerFacts(shape)

    @property
    def facts(self) -> TrainerFacts:
        """Steps, groups and chain so far."""
        return self._facts

    def train(self, step: int, groups: Sequence[str], rows: Fields) -> StepReport:
        """Learn from the rows of the named groups; rows have the fields `TRAINED_FIELDS`."""
        report = self._learn(len(groups), rows) if groups else StepReport(0.0, 0.0, 0, 0, 0.0)
        facts = self._facts
        self._facts = msgspec.structs.replace(
            facts,
            step=facts.step + 1,
            trained_groups=facts.trained_groups + len(groups),
            trained_chain=extend_chain(facts.trained_chain, step, groups),
        )
        return report

    def weights(self) -> dict[str, Tensor]:
        """A copy of the weights that later steps do not change."""
        return {name: value.clone() for name, value in self._policy.state_dict().items()}

    def capture(self) -> TrainerState:
        """A copy of the whole trainer that later steps do not change."""
        return TrainerState(
            self.weights(), copy.deepcopy(self._optimizer.state_dict()), self._facts
        )

    def restore(self, state: TrainerState) -> None:
        """Become the trainer that was captured; a call that raises has changed nothing.

        The learning rate stays the configured one.

        Raises:
            ConfigMismatchError: the captured policy has another shape.
            BundleCorruptError: weights or optimizer are not those of such a policy.
        """
        shape = self._facts.shape
        if state.facts.shape != shape:
            raise ConfigMismatchError(
                f"the saved policy is {state.facts.shape}, the configured one {shape}; "
                "resume with the task and policy sizes of the saved run"
            )
        policy = build_policy(shape, seed=0)
        optimizer = self._build_optimizer(policy)
        try:
            policy.load_state_dict(state.weights)
            optimizer.load_state_dict(copy.deepcopy(state.optimizer))
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise BundleCorruptError(
                f"the saved weights or optimizer do not fit the policy {shape}: "
                f"{' '.join(str(error).split())}; resume from another bundle"
            ) from error
        for group in optimizer.param_groups:
            group["lr"] = self._learning.rate
        self._policy, self._optimizer, self._facts = policy, optimizer, state.facts

    def _build_optimizer(self, policy: Policy) -> torch.optim.Adam:
        return torch.optim.Adam(policy.parameters(), lr=self._learning.rate)

    def _learn(self, groups: int, rows: Fields) -> StepReport:
        sampled = pad_sequence(list(rows["logprobs"]), batch_first=True)
        advantages = torch.cat([value.reshape(1, 1) for value in rows["advantage"]])
        rewards = torch.cat([value.reshape(1) for value in rows["reward"]])
        low, high = 1 - self._learning.clip, 1 + self._learning.clip
        for _ in range(self._learning.passes):
            current, mask = self._policy.log_probs(rows["prompt"], rows["response"])
            ratio = (current - sampled).exp()
            gain = torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)
            loss = -(gain * mask).sum() / mask.sum()
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(self._policy.parameters(), self._learning.grad_norm)
            self._optimizer.step()
        return StepReport(
            loss=loss.item(),
            reward_mean=rewards.mean().item(),
            tokens=int(mask.sum()),
            groups=groups,
            grad_norm=norm.item(),
        )


async def train_from_plane(
    core: TorchTrainer, plane: RowReader, step: int, groups: Mapping[str, Sequence[str]]
) -> StepReport:
    """Read the rows of the groups and train on them.

    Groups are taken in the order of their ids: sums of floats depend on the order, and a
    resumed run may meet the same groups in another one.
    """
    ordered = sorted(groups)
    keys = [key for group in ordered for key in groups[group]]
    rows = await plane.get(keys, TRAINED_FIELDS) if keys else {}
    return core.train(step, ordered, rows)


class LocalTrainer:
    """`Trainer` in the controller's process; it reads through a plane client of the caller's."""

    def __init__(self, core: TorchTrainer, plane: RowReader) -> None:
        self._core = core
        self._plane = plane
        self._copy: TrainerState | None = None

    async def train(self, step: int, groups: Mapping[str, Sequence[str]]) -> StepReport:
        """Train once; see `Trainer.train`."""
        return await train_from_plane(self._core, self._plane, step, groups)

    async def weights(self) -> object:
        """A copy of the weights, by name."""
        return self._core.weights()

    async def copy(self) -> tuple[int, str]:
        """Copy without suspending; see `Trainer.copy`."""
        self._copy = self._core.capture()
        return self._copy.facts.history

    async def save(self, directory: Path) -> Sequence[str]:
        """Write the copy in a thread; see `Trainer.save`."""
        copied, self._copy = require_copy(self._copy), None
        await asyncio.to_thread(write_state, directory, copied)
        return POLICY_FILES

    async def load(self, directory: Path) -> None:
        """Take over a saved trainer; see `Trainer.load`."""
        self._core.restore(read_state(directory))

    async def close(self) -> None:
        """Nothing to stop; the plane client belongs to the caller."""


# Its files in a bundle: weights, optimizer, and the history that made them.


class TrainerFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `trainer.json`."""

    shape: PolicyShape
    step: int = 0
    """Training steps finished, as in `records.Snapshot`."""
    trained_groups: int = 0
    trained_chain: str = FIRST_CHAIN
    """Hex; see `workers.training`."""

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
