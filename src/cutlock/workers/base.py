"""What the controller needs of its workers: prompts, rollouts, a generator and a trainer.

Users plug in their own; the shipped ones are `torch_trainer`, `torch_generator` and
`ray_workers`. Source: design, section 11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from cutlock.records import digest_of

if TYPE_CHECKING:
    import torch  # what only names its types does not wait seconds for it

__all__ = [
    "DERIVED_FIELDS",
    "GENERATED_FIELDS",
    "OPTIMIZER_FILE",
    "POLICY_FILES",
    "TRAINED_FIELDS",
    "TRAINER_FILE",
    "WEIGHTS_FILE",
    "Checkpointable",
    "Generator",
    "PolicyShape",
    "Prompt",
    "PromptSet",
    "Rollouts",
    "RowReader",
    "StepReport",
    "Trainer",
    "Verifier",
]

GENERATED_FIELDS = ("prompt", "response", "logprobs", "reward")
"""Fields of a row as a generator makes it."""

DERIVED_FIELDS = ("advantage",)
"""Fields that the engine computes, and recomputes after every restore."""

TRAINED_FIELDS = (*GENERATED_FIELDS, *DERIVED_FIELDS)
"""Fields that a trainer reads; the controller writes `advantage`, float32 of shape (1,)."""

WEIGHTS_FILE = "weights.safetensors"
OPTIMIZER_FILE = "optimizer.pt"
TRAINER_FILE = "trainer.json"

POLICY_FILES = (WEIGHTS_FILE, OPTIMIZER_FILE, TRAINER_FILE)
"""What the shipped trainer writes into its directory, and nothing else."""


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One prompt of a data set."""

    prompt_id: str
    """Stable across runs and independent of the position."""
    tokens: tuple[int, ...]

    @property
    def digest(self) -> str:
        """First 16 hex digits of the sha256 of the tokens."""
        return digest_of(self.tokens)[:16]


class PromptSet(Protocol):
    """A fixed, ordered data set of prompts."""

    @property
    def name(self) -> str:
        """Name for people."""
        ...

    @property
    def digest(self) -> str:
        """sha256 hex over all prompts in their order, so that another data set is noticed."""
        ...

    def __len__(self) -> int:
        """Number of prompts."""
        ...

    def __getitem__(self, position: int) -> Prompt:
        """The prompt at a position.

        Raises:
            IndexError: there is no such position.
        """
        ...

    def by_id(self, prompt_id: str) -> Prompt:
        """The prompt of a stable id.

        Raises:
            ConfigError: the data set has no such prompt.
        """
        ...


class Verifier(Protocol):
    """Computes a reward; nothing is learned in it."""

    def reward(self, prompt: Prompt, response: Sequence[int]) -> float:
        """Value of one response, the same for the same arguments."""
        ...


class PolicyShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes that the policies of trainer and generators share."""

    tokens: int
    """Size of the vocabulary, the end token included."""
    eos: int
    """The token that ends a response; part of the response when it was sampled."""
    longest_prompt: int
    longest_response: int
    """Sampling stops here when no end token came, in tokens."""
    hidden: int = 64


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The siblings of one group.

    `fields` has one entry per sibling under each name. One name is `reward`, float32 of shape
    (1,); the others are between generator and trainer. The shipped ones use `GENERATED_FIELDS`:
    `prompt` int64 and `response` int64 of any length, `logprobs` float32 as long as the response.
    `rewards` are the same rewards as numbers.
    """

    fields: dict[str, list[torch.Tensor]]
    rewards: list[float]


class Generator(Protocol):
    """Makes rollouts; one object may front many workers."""

    async def generate(self, prompt: Prompt, *, group_size: int, seed: int) -> Rollouts:
        """Sample a group with the weights that are loaded when the call starts.

        Equal prompt, size, seed and weights give equal rollouts. A cancelled call leaves
        nothing behind that a later call could see.

        Raises:
            WorkerLostError: the worker died; another call goes to another one.
            NoWorkerError: none is left.
            WorkerError: the worker failed, or its limit passed (`WorkerTimeoutError`).
            MisuseError: no weights were loaded yet.
        """
        ...

    async def load_weights(self, weights: object, version: int) -> None:
        """Use what `Trainer.weights` returned for every later `generate`.

        Returns when every worker that later calls go to has taken them over.

        Raises:
            WorkerError: no worker has taken them over within its limit.
        """
        ...

    async def close(self) -> None:
        """Stop the workers; a second call is no error."""
        ...


class StepReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one training step did."""

    loss: float
    """Policy-gradient loss of the last pass over the rows."""
    reward_mean: float
    tokens: int
    """Response tokens trained on, counted once however many passes there are."""
    groups: int
    grad_norm: float
    """L2 norm of the last pass's gradient before it was clipped."""


class Checkpointable(Protocol):
    """What a save needs of whoever holds the weights: a copy now, and files of it later."""

    async def copy(self) -> tuple[int, str]:
        """Copy policy, optimizer and history for the next `save`: later steps do not change it.

        A copy that is not saved is replaced by the next one.

        Returns:
            Number of groups trained so far, and the training chain (see `workers.training`).

        Source: spec action `CopyPolicy`; design, section 8, rule 7.
        """
        ...

    async def save(self, directory: Path) -> Sequence[str]:
        """Write the copy into an existing directory, in files of its choice; the caller syncs them.

        Steps may train meanwhile. One save at a time (design, section 8, rule 5).

        Returns:
            Names of the files: a bundle without one of them, or with an empty one, is refused.

        Raises:
            MisuseError: nothing was copied since the last save.
        """
        ...

    async def load(self, directory: Path) -> None:
        """Take over what `save` wrote; the caller has verified the digests of the files.

        Weights, optimizer and chain come from the files, learning settings from the
        configuration. A load that raises has changed nothing.

        Raises:
            BundleCorruptError: a file is missing or is not what `save` writes.
            ConfigMismatchError: the saved policy has another shape.
        """
        ...


class RowReader(Protocol):
    """What a trainer needs of the store: every `DataPlane` is one."""

    async def get(
        self, keys: Sequence[str], fields: Sequence[str]
    ) -> Mapping[str, Sequence[torch.Tensor]]:
        """Read fields of rows, in the order of `keys`; see `DataPlane.get`."""
        ...


class Trainer(Checkpointable, Protocol):
    """Owns policy and optimizer, and reads the rows it trains on from its own plane client."""

    async def train(self, step: int, groups: Mapping[str, Sequence[str]]) -> StepReport:
        """Train once on the rows of the groups: group id to row keys.

        The order of the mapping does not matter; a step without groups learns nothing but
        counts. The training chain is extended by `(step, group ids)`, see `chain`.

        Raises:
            RowsMissingError: a row is gone or lacks a field.
            WorkerError: the worker failed, or its limit passed (`WorkerTimeoutError`).
        """
        ...

    async def weights(self) -> object:
        """A copy of the weights for `Generator.load_weights`; opaque to the controller."""
        ...

    async def close(self) -> None:
        """Stop the worker; a second call is no error."""
        ...
