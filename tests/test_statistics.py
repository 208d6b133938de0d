from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbd import statistics
from sbd.errors import UserError


def exact_cdf(successes: int, n: int, p: Fraction) -> Fraction:
    return sum((math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(successes + 1)), Fraction(0))


@pytest.mark.parametrize("n", [1, 7, 30])
@pytest.mark.parametrize("p", [Fraction(0), Fraction(1, 50), Fraction(1, 2), Fraction(9, 10), Fraction(1)])
def test_binomial_cdf_is_the_exact_sum(n: int, p: Fraction) -> None:
    for successes in range(-1, n + 1):
        expected = float(exact_cdf(successes, n, p))
        assert statistics.binomial_cdf(successes, n, float(p)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("successes", "n"), [(0, 20), (3, 20), (10, 20), (20, 20), (29, 30), (447, 500)])
def test_clopper_pearson_ends_have_tails_of_one_fortieth(successes: int, n: int) -> None:
    interval = statistics.clopper_pearson(successes, n)
    if successes > 0:
        below = exact_cdf(successes - 1, n, Fraction(interval.low)) if n < 100 else None
        assert below is None or float(1 - below) == pytest.approx(0.025, abs=1e-9)
    else:
        assert interval.low == 0
    if successes < n:
        above = exact_cdf(successes, n, Fraction(interval.high)) if n < 100 else None
        assert above is None or float(above) == pytest.approx(0.025, abs=1e-9)
    else:
        assert interval.high == 1
    assert interval.low < interval.estimate or successes == 0
    assert interval.estimate < interval.high or successes == n


@given(st.integers(1, 400), st.data())
@settings(max_examples=60, deadline=None)
def test_wilson_ends_are_z_standard_errors_away(n: int, data: st.DataObject) -> None:
    """Its definition: the p0 for which |p - p0| = z sqrt(p0 (1 - p0) / n)."""
    successes = data.draw(st.integers(0, n))
    interval = statistics.wilson(successes, n)
    assert 0 <= interval.low <= interval.estimate <= interval.high <= 1
    for end in (interval.low, interval.high):
        if 0 < end < 1:
            distance = abs(interval.estimate - end)
            assert distance == pytest.approx(statistics.Z95 * math.sqrt(end * (1 - end) / n), rel=1e-9, abs=1e-12)


def test_coverage_of_both_intervals_by_the_exact_distribution() -> None:
    """Clopper-Pearson covers at least 95% everywhere; Wilson near 95% on average over p."""
    n = 25
    exact = [statistics.clopper_pearson(k, n) for k in range(n + 1)]
    score = [statistics.wilson(k, n) for k in range(n + 1)]
    grid = np.linspace(0.02, 0.98, 97)
    cover = {"exact": [], "score": []}
    for p in grid:
        weights = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
        for name, intervals in (("exact", exact), ("score", score)):
            cover[name].append(sum(w for w, i in zip(weights, intervals, strict=True) if i.low <= p <= i.high))
    assert min(cover["exact"]) >= 0.95
    assert abs(np.mean(cover["score"]) - 0.95) < 0.01


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (0, 5), (5, 0), (3, 9), (4, 4), (10, 11)])
def test_mcnemar_by_counting_all_outcomes(only_a: int, only_b: int) -> None:
    """Every way the discordant problems can fall; as extreme means at least as far from the middle."""
    n = only_a + only_b
    if n <= 12:
        outcomes = [sum(outcome) for outcome in product((0, 1), repeat=n)]
        counts = [outcomes.count(k) for k in range(n + 1)]
    else:
        counts = [math.comb(n, k) for k in range(n + 1)]
    far = sum(count for k, count in enumerate(counts) if abs(k - n / 2) >= abs(only_a - n / 2))
    assert statistics.mcnemar(only_a, only_b) == pytest.approx(far / 2**n, rel=1e-12)


def test_bootstrap_of_few_problems_equals_the_enumeration_of_all_resamples() -> None:
    tokens, passes = np.array([10.0, 30.0, 7.0, 64.0]), np.array([5.0, 6.0, 7.0, 16.0])
    ratios = [tokens[list(draw)].sum() / passes[list(draw)].sum() for draw in product(range(4), repeat=4)]
    found = statistics.ratio_of_sums(tokens.tolist(), passes.tolist(), resamples=100_000)
    assert found.estimate == pytest.approx(111 / 34)
    # The quantiles of 256 equally likely resamples, by their exact distribution.
    assert found.low == pytest.approx(np.quantile(ratios, 0.025, method="inverted_cdf"), rel=0.02)
    assert found.high == pytest.approx(np.quantile(ratios, 0.975, method="inverted_cdf"), rel=0.02)


def test_paired_difference_uses_the_pairing() -> None:
    """Two arms that fail on nearly the same problems: a small interval; shuffled, a wide one."""
    random = np.random.default_rng(1)
    a = (random.random(400) < 0.8).astype(float)
    b = a.copy()
    b[np.flatnonzero(a == 1)[:6]] = 0
    b[np.flatnonzero(a == 0)[:2]] = 1
    paired = statistics.paired_difference(a.tolist(), b.tolist(), seed=3)
    assert (paired.only_a, paired.only_b, paired.n) == (6, 2, 400)
    assert paired.difference.estimate == pytest.approx(-4 / 400)
    # Standard error of a mean of differences -1, 0, 1.
    error = math.sqrt((8 / 400 - (4 / 400) ** 2) / 400)
    assert paired.difference.high - paired.difference.low == pytest.approx(2 * 1.96 * error, rel=0.1)
    assert paired.p_value == pytest.approx(2 * sum(math.comb(8, k) for k in range(3)) / 2**8)
    shuffled = statistics.paired_difference(a.tolist(), random.permutation(b).tolist(), seed=3)
    assert shuffled.difference.high - shuffled.difference.low > 3 * (paired.difference.high - paired.difference.low)
    assert statistics.paired_difference(a.tolist(), b.tolist(), seed=3) == paired
    assert statistics.paired_difference(a.tolist(), a.tolist()).p_value == 1.0
    assert math.isnan(statistics.paired_difference([0.5, 1.0], [1.0, 0.0]).p_value)


def test_a_mean_and_units() -> None:
    found = statistics.ratio_of_sums([0.0, 1.0, 1.0, 1.0] * 50, [1.0] * 200, seed=2)
    assert found.estimate == 0.75
    assert found.high - found.low == pytest.approx(2 * 1.96 * math.sqrt(0.75 * 0.25 / 200), rel=0.1)
    assert found.times(100).estimate == 75
    assert found.times(100).low == found.low * 100


@pytest.mark.parametrize(
    "call",
    [
        lambda: statistics.wilson(1, 0),
        lambda: statistics.wilson(3, 2),
        lambda: statistics.clopper_pearson(-1, 2),
        lambda: statistics.paired_difference([1.0], [1.0, 0.0]),
        lambda: statistics.paired_difference([], []),
        lambda: statistics.paired_difference([math.nan], [1.0]),
        lambda: statistics.ratio_of_sums([3.0, 4.0], [1.0, 0.0]),
    ],
)
def test_what_has_no_interval_is_refused(call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError):
        call()


def test_wilson_is_close_to_the_exact_interval_and_covers_about_95_percent() -> None:
    n = 200
    bounds = [statistics.wilson(k, n) for k in range(n + 1)]
    for k in range(20, 181):
        low = bounds[k].low
        # mid-p: half of the probability of what was seen counts as "at least as far away"
        beyond = (1 - statistics.binomial_cdf(k, n, low)) + 0.5 * math.comb(n, k) * low**k * (1 - low) ** (n - k)
        assert beyond == pytest.approx(0.025, abs=0.008)
    for p in (0.1, 0.3, 0.5, 0.9):
        inside = [k for k in range(n + 1) if bounds[k].low <= p <= bounds[k].high]
        assert sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in inside) == pytest.approx(0.95, abs=0.015)


def test_the_bootstrap_draws_problems_with_replacement() -> None:
    """Against a resampling written out, with the same draws."""
    top, bottom = [3.0, 1.0, 4.0, 1.0, 5.0], [1.0, 2.0, 2.0, 1.0, 3.0]
    found = statistics.ratio_of_sums(top, bottom, seed=3, resamples=1500)
    random = np.random.default_rng(3)
    drawn = [row for size in (1000, 500) for row in random.integers(0, 5, size=(size, 5))]
    ratios = sorted(sum(top[i] for i in row) / sum(bottom[i] for i in row) for row in drawn)
    assert found.estimate == 14 / 9
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(ratios, [0.025, 0.975])))
