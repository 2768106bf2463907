"""A toy task with a computed reward: say the digits of the prompt in reverse, then stop."""

from __future__ import annotations

import random
from collections.abc import Sequence

from cutlock.errors import ConfigError
from cutlock.workers.base import PolicyShape, Prompt
from cutlock.workers.prompts import PromptList

__all__ = ["ReverseTask"]


class ReverseTask(PromptList):
    """A data set of distinct digit strings, and the verifier of their reversals.

    It is its own `Verifier`. Tokens 0 to `vocabulary - 1` are digits, token
    `vocabulary` ends a response. Prompts have 2 to `length` digits, so the durations of
    rollouts differ from prompt to prompt. The id of a prompt spells its digits.

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
