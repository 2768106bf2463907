"""A small pointer policy: a GRU that either copies a token of the prompt or says one itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.nn.utils.rnn import pad_sequence

from cutlock.errors import ConfigError
from cutlock.workers.base import PolicyShape

__all__ = ["Policy", "Sample", "build_policy"]

_LEAST_PROBABILITY = 1e-9


class Sample(NamedTuple):
    """One sampled response."""

    tokens: Tensor
    """int64, ends with the end token unless the longest response was reached."""
    logprobs: Tensor
    """float32, natural logarithm of each token's probability when it was sampled."""


class _Context(NamedTuple):
    """What the decoder may point at, per row and position; position 0 is the end token."""

    keys: Tensor
    """(rows, positions, hidden)"""
    copies: Tensor
    """(rows, positions, tokens), one-hot token of each position."""
    padding: Tensor
    """(rows, 1, positions), True where a shorter prompt has no position."""


class Policy(nn.Module):
    """Autoregressive policy over a tiny vocabulary (31,000 parameters at the default shape).

    Positions are counted from the end of the prompt, and the end token stands in front of
    it, so that reversing any prompt is one habit to learn: point one further to the left.
    """

    def __init__(self, shape: PolicyShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.tokens, shape.hidden)
        self.distance = nn.Embedding(shape.longest_prompt + 2, shape.hidden)
        self.decoder = nn.GRU(shape.hidden, shape.hidden, batch_first=True)
        self.query = nn.Linear(shape.hidden, shape.hidden)
        self.gate = nn.Linear(shape.hidden, 1)
        self.speak = nn.Linear(shape.hidden, shape.tokens)

    @torch.no_grad()
    def sample(self, prompt: Tensor, *, count: int, seed: int) -> list[Sample]:
        """Draw `count` responses to one prompt (int64); equal seeds give equal responses."""
        rng = torch.Generator().manual_seed(seed % 2**63)
        context = self._context([prompt])
        token = torch.full((count, 1), self.shape.eos)
        ended = torch.zeros_like(token, dtype=torch.bool)
        state: Tensor | None = None
        tokens, logprobs = [], []
        for _ in range(self.shape.longest_response):
            output, state = self.decoder(self.embedding(token), state)
            scores = self._log_distribution(output, context)[:, 0]
            token = torch.multinomial(scores.exp(), 1, generator=rng)
            tokens.append(token)
            logprobs.append(scores.gather(1, token))
            ended |= token == self.shape.eos
            if ended.all():
                break
        drawn, scored = torch.cat(tokens, 1), torch.cat(logprobs, 1)
        before_end = (drawn != self.shape.eos).long().cumprod(1).sum(1)
        lengths = (before_end + 1).clamp(max=drawn.shape[1]).tolist()
        # Clones: a view would carry the storage of the whole group into every row.
        return [
            Sample(drawn[row, :length].clone(), scored[row, :length].clone())
            for row, length in enumerate(lengths)
        ]

    def log_probs(
        self, prompts: Sequence[Tensor], responses: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities of given responses, with gradients.

        Returns:
            Two tensors of shape (rows, longest response): the log-probability of each token,
            and 1.0 where the row has a token, 0.0 where it is padding.
        """
        targets = pad_sequence(list(responses), batch_first=True, padding_value=self.shape.eos)
        lengths = torch.tensor([len(response) for response in responses])
        mask = (torch.arange(targets.shape[1]) < lengths[:, None]).float()
        start = torch.full((len(responses), 1), self.shape.eos)
        output, _ = self.decoder(self.embedding(torch.cat([start, targets[:, :-1]], 1)))
        scores = self._log_distribution(output, self._context(prompts))
        return scores.gather(2, targets[:, :, None])[:, :, 0], mask

    def _context(self, prompts: Sequence[Tensor]) -> _Context:
        lengths = torch.tensor([len(prompt) + 1 for prompt in prompts])
        longest = int(lengths.max())
        if longest > self.shape.longest_prompt + 1:
            raise ConfigError(
                f"a prompt has {longest - 1} tokens, the policy takes {self.shape.longest_prompt}; "
                "raise longest_prompt of the policy shape"
            )
        tokens = torch.full((len(prompts), longest), self.shape.eos)
        for row, prompt in enumerate(prompts):
            tokens[row, 1 : len(prompt) + 1] = prompt
        distance = (lengths[:, None] - torch.arange(longest)).clamp(min=0)
        return _Context(
            keys=self.embedding(tokens) + self.distance(distance),
            copies=one_hot(tokens, self.shape.tokens).float(),
            padding=(distance == 0)[:, None, :],
        )

    def _log_distribution(self, output: Tensor, context: _Context) -> Tensor:
        """Decoder output (rows, time, hidden) to log-probabilities (rows, time, tokens)."""
        scores = self.query(output) @ context.keys.mT / math.sqrt(self.shape.hidden)
        pointed = scores.masked_fill(context.padding, -torch.inf).softmax(-1) @ context.copies
        gate = self.gate(output).sigmoid()
        mixed: Tensor = gate * pointed + (1 - gate) * self.speak(output).softmax(-1)
        return mixed.clamp(min=_LEAST_PROBABILITY).log()


def build_policy(shape: PolicyShape, *, seed: int) -> Policy:
    """A policy with weights drawn from `seed`; torch's global random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Policy(shape)
