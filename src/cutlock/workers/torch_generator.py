"""A generator in torch, and its adapter for a controller in the same process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import cast

import torch
from torch import Tensor

from cutlock.errors import ConfigError, ConfigMismatchError, MisuseError
from cutlock.workers.base import PolicyShape, Prompt, Rollouts, Verifier
from cutlock.workers.policy import build_policy

__all__ = ["LocalGenerator", "TorchGenerator"]


class TorchGenerator:
    """Synchronous core: samples from the weights it was given and rewards what it sampled."""

    def __init__(self, shape: PolicyShape, verifier: Verifier) -> None:
        self._policy = build_policy(shape, seed=0)
        self._verifier = verifier
        self._version: int | None = None

    def generate(self, prompt: Prompt, *, group_size: int, seed: int) -> Rollouts:
        """Sample a group; see `Generator.generate`.

        Raises:
            ConfigError: the group has no sibling, or the prompt is too long for the policy.
            MisuseError: no weights were loaded: those of a fresh policy would pass unnoticed
                after a restore.
        """
        if self._version is None:
            raise MisuseError(
                f"prompt {prompt.prompt_id!r} was to be generated before any weights were "
                "loaded; call load_weights with the trainer's weights first"
            )
        if group_size < 1:
            raise ConfigError(f"group_size is {group_size}; choose 1 or more")
        tokens = torch.tensor(prompt.tokens)
        samples = self._policy.sample(tokens, count=group_size, seed=seed)
        rewards = [self._verifier.reward(prompt, sample.tokens.tolist()) for sample in samples]
        return Rollouts(
            fields={
                "prompt": [tokens.clone() for _ in samples],
                "response": [sample.tokens for sample in samples],
                "logprobs": [sample.logprobs for sample in samples],
                "reward": [torch.tensor([reward], dtype=torch.float32) for reward in rewards],
            },
            rewards=rewards,
        )

    def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Copy the weights of that version in.

        Raises:
            ConfigMismatchError: they are those of a policy of another shape; the weights
                that were there stay.
        """
        # Into a fresh policy: torch copies what fits before it raises about the rest.
        policy = build_policy(self._policy.shape, seed=0)
        try:
            policy.load_state_dict(weights)
        except RuntimeError as error:
            raise ConfigMismatchError(
                f"weights of version {version} do not fit the policy {policy.shape}: "
                f"{' '.join(str(error).split())}; give trainer and generators one policy shape"
            ) from error
        self._policy, self._version = policy, version


class LocalGenerator:
    """`Generator` in the controller's process.

    Args:
        core: samples; may be shared by several adapters.
        delay: awaited with prompt and seed after the sampling, so that a test can make the
            durations of groups uneven on a clock of its own.
    """

    def __init__(
        self,
        core: TorchGenerator,
        *,
        delay: Callable[[Prompt, int], Awaitable[None]] | None = None,
    ) -> None:
        self._core = core
        self._delay = delay

    async def generate(self, prompt: Prompt, *, group_size: int, seed: int) -> Rollouts:
        """Sample a group, then wait out its delay; see `Generator.generate`."""
        rollouts = self._core.generate(prompt, group_size=group_size, seed=seed)
        if self._delay is not None:
            await self._delay(prompt, seed)
        return rollouts

    async def load_weights(self, weights: object, version: int) -> None:
        """Copy the weights of a `LocalTrainer` in; see `Generator.load_weights`."""
        self._core.load_weights(cast("Mapping[str, Tensor]", weights), version)

    async def close(self) -> None:
        """Nothing to stop."""
