"""Which masked positions to reveal in this pass: the entropy bound of Set Block Decoding and its rivals.

A sampler is called with ``logits`` [batch, k, vocab] and ``masked`` [batch, k] (True = still a mask) and returns
``reveal`` [batch, k]: at least one position per row that has a mask, never a position that is not masked. Tokens that
must not be generated (mask, padding, start) are expected to be -inf in the logits already. Everything is vectorised
over the batch and nothing waits for the device. Entropies are in nats, of the untempered softmax, in float32; the
vocabulary is walked in chunks of rows, so that a sampler never holds a second tensor of the size of the logits.

The samplers here are made of two steps: numbers of each position, from its logits, and which positions these numbers
reveal. The second stands twice, vectorised over tensors and for a single row in plain Python: the rule as one would say
it, and what a decoder takes, since the numbers of a pass come to its host anyway. Behind a pass of a model no code is
in the processor's caches, and a few lines of Python then take less time than as many calls of a library.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from numbers import Real
from typing import Literal, TypeGuard

import torch
from torch import Tensor

from sbd.errors import UserError
from sbd.integers import integer

Sampler = Callable[[Tensor, Tensor], Tensor]

_CHUNK_ELEMENTS = 2**22
"""Elements of [rows, vocab] worked on at once: 16 MB in float32."""
_SMALLEST = torch.finfo(torch.float32).tiny


def _by_rows(function: Callable[..., Tensor], logits: Tensor, *others: Tensor) -> Tensor:
    """Apply ``function`` [..., vocab], [...] -> [...] to logits [batch, k, vocab] and ``others`` [batch, k].

    In chunks of rows; gives [batch, k].
    """
    if logits.numel() <= _CHUNK_ELEMENTS:
        return function(logits, *others)
    step = max(1, _CHUNK_ELEMENTS // logits.shape[-1])
    parts = zip(*(values.flatten(0, 1).split(step) for values in (logits, *others)), strict=True)
    return torch.cat([function(*part) for part in parts]).view(logits.shape[:2])


def entropies(logits: Tensor) -> Tensor:
    """Entropy in nats of softmax(logits), [batch, k, vocab] -> float32 [batch, k]; a logit of -inf counts as 0."""
    return _negative_entropies(logits).neg_()


def _negative_entropies(logits: Tensor) -> Tensor:
    def negative_entropy(rows: Tensor) -> Tensor:
        # What torch.special.entr gives, and slower on a CPU; where p is 0 so is p log(clamped p).
        p = torch.softmax(rows, dim=-1, dtype=torch.float32)
        return p.clamp(min=_SMALLEST).log_().mul_(p).sum(-1)

    return _by_rows(negative_entropy, logits)


def confidences(logits: Tensor) -> Tensor:
    """Probability of the most likely token, [batch, k, vocab] -> float32 [batch, k]."""
    return _by_rows(lambda rows: torch.softmax(rows, dim=-1, dtype=torch.float32).amax(-1), logits)


def token_probabilities(logits: Tensor, tokens: Tensor) -> Tensor:
    """Probability of given ``tokens`` [batch, k] under logits [batch, k, vocab]; float32 [batch, k]."""

    def probability(rows: Tensor, chosen: Tensor) -> Tensor:
        return torch.softmax(rows, dim=-1, dtype=torch.float32).gather(-1, chosen[..., None])[..., 0]

    return _by_rows(probability, logits, tokens)


def margins(logits: Tensor) -> Tensor:
    """Probability of the most likely token less that of the second, [batch, k, vocab] -> float32 [batch, k]."""

    def margin(rows: Tensor) -> Tensor:
        top = torch.softmax(rows, dim=-1, dtype=torch.float32).topk(2, dim=-1).values
        return top[..., 0] - top[..., 1]

    return _by_rows(margin, logits)


def entropy_bound_prefix(entropies: Tensor, gamma: float) -> Tensor:
    """How many positions to reveal: the largest s >= 1 with sum of the s first entropies less their maximum <= gamma.

    ``entropies`` [..., n] stand in the order of revelation; returns int64 [...]. Sorted ascending the maximum is the
    last one, and this is equation 8 of Set Block Decoding (the first s - 1 sum to at most gamma); in any other order it
    is its equation 18, which is equation 2 of EB-Sampler. Adding a position raises "sum less maximum" by the smaller of
    its entropy and the maximum before it, so the running value is a sum of non-negative terms: it cannot lose a small
    entropy beside a large one, and it stays finite where a single entropy is infinite.
    """
    return 1 + _within_bound(entropies, gamma).sum(-1)


def _within_bound(entropies: Tensor, gamma: float) -> Tensor:
    """Whether each position behind the first, in the order of revelation, is revealed: bool [..., n - 1]."""
    largest = entropies.cummax(-1).values
    return _running_sum(torch.minimum(entropies[..., 1:], largest[..., :-1])) <= gamma


def _ascending_within_bound(entropies: Tensor, gamma: float) -> Tensor:
    """The same for ascending entropies: each adds the one before it."""
    return _running_sum(entropies[..., :-1]) <= gamma


def _prefix(entropies: list[float], gamma: float) -> int:
    """``entropy_bound_prefix`` of one row."""
    largest, excess = 0.0, 0.0
    for count, entropy in enumerate(entropies):
        excess += entropy if entropy < largest else largest
        if not excess <= gamma:
            return count
        if entropy > largest:
            largest = entropy
    return len(entropies)


def _running_sum(values: Tensor) -> Tensor:
    return values.cumsum(-1, dtype=torch.float64)


def _first_in_order(order: Tensor, count: Tensor, masked: Tensor) -> Tensor:
    """Reveal the first ``count`` [batch] positions of ``order`` [batch, k], at least one, and only masked ones."""
    following = torch.arange(1, order.shape[1], device=order.device) < count[:, None]
    return _chosen(order, following, masked)


def _chosen(order: Tensor, following: Tensor, masked: Tensor) -> Tensor:
    """Reveal the first of ``order`` [batch, k] and, behind it, those of ``following`` [batch, k - 1], if masked."""
    return torch.ones_like(masked).scatter_(1, order[:, 1:], following).logical_and_(masked)


def _ascending(key: Tensor, masked: Tensor) -> tuple[Tensor, Tensor]:
    """Sort ``key`` [batch, k] ascending, ties from left to right; positions that are not masked come last, as +inf."""
    values, order = torch.where(masked, key, math.inf).sort(stable=True)
    return values, order


def _descending(scores: list[float]) -> list[int]:
    """Places of ``scores`` from the highest to the lowest, ties from left to right."""
    return sorted(range(len(scores)), key=scores.__getitem__, reverse=True)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UserError(message)


def _not_negative(name: str, value: float) -> None:
    is_number = isinstance(value, Real) and value >= 0  # NaN fails the comparison
    _require(is_number, f"{name} must be a number of 0 or more (inf for no limit), not {value!r}")


class TwoStep(ABC):
    """A sampler in two steps: numbers of each position, from its logits alone, and what they reveal."""

    def __call__(self, logits: Tensor, masked: Tensor) -> Tensor:
        """Logits [batch, k, vocab] and masked [batch, k] -> reveal [batch, k]."""
        return self.select(self.scores(logits), masked)

    @abstractmethod
    def scores(self, logits: Tensor) -> tuple[Tensor, ...]:
        """What the second step looks at: tensors [batch, k] of logits [batch, k, vocab]."""

    @abstractmethod
    def select(self, scores: tuple[Tensor, ...], masked: Tensor) -> Tensor:
        """Scores and masked [batch, k] -> reveal [batch, k]."""

    @abstractmethod
    def select_row(self, *scores: list[float]) -> Sequence[int]:
        """The same of one row, whose masked positions have these ``scores``: which of them, counted from 0."""


def is_two_step(sampler: Sampler) -> TypeGuard[TwoStep]:
    """Whether its steps are all there is to it."""
    return isinstance(sampler, TwoStep) and type(sampler).__call__ is TwoStep.__call__


@dataclass(frozen=True)
class EntropyBound(TwoStep):
    """The entropy bound: the largest prefix whose entropies, less the largest of them, sum to at most ``gamma`` nats.

    ``order`` is what sorts the masked positions: "entropy" (equation 8 of Set Block Decoding), "confidence" (its
    equation 18) or "margin" between the two most likely tokens (EB-Sampler). gamma 0 reveals one token per pass, unless
    an entropy is exactly 0; ``math.inf`` reveals all.
    """

    gamma: float
    order: Literal["entropy", "confidence", "margin"] = "entropy"

    def __post_init__(self) -> None:
        _not_negative("gamma of EntropyBound", self.gamma)
        _require(
            self.order in ("entropy", "confidence", "margin"),
            f"order of EntropyBound must be 'entropy', 'confidence' or 'margin', not {self.order!r}",
        )

    def scores(self, logits: Tensor) -> tuple[Tensor, ...]:
        """The entropies with their sign reversed, and what orders them if that is something else."""
        if self.order == "entropy":
            return (_negative_entropies(logits),)
        return _negative_entropies(logits), confidences(logits) if self.order == "confidence" else margins(logits)

    def select(self, scores: tuple[Tensor, ...], masked: Tensor) -> Tensor:
        """As many as the bound allows."""
        if self.order == "entropy":
            values, order = _ascending(-scores[0], masked)
            return _chosen(order, _ascending_within_bound(values, self.gamma), masked)
        order = _ascending(-scores[1], masked)[1]
        entropy = torch.where(masked, -scores[0], math.inf).gather(1, order)
        return _chosen(order, _within_bound(entropy, self.gamma), masked)

    def select_row(self, *scores: list[float]) -> Sequence[int]:
        """As many as the bound allows."""
        negative, order = scores[0], _descending(scores[-1])
        return order[: _prefix([-negative[place] for place in order], self.gamma)]


@dataclass(frozen=True)
class CumulativeEntropy(TwoStep):
    """Entropies sorted ascending, as many as sum to at most ``gamma`` nats, at least one.

    Often quoted as the rule of the paper, which it is not: the bound subtracts the largest entropy of the set.
    """

    gamma: float

    def __post_init__(self) -> None:
        _not_negative("gamma of CumulativeEntropy", self.gamma)

    def scores(self, logits: Tensor) -> tuple[Tensor, ...]:
        """The entropies with their sign reversed."""
        return (_negative_entropies(logits),)

    def select(self, scores: tuple[Tensor, ...], masked: Tensor) -> Tensor:
        """As many as the sum allows."""
        values, order = _ascending(-scores[0], masked)
        return _first_in_order(order, (_running_sum(values) <= self.gamma).sum(-1), masked)

    def select_row(self, *scores: list[float]) -> Sequence[int]:
        """As many as the sum allows."""
        order = _descending(scores[0])
        sums = accumulate(-scores[0][place] for place in order)
        return order[: max(1, sum(total <= self.gamma for total in sums))]


@dataclass(frozen=True)
class Factor(TwoStep):
    """Confidences c_1 >= c_2 >= ...: reveal the n first, n the largest that satisfies the rule, at least one.

    ``form`` "fast_dllm" is the rule of Fast-dLLM, (n + 1) (1 - c_n) < factor. "printed" is the rule as appendix B of
    Set Block Decoding prints it, (n + 1) c_n < factor, which reveals uncertain tokens and is most likely a slip of the
    pen.
    """

    factor: float
    form: Literal["fast_dllm", "printed"] = "fast_dllm"

    def __post_init__(self) -> None:
        _not_negative("factor of Factor", self.factor)
        _require(
            self.form in ("fast_dllm", "printed"), f"form of Factor must be 'fast_dllm' or 'printed', not {self.form!r}"
        )

    def scores(self, logits: Tensor) -> tuple[Tensor, ...]:
        """The confidences."""
        return (confidences(logits),)

    def select(self, scores: tuple[Tensor, ...], masked: Tensor) -> Tensor:
        """As many as satisfy the rule."""
        values, order = _ascending(-scores[0], masked)
        confidence, n = -values.double(), torch.arange(1, values.shape[1] + 1, device=values.device)
        left = (n + 1) * (1 - confidence if self.form == "fast_dllm" else confidence)
        satisfied = (left < self.factor) & masked.gather(1, order)
        return _first_in_order(order, (satisfied * n).amax(-1), masked)

    def select_row(self, *scores: list[float]) -> Sequence[int]:
        """As many as satisfy the rule."""
        order, count = _descending(scores[0]), 1
        for n, place in enumerate(order, 1):
            confidence = scores[0][place]
            if (n + 1) * (1 - confidence if self.form == "fast_dllm" else confidence) < self.factor:
                count = n
        return order[:count]


@dataclass(frozen=True)
class ConfidenceThreshold(TwoStep):
    """Reveal every position whose most likely token is more probable than ``threshold``, and always the surest one."""

    threshold: float

    def __post_init__(self) -> None:
        _require(
            isinstance(self.threshold, Real) and 0 <= self.threshold <= 1,
            f"threshold of ConfidenceThreshold must be a number from 0 to 1, not {self.threshold!r}",
        )

    def scores(self, logits: Tensor) -> tuple[Tensor, ...]:
        """The confidences."""
        return (confidences(logits),)

    def select(self, scores: tuple[Tensor, ...], masked: Tensor) -> Tensor:
        """Those above the threshold, or the surest."""
        values, order = _ascending(-scores[0], masked)
        return _first_in_order(order, (-values.double() > self.threshold).sum(-1), masked)

    def select_row(self, *scores: list[float]) -> Sequence[int]:
        """Those above the threshold, or the surest."""
        above = [place for place, confidence in enumerate(scores[0]) if confidence > self.threshold]
        return above or _descending(scores[0])[:1]


@dataclass(frozen=True)
class TopK(TwoStep):
    """Reveal the ``count`` positions of highest confidence in every pass; 1 is one token per pass."""

    count: int

    def __post_init__(self) -> None:
        _require(
            integer(self.count, 1) is not None,
            f"count of TopK must be an integer of 1 or more, not {self.count!r}",
        )

    def scores(self, logits: Tensor) -> tuple[Tensor, ...]:
        """The confidences."""
        return (confidences(logits),)

    def select(self, scores: tuple[Tensor, ...], masked: Tensor) -> Tensor:
        """The ``count`` surest."""
        order = _ascending(-scores[0], masked)[1]
        return _first_in_order(order, masked.sum(-1).clamp(max=self.count), masked)

    def select_row(self, *scores: list[float]) -> Sequence[int]:
        """The ``count`` surest."""
        return _descending(scores[0])[: self.count]
