"""A data set of prompts in memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from cutlock.errors import ConfigError
from cutlock.records import digest_of
from cutlock.workers.base import Prompt

__all__ = ["PromptList"]


class PromptList:
    """A `PromptSet` of given prompts, in their order.

    Args:
        name: for people.
        prompts: each with an id of its own, which stays the same from run to run.

    Raises:
        ConfigError: two prompts have the same id.
    """

    def __init__(self, name: str, prompts: Sequence[Prompt]) -> None:
        self._name = name
        self._prompts = tuple(prompts)
        self._by_id = {prompt.prompt_id: prompt for prompt in self._prompts}
        if len(self._by_id) < len(self._prompts):
            ids = [prompt.prompt_id for prompt in self._prompts]
            twice = next(prompt_id for prompt_id in ids if ids.count(prompt_id) > 1)
            raise ConfigError(
                f"data set {name} has the prompt {twice!r} twice; give each an id of its own"
            )

    @property
    def name(self) -> str:
        """Name for people."""
        return self._name

    @cached_property
    def digest(self) -> str:
        """sha256 hex over all prompts in their order."""
        return digest_of(self._prompts)

    def __len__(self) -> int:
        """Number of prompts."""
        return len(self._prompts)

    def __getitem__(self, position: int) -> Prompt:
        """The prompt at a position; IndexError when there is none."""
        return self._prompts[position]

    def by_id(self, prompt_id: str) -> Prompt:
        """The prompt of that id; ConfigError when the data set has none."""
        try:
            return self._by_id[prompt_id]
        except KeyError:
            raise ConfigError(
                f"data set {self.name} has no prompt {prompt_id!r}; "
                "run with the data set that the id was taken from"
            ) from None
