"""Intervals over problems: of a score, of the difference between two arms on the same problems, of tokens per forward.

Everything resamples or counts problems, since tokens of one answer are not independent. No SciPy: the exact intervals
are found by bisection on the binomial distribution. Resampling takes a seed and is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sbd.errors import UserError

Z95 = 1.959963984540054


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95% interval (or of the stated confidence), in the unit of the data."""

    estimate: float
    low: float
    high: float

    def times(self, factor: float) -> Interval:
        """In another unit, such as percent."""
        return Interval(self.estimate * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True)
class Paired:
    """Two arms on the same problems: the difference of their means, b minus a, its interval, and an exact test.

    only_a, only_b: problems that one arm alone solves. p_value: exact McNemar, two-sided.
    """

    difference: Interval
    only_a: int
    only_b: int
    p_value: float
    n: int


def wilson(successes: float, n: int, z: float = Z95) -> Interval:
    """Wilson's score interval (1927) for a proportion: centre (p + z²/2n) / (1 + z²/n); within [0, 1], never empty.

    Unlike the normal interval it covers about what it says for small n and for proportions near 0 or 1.
    """
    _check_counts(successes, n)
    p, shrink = successes / n, 1 + z * z / n
    centre = (p + z * z / (2 * n)) / shrink
    half = z / shrink * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    # At 0 and n the bound is the proportion itself; rounding must not push it a hair inside.
    low = 0.0 if successes == 0 else max(0.0, min(centre - half, p))
    high = 1.0 if successes == n else min(1.0, max(centre + half, p))
    return Interval(p, low, high)


def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """The exact interval: all p for which neither tail of the binomial is below (1 - confidence) / 2."""
    _check_counts(successes, n)
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else _root(lambda p: 1 - binomial_cdf(successes - 1, n, p) - tail)
    high = 1.0 if successes == n else _root(lambda p: tail - binomial_cdf(successes, n, p))
    return Interval(successes / n, low, high)


def binomial_cdf(successes: int, n: int, p: float) -> float:
    """P(X <= successes) for n trials of probability p, summed in logarithms."""
    if successes < 0:
        return 0.0
    if successes >= n or p <= 0:
        return 1.0
    if p >= 1:
        return 0.0
    log_p, log_q = math.log(p), math.log1p(-p)
    k = np.arange(successes + 1)
    log_choose = math.lgamma(n + 1) - np.array([math.lgamma(i + 1) + math.lgamma(n - i + 1) for i in k])
    return min(1.0, float(np.exp(log_choose + k * log_p + (n - k) * log_q).sum()))


def mcnemar(only_a: int, only_b: int) -> float:
    """Two-sided exact p-value that the problems which one arm alone solves fall to either with equal chance."""
    n = only_a + only_b
    if n == 0:
        return 1.0
    return min(1.0, 2 * binomial_cdf(min(only_a, only_b), n, 0.5))


def paired_difference(
    a: Sequence[float], b: Sequence[float], seed: int = 0, resamples: int = 10_000, confidence: float = 0.95
) -> Paired:
    """Mean of b minus mean of a over the same problems in the same order, with a percentile bootstrap interval.

    Scores of 0 and 1 (or False and True) get the exact test too; other scores have a p-value of NaN.
    """
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise UserError(f"paired scores need the same problems: got {first.shape} and {second.shape} values")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise UserError("a score is not a number; evaluate that problem again")
    difference = _bootstrap(second - first, np.ones(len(first)), seed, resamples, confidence)
    only_a, only_b = int(np.sum(first > second)), int(np.sum(second > first))
    binary = np.isin(first, (0, 1)).all() and np.isin(second, (0, 1)).all()
    p_value = mcnemar(only_a, only_b) if binary else math.nan
    return Paired(difference, only_a, only_b, p_value, len(first))


def paired_lower_bound(only_a: int, only_b: int, n: int, confidence: float) -> float:
    """One-sided lower bound of the mean of b minus that of a, for n pairs of which one alone solves so many.

    The exact lower bound of P(only b) less the exact upper bound of P(only a), each at half of the error: it holds for
    any n, and is wider than a bootstrap, which is too sure of itself where the two hardly ever differ.
    """
    if only_a + only_b > n:
        raise UserError(f"{only_a} and {only_b} problems that one arm alone solves are more than all {n}")
    return clopper_pearson(only_b, n, confidence).low - clopper_pearson(only_a, n, confidence).high


def ratio_of_sums(
    numerators: Sequence[float],
    denominators: Sequence[float],
    seed: int = 0,
    resamples: int = 10_000,
    confidence: float = 0.95,
) -> Interval:
    """Sum over sum with a percentile bootstrap over problems: tokens per forward from tokens and forward passes."""
    top, bottom = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    if top.shape != bottom.shape or top.ndim != 1 or not len(top):
        raise UserError(
            f"a ratio needs one numerator and one denominator a problem: got {top.shape} and {bottom.shape}"
        )
    if not (np.isfinite(top).all() and np.isfinite(bottom).all() and (bottom > 0).all()):
        raise UserError("a problem has no forward passes or a count that is not a number; evaluate it again")
    return _bootstrap(top, bottom, seed, resamples, confidence)


def _bootstrap(top: np.ndarray, bottom: np.ndarray, seed: int, resamples: int, confidence: float) -> Interval:
    """Of sum(top) / sum(bottom): problems are drawn with replacement."""
    drawn = _draws(len(top), seed, resamples)
    pieces = [
        (piece @ top) / (piece @ bottom)
        for start in range(0, resamples, 1000)
        if len(piece := drawn[start : start + 1000].astype(float))
    ]
    low, high = np.quantile(np.concatenate(pieces), [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(top.sum() / bottom.sum()), float(low), float(high))


@lru_cache(maxsize=4)
def _draws(n: int, seed: int, resamples: int) -> np.ndarray:
    """How often each of n problems is drawn in each resample ``[resamples, n]``; the same for all arms of a table."""
    random = np.random.default_rng(seed)
    counts = np.empty((resamples, n), dtype=np.uint16)
    for start in range(0, resamples, 1000):
        rows = min(1000, resamples - start)
        drawn = random.integers(0, n, size=(rows, n)) + n * np.arange(rows)[:, None]
        counts[start : start + rows] = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
    return counts


def _check_counts(successes: float, n: int) -> None:
    if n <= 0 or not 0 <= successes <= n:
        raise UserError(f"a proportion needs 0 <= successes <= n and n > 0; got {successes} of {n}")


def _root(rising) -> float:  # type: ignore[no-untyped-def]
    """Where a rising function on [0, 1] crosses zero."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2
