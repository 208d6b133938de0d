"""Tuning: what is accepted, in which order, and that the bound holds as often as it says."""

from __future__ import annotations

import math
from itertools import product

import pytest

from sbd import tuning
from sbd.errors import UserError
from sbd.statistics import paired_lower_bound


@pytest.mark.parametrize("n", [1, 9, 14])
@pytest.mark.parametrize(("p_a", "p_b"), [(0.0, 0.0), (0.05, 0.0), (0.3, 0.1), (0.1, 0.4), (0.5, 0.5)])
def test_the_bound_fails_no_more_often_than_it_says(n: int, p_a: float, p_b: float) -> None:
    """By summing the probability of every outcome (problems that a alone, b alone, and both or none solve)."""
    for confidence in (0.8, 0.95):
        missed = 0.0
        for a, b in product(range(n + 1), repeat=2):
            if a + b <= n and paired_lower_bound(a, b, n, confidence) > p_b - p_a + 1e-9:
                ways = math.comb(n, a) * math.comb(n - a, b)
                missed += ways * p_a**a * p_b**b * (1 - p_a - p_b) ** (n - a - b)
        assert missed <= 1 - confidence


def test_the_bound_narrows_with_problems_and_falls_with_losses() -> None:
    assert paired_lower_bound(0, 0, 100, 0.95) < paired_lower_bound(0, 0, 1000, 0.95) < 0
    assert paired_lower_bound(5, 0, 100, 0.95) < paired_lower_bound(4, 0, 100, 0.95)
    with pytest.raises(UserError, match="more than all 3"):
        paired_lower_bound(2, 2, 3, 0.95)


def test_the_search_stops_at_the_first_gamma_that_is_refused() -> None:
    n, asked = 400, []
    lost = {8: {0.1: 0, 0.2: 1, 0.5: 40, 1.0: 0}, 16: {0.1: 0, 0.2: 30, 0.5: 0, 1.0: 0}}

    def measure(size: int, gamma: float) -> tuple[list[float], float]:
        asked.append((size, gamma))
        bad = lost[size][gamma]
        return [0.0] * bad + [1.0] * (n - bad), size * gamma

    trials = tuning.search([1.0] * n, measure, [16, 8], [0.5, 0.1, 1.0, 0.2], margin=2.5, confidence=0.95)
    assert asked == [(16, 0.1), (16, 0.2), (8, 0.1), (8, 0.2), (8, 0.5)]
    assert [trial.accepted for trial in trials] == [True, False, True, True, False]
    assert [trial.difference for trial in trials] == pytest.approx([0, -7.5, 0, -0.25, -10])
    # Two block sizes share the error of 5%.
    assert trials[0].bound == pytest.approx(100 * paired_lower_bound(0, 0, n, 0.975))
    # The largest of each block size are 0.1 and 0.2, with equal speed here.
    best = tuning.chosen(trials)
    assert best is not None
    assert best.tokens_per_forward == 1.6
    assert tuning.chosen([trial for trial in trials if not trial.accepted]) is None


def test_of_two_block_sizes_the_faster_wins_and_a_larger_gamma_beats_a_faster_smaller_one() -> None:
    def trial(size: int, gamma: float, speed: float) -> tuning.Trial:
        return tuning.Trial(size, gamma, 90, 0, -1, speed, accepted=True)

    trials = [trial(8, 0.1, 3.0), trial(8, 0.2, 2.5), trial(16, 0.1, 2.6)]
    assert tuning.chosen(trials) == trials[2]
    assert tuning.chosen(trials[:2]) == trials[1]


def test_scores_between_0_and_1_are_refused() -> None:
    with pytest.raises(UserError, match="0 or 1"):
        tuning.compare([1.0], [0.5], 8, 0.1, 1.0, 2.0, 0.95)
    with pytest.raises(UserError, match="cannot be compared"):
        tuning.compare([1.0], [1.0, 0.0], 8, 0.1, 1.0, 2.0, 0.95)
