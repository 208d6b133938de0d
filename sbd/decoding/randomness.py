"""Choosing tokens. All chance is a hash of (seed, sample, position, token): it knows nothing of batch, pass or decoder.

A token is drawn as argmax(logits / temperature + Gumbel noise), which is a draw from the softmax. Because the noise of
a position does not depend on who asks, a draft and its verification draw with the same noise: self-speculative decoding
gives the text that autoregressive sampling gives with the same seed, and so trivially its distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from sbd.errors import UserError
from sbd.integers import integer

_MASK = 0xFFFFFFFF
_CHUNK_ELEMENTS = 2**20
_TEMPERATURES = (1e-6, 1e6)
"""Beyond them logits divided by the temperature leave float32, or drown in the noise."""


def mix(value: Tensor) -> Tensor:
    """A bijective 32-bit hash of int64 values in [0, 2**32) with good avalanche (two multiplications, three shifts)."""
    value = value ^ (value >> 16)
    value = (value * 0x21F0AAAD) & _MASK
    value = value ^ (value >> 15)
    value = (value * 0x735A2D97) & _MASK
    return value ^ (value >> 15)


def keys(seed: int, samples: Tensor, positions: Tensor) -> Tensor:
    """One 32-bit key per (seed, sample, position): samples [batch] and positions [batch, n] give int64 [batch, n]."""
    start = mix((samples + ((seed & _MASK) * 0x9E3779B1 & _MASK)) & _MASK)
    start = mix(start ^ ((seed >> 32) & _MASK) ^ 0x5BD1E995)
    return mix((start[:, None] + positions * 0x2545F491) & _MASK)


def random_integers(seed: int, samples: Tensor, draws: Tensor, low: int, high: int) -> Tensor:
    """Integers in [low, high] by (seed, sample, draw) alone; ``draws`` [batch] numbers the draws of a row."""
    if low == high:
        return torch.full_like(draws, low)
    key = keys(seed ^ 0x6C62272E, samples, draws[:, None])[:, 0]
    return low + key * (high - low + 1) // 2**32


def _uniform(bits: Tensor) -> Tensor:
    """Numbers strictly between 0 and 1 from the upper 23 of 32 random bits, float32.

    With 23 bits a half can be added exactly; with 24 the largest number would round to 1, and its noise be infinite.
    """
    return ((bits >> 9).to(torch.float32) + 0.5) * 2.0**-23


def _gumbel(key: Tensor, vocabulary: int) -> Tensor:
    """Standard Gumbel noise [rows, vocabulary] in float32 for keys [rows]; always finite."""
    tokens = mix(torch.arange(vocabulary, device=key.device) + 0x1B873593)
    return -torch.log(-torch.log(_uniform(mix(key[:, None] ^ tokens))))


def _filter(logits: Tensor, top_k: int | None, top_p: float | None) -> Tensor:
    """-inf for all but the ``top_k`` best, then for all but the fewest that hold ``top_p`` of it; [rows, vocab]."""
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if top_p is not None and top_p < 1:
        values, order = logits.sort(dim=-1, descending=True)
        probabilities = values.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        logits = logits.masked_fill(
            torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, before >= top_p), -torch.inf
        )
    return logits


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen from its logits. Temperature 0 takes the most likely one."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        least, most = _TEMPERATURES
        if not isinstance(self.temperature, Real) or not (self.temperature == 0 or least <= self.temperature <= most):
            raise UserError(
                f"temperature must be 0 (greedy) or a number from {least:g} to {most:g}, not {self.temperature!r}"
            )
        if self.top_k is not None and integer(self.top_k, 1) is None:
            raise UserError(f"top_k must be an integer of 1 or more (None for no limit), not {self.top_k!r}")
        if self.top_p is not None and (not isinstance(self.top_p, Real) or not 0 < self.top_p <= 1):
            raise UserError(f"top_p must be above 0 and at most 1 (None for no limit), not {self.top_p!r}")
        seed = integer(self.seed)
        if seed is None:
            raise UserError(f"seed must be an integer, not {self.seed!r}")
        object.__setattr__(self, "seed", seed)

    def choose(self, logits: Tensor, samples: Tensor, positions: Tensor) -> Tensor:
        """Tokens [batch, n] drawn from logits [batch, n, vocab]; ``positions`` [batch, n] count new tokens from 0.

        The temperature is above 0; without one the most likely token needs no draw.
        """
        rows, key = logits.flatten(0, 1), keys(self.seed, samples, positions).flatten()
        step = max(1, _CHUNK_ELEMENTS // rows.shape[-1])
        tokens = [
            self._draw(rows[start : start + step], key[start : start + step]) for start in range(0, rows.shape[0], step)
        ]
        return torch.cat(tokens).view(logits.shape[:2])

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken, whatever the sample and the position."""
        return self.temperature == 0

    def _draw(self, logits: Tensor, key: Tensor) -> Tensor:
        tempered = _filter(logits.float() / self.temperature, self.top_k, self.top_p)
        return (tempered + _gumbel(key, logits.shape[-1])).argmax(-1)
