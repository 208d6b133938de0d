"""Which gamma to decode with: the largest that provably costs no more accuracy than allowed, on validation problems.

Every candidate is compared with one-by-one decoding on the same problems. For each block size they are tried from the
smallest gamma up, and the first that is not accepted ends the search: a fixed sequence of tests needs no correction for
their number, so only the number of block sizes divides the error. With the stated confidence, no accepted candidate is
more than ``margin`` points worse than the baseline on problems like these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sbd.errors import UserError
from sbd.statistics import paired_lower_bound

Scores = Sequence[float]
"""1 or 0 for each problem, in one order for all."""


@dataclass(frozen=True)
class Trial:
    """One candidate. difference and bound in points: the candidate less the baseline, and its one-sided lower bound."""

    block_size: int
    gamma: float
    score: float
    difference: float
    bound: float
    tokens_per_forward: float
    accepted: bool


def search(
    baseline: Scores,
    measure: Callable[[int, float], tuple[Scores, float]],
    block_sizes: Iterable[int],
    gammas: Iterable[float],
    margin: float,
    confidence: float,
) -> list[Trial]:
    """Try candidates until one is refused, for each block size. ``measure(block_size, gamma)`` gives scores and speed.

    margin: points of score that may be lost. Raises UserError for scores other than 0 and 1.
    """
    sizes = list(dict.fromkeys(block_sizes))
    error = (1 - confidence) / len(sizes)
    trials = []
    for size in sizes:
        for gamma in sorted(set(gammas)):
            scores, speed = measure(size, gamma)
            trial = compare(baseline, scores, size, gamma, speed, margin, 1 - error)
            trials.append(trial)
            if not trial.accepted:
                break
    return trials


def compare(
    baseline: Scores, scores: Scores, block_size: int, gamma: float, speed: float, margin: float, confidence: float
) -> Trial:
    """One candidate against the baseline, at a confidence of its own."""
    if len(baseline) != len(scores) or not len(scores):
        raise UserError(f"{len(scores)} problems of a candidate cannot be compared with {len(baseline)}; tune again")
    if not set(baseline) | set(scores) <= {0, 1}:
        raise UserError("only benchmarks that score each problem with 0 or 1 can be tuned on; choose another")
    only_a = sum(a > b for a, b in zip(baseline, scores, strict=True))
    only_b = sum(b > a for a, b in zip(baseline, scores, strict=True))
    bound = 100 * paired_lower_bound(only_a, only_b, len(scores), confidence)
    return Trial(
        block_size=block_size,
        gamma=gamma,
        score=100 * sum(scores) / len(scores),
        difference=100 * (only_b - only_a) / len(scores),
        bound=bound,
        tokens_per_forward=speed,
        accepted=bound >= -margin,
    )


def chosen(trials: Sequence[Trial]) -> Trial | None:
    """The largest accepted gamma of each block size, and of these the one with most tokens per forward pass."""
    largest = {trial.block_size: trial for trial in sorted(trials, key=lambda t: t.gamma) if trial.accepted}
    return max(largest.values(), key=lambda trial: trial.tokens_per_forward, default=None)
