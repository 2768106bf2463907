"""Data sets of prompts: a list in memory, and a toy task with a computed reward."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cached_property

from cutlock.errors import ConfigError
from cutlock.records import digest_of
from cutlock.workers.base import PolicyShape, Prompt

__all__ = ["PromptList", "ReverseTask"]


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


class ReverseTask(PromptList):
    """A toy task: say the digits of the prompt in reverse, then stop.

    A data set of distinct digit strings, and its own `Verifier`. Tokens 0 to `vocabulary - 1` are
    digits, token `vocabulary` ends a response. Prompts have 2 to `length` digits, so the durations
    of rollouts differ from prompt to prompt. The id of a prompt spells its digits.

    Args:
        count: number of prompts.
        length: most digits in a prompt, at least 2.
        vocabulary: number of different digits, 2 to 10.
        seed: the same arguments give the same data set on every machine.

    Raises:
        ConfigError: an argument is out of range, or there are fewer such strings than `count`.
    """

    def __init__(self, count: int, *, length: int = 5, vocabulary: int = 8, seed: int = 0) -> None:
        if length < 2:
            raise ConfigError(f"length is {length}; a prompt needs 2 or more digits to reverse")
        if not 2 <= vocabulary <= 10:
            raise ConfigError(f"vocabulary is {vocabulary}; choose 2 to 10 digits")
        available = sum(vocabulary**digits for digits in range(2, length + 1))
        if not 1 <= count <= available:
            raise ConfigError(
                f"{count} prompts are wanted, but {vocabulary} digits form {available} strings of "
                f"2 to {length}; choose 1 to {available}, or raise length or vocabulary"
            )
        rng = random.Random(seed)
        drawn: dict[str, Prompt] = {}
        while len(drawn) < count:
            digits = tuple(rng.randrange(vocabulary) for _ in range(rng.randint(2, length)))
            prompt_id = "reverse-" + "".join(map(str, digits))
            drawn.setdefault(prompt_id, Prompt(prompt_id, digits))
        name = f"reverse(length={length}, vocabulary={vocabulary}, seed={seed})"
        super().__init__(name, [*drawn.values()])
        self.shape = PolicyShape(
            tokens=vocabulary + 1,
            eos=vocabulary,
            longest_prompt=length,
            longest_response=2 * length,
        )
        """Sizes of a policy that can solve the task."""

    def reward(self, prompt: Prompt, response: Sequence[int]) -> float:
        """Share of right tokens, 0 to 1, over the longer of answer and response.

        The end token counts as one token of the answer, so an answer that stops too early
        or too late earns less, and 1 means a perfect one.
        """
        answer = (*reversed(prompt.tokens), self.shape.eos)
        right = sum(given == wanted for given, wanted in zip(response, answer, strict=False))
        return right / max(len(answer), len(response))
