"""Corruption depends on (seed, step, sample) and nothing else, and follows the laws of the paper."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sbd.corruption import anchor_positions, block_size_at, mask_positions
from sbd.errors import UserError


def test_repeatable_whatever_the_global_generators_do() -> None:
    first = mask_positions(3, 7, 11, 4, 8, "sequence")
    torch.manual_seed(0)
    np.random.seed(5)
    mask_positions(3, 7, 12, 9, 8, "sequence")
    assert np.array_equal(first, mask_positions(3, 7, 11, 4, 8, "sequence"))


@pytest.mark.parametrize("other", [(4, 7, 11), (3, 8, 11), (3, 7, 12)])
def test_another_seed_step_or_sample_masks_other_slots(other: tuple[int, int, int]) -> None:
    assert not np.array_equal(mask_positions(3, 7, 11, 8, 16, "sequence"), mask_positions(*other, 8, 16, "sequence"))


def test_block_sizes_are_uniform_on_the_closed_range() -> None:
    sizes = np.array([block_size_at(0, step, 2, 16) for step in range(6000)])
    counts = np.bincount(sizes, minlength=17)[2:]
    assert sizes.min() == 2
    assert sizes.max() == 16
    # Chi-square with 14 degrees of freedom: 36.1 is the 99.9% point.
    assert ((counts - 400) ** 2 / 400).sum() < 36.1


@pytest.mark.parametrize(("rate", "between"), [("sequence", True), ("block", False)])
def test_mask_rate_is_uniform_and_shared_as_asked(rate, between: bool) -> None:
    masks = np.stack([mask_positions(1, 0, sample, 2, 50, rate) for sample in range(3000)]).mean(axis=2)
    # A share of masked slots is uniform, so its mean is 1/2 and its variance 1/12 plus the binomial's 1/300.
    assert abs(masks.mean() - 0.5) < 0.015
    assert abs(masks[:, 0].var() - (1 / 12 + 1 / 300)) < 0.006
    correlation = np.corrcoef(masks[:, 0], masks[:, 1])[0, 1]
    assert correlation > 0.9 if between else abs(correlation) < 0.07


def test_anchors_are_distinct_sorted_and_in_range() -> None:
    for step in range(50):
        anchors = anchor_positions(0, step, 1, 5, 20, 6)
        assert len(set(anchors.tolist())) == 6
        assert (np.diff(anchors) > 0).all()
        assert anchors.min() >= 5
        assert anchors.max() < 20
    assert anchor_positions(0, 0, 1, 5, 8, 6).tolist() == [5, 6, 7]


@pytest.mark.parametrize("sizes", [(0, 4), (5, 4)])
def test_impossible_block_sizes_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(UserError, match="block sizes"):
        block_size_at(0, 0, *sizes)
