"""The noise of sampling: finite for every bit pattern, as it should be distributed, and for every seed."""

from __future__ import annotations

import math

import pytest
import torch

from sbd.decoding import randomness
from sbd.decoding.randomness import Sampling, keys, random_integers


def test_every_number_is_between_0_and_1_and_its_noise_is_finite() -> None:
    """All 2**23 numbers, in order, and the bit patterns of both ends with every lower bit."""
    numbers = randomness._uniform(torch.arange(2**23) << 9)
    assert (numbers[1:] > numbers[:-1]).all()
    assert float(numbers[0]) > 0
    assert float(numbers[-1]) < 1
    assert torch.isfinite(-torch.log(-torch.log(numbers))).all()
    ends = torch.cat([torch.arange(2**12), torch.arange(2**32 - 2**12, 2**32)])
    assert set(randomness._uniform(ends).tolist()) == {float(n) for n in [*numbers[:8], *numbers[-8:]]}


@pytest.mark.parametrize("bits", [0, 2**32 - 1])
def test_no_noise_makes_an_impossible_token_win(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "mix", lambda value: torch.full_like(value, bits))
    logits = torch.tensor([[[-math.inf, 1.0, 2.0, -math.inf]]])
    zero = torch.zeros(1, dtype=torch.long)
    assert Sampling(temperature=1.0).choose(logits, zero, zero[None]).item() == 2


@pytest.mark.parametrize("seed", [0, -1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1])
def test_any_seed_gives_keys_of_32_bits(seed: int) -> None:
    """The key by plain integers, which never overflow."""

    def mix(value: int) -> int:
        value ^= value >> 16
        value = value * 0x21F0AAAD & 0xFFFFFFFF
        value ^= value >> 15
        value = value * 0x735A2D97 & 0xFFFFFFFF
        return value ^ value >> 15

    samples, positions = [0, 3, 2**20], [0, 1, 4095]
    found = keys(seed, torch.tensor(samples), torch.tensor([positions] * 3))
    for row, sample in enumerate(samples):
        start = mix((sample + (seed & 0xFFFFFFFF) * 0x9E3779B1) & 0xFFFFFFFF)
        start = mix(start ^ seed >> 32 & 0xFFFFFFFF ^ 0x5BD1E995)
        assert found[row].tolist() == [mix((start + position * 0x2545F491) & 0xFFFFFFFF) for position in positions]
    draws = random_integers(seed, torch.arange(100), torch.zeros(100, dtype=torch.long), 3, 5)
    assert set(draws.tolist()) == {3, 4, 5}
