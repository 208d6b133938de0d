import math
from typing import Any

import pytest
import torch

from sbd.decoding.randomness import Sampling
from sbd.errors import UserError
from sbd.samplers import (
    ConfidenceThreshold,
    CumulativeEntropy,
    EntropyBound,
    Factor,
    TopK,
    _ascending_within_bound,
    _prefix,
    confidences,
    entropies,
    entropy_bound_prefix,
    margins,
    token_probabilities,
)
from tests.live_memory import LiveMemory

GAMMAS = (0.0, 0.01, 0.1, 0.5, 2.0, 1e9, math.inf)
SAMPLERS = [
    EntropyBound(0.3),
    EntropyBound(0.3, order="confidence"),
    EntropyBound(0.3, order="margin"),
    EntropyBound(math.inf),
    CumulativeEntropy(0.5),
    Factor(1.5),
    Factor(0.5, form="printed"),
    ConfidenceThreshold(0.6),
    TopK(1),
    TopK(3),
]


def random_logits(batch=6, k=8, vocabulary=11, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scale = torch.rand(batch, k, 1, generator=generator) * 6
    return torch.randn(batch, k, vocabulary, generator=generator) * scale


def random_mask(batch=6, k=8, seed=0):
    return torch.rand(batch, k, generator=torch.Generator().manual_seed(seed)) < 0.6


def closed_form(values, gamma):
    """Equation 8: the largest s whose first s - 1 entropies sum to at most gamma; summed exactly."""
    return max(s for s in range(1, len(values) + 1) if math.fsum(values[: s - 1]) <= gamma)


def sum_less_max(values, gamma):
    """Equation 18 as it is printed, for finite entropies; summed exactly."""
    fitting = [s for s in range(1, len(values) + 1) if math.fsum([*values[:s], -max(values[:s])]) <= gamma]
    return max(fitting)


def probabilities(row):
    return torch.softmax(row.double(), -1).tolist()


def entropy(row):
    return -sum(p * math.log(p) for p in probabilities(row) if p > 0)


def prefixes(ascending, gamma):
    """All ways to the number, [..., n] to [...]: in any order, in one that is known to be ascending, and row by row."""
    rows = [_prefix(row, gamma) for row in ascending.reshape(-1, ascending.shape[-1]).tolist()]
    return [
        entropy_bound_prefix(ascending, gamma),
        1 + _ascending_within_bound(ascending, gamma).sum(-1),
        torch.tensor(rows).view(ascending.shape[:-1]),
    ]


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize(
    "values",
    [
        [0.0],
        [0.0, 0.0, 0.0],
        [0.25, 0.25, 0.25, 0.25],  # ties, and sums that are exact at the bound
        [0.0, 0.5, 1.5, math.inf],
        [0.1, math.inf, math.inf],
        [math.inf],
    ],
)
def test_prefix_is_equation_8_on_chosen_entropies(values, gamma):
    given = torch.tensor(values)
    for count in prefixes(given, gamma):
        assert count.item() == closed_form(given.tolist(), gamma)


def test_prefix_is_equation_8_and_18_on_random_entropies():
    generator = torch.Generator().manual_seed(1)
    for gamma in GAMMAS:
        values = torch.rand(200, 9, generator=generator) ** 3 * 2
        ascending = values.sort(-1).values
        for counts in prefixes(ascending, gamma):
            assert counts.tolist() == [closed_form(v, gamma) for v in ascending.tolist()]
        expected = [sum_less_max(v, gamma) for v in values.tolist()]
        assert entropy_bound_prefix(values, gamma).tolist() == expected
        assert [_prefix(row, gamma) for row in values.tolist()] == expected


def test_a_small_entropy_is_not_lost_beside_a_large_one():
    assert [count.item() for count in prefixes(torch.tensor([1e-30, 5.0, 7.0]), 0.0)] == [1] * 3


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("order", ["entropy", "confidence", "margin"])
def test_entropy_bound_reveals_the_prefix_of_its_order(order, gamma):
    logits, masked = random_logits(), random_mask()
    reveal = EntropyBound(gamma, order=order)(logits, masked)
    for row in range(len(logits)):
        positions = [i for i in range(8) if masked[row, i]]
        ranked = [sorted(probabilities(logits[row, i]), reverse=True) for i in range(8)]
        key = {
            "entropy": lambda i, row=row: entropy(logits[row, i]),
            "confidence": lambda i, ranked=ranked: -ranked[i][0],
            "margin": lambda i, ranked=ranked: ranked[i][1] - ranked[i][0],
        }[order]
        positions.sort(key=key)
        count = sum_less_max([entropy(logits[row, i]) for i in positions], gamma) if positions else 0
        assert reveal[row].nonzero()[:, 0].tolist() == sorted(positions[:count])


def test_order_by_confidence_differs_from_order_by_entropy():
    logits, masked = random_logits(batch=60), torch.ones(60, 8, dtype=torch.bool)
    assert not torch.equal(EntropyBound(0.3)(logits, masked), EntropyBound(0.3, order="confidence")(logits, masked))


def test_cumulative_entropy_counts_the_largest_too():
    logits, masked = random_logits(), random_mask()
    reveal = CumulativeEntropy(0.7)(logits, masked)
    for row in range(len(logits)):
        positions = sorted((i for i in range(8) if masked[row, i]), key=lambda i, row=row: entropy(logits[row, i]))
        values = [entropy(logits[row, i]) for i in positions]
        count = max([s for s in range(1, len(values) + 1) if math.fsum(values[:s]) <= 0.7], default=1)
        assert reveal[row].nonzero()[:, 0].tolist() == sorted(positions[:count])


@pytest.mark.parametrize("form", ["fast_dllm", "printed"])
@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 2.5, 100.0])
def test_factor_rules(form, factor):
    logits, masked = random_logits(), random_mask()
    reveal = Factor(factor, form=form)(logits, masked)
    for row in range(len(logits)):
        surest = {i: max(probabilities(logits[row, i])) for i in range(8) if masked[row, i]}
        positions = sorted(surest, key=surest.__getitem__, reverse=True)
        values = [1 - surest[i] if form == "fast_dllm" else surest[i] for i in positions]
        count = max([n for n in range(1, len(values) + 1) if (n + 1) * values[n - 1] < factor], default=1)
        assert reveal[row].nonzero()[:, 0].tolist() == sorted(positions[:count])


def test_threshold_and_top_k():
    logits, masked = random_logits(), random_mask()
    surest = confidences(logits)
    above, top = ConfidenceThreshold(0.6)(logits, masked), TopK(3)(logits, masked)
    for row in range(len(logits)):
        positions = sorted((i for i in range(8) if masked[row, i]), key=lambda i, row=row: -surest[row, i].item())
        over = [i for i in positions if surest[row, i] > 0.6] or positions[:1]
        assert above[row].nonzero()[:, 0].tolist() == sorted(over)
        assert top[row].nonzero()[:, 0].tolist() == sorted(positions[:3])


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_contract_of_every_sampler(sampler):
    logits = random_logits(batch=40)
    logits[..., :3] = -math.inf
    logits[0, :, 4:] = -math.inf  # one token left: entropy 0
    logits[1] = 0.0  # ties everywhere
    masked = random_mask(batch=40)
    masked[2], masked[3] = False, True
    reveal = sampler(logits, masked)
    assert reveal.dtype == torch.bool
    assert not (reveal & ~masked).any()
    assert torch.equal(reveal.any(1), masked.any(1))
    alone = torch.cat([sampler(logits[i : i + 1], masked[i : i + 1]) for i in range(40)])
    assert torch.equal(reveal, alone)
    scores = sampler.scores(logits)
    for row in masked.any(1).nonzero()[:, 0]:
        places = masked[row].nonzero()[:, 0]
        chosen = sampler.select_row(*(values[row, places].tolist() for values in scores))
        assert places[sorted(chosen)].tolist() == reveal[row].nonzero()[:, 0].tolist()


def test_gamma_0_reveals_one_and_unlimited_all():
    logits, masked = random_logits(), random_mask()
    assert (EntropyBound(0)(logits, masked).sum(1) == masked.any(1)).all()
    assert torch.equal(EntropyBound(math.inf)(logits, masked), masked)


def test_gamma_0_reveals_every_certain_position():
    """And one more, which the bound of equation 8 leaves out of its sum: the surest of the others."""
    logits = torch.zeros(3, 4, 5)
    logits[0, :3, 1:] = -math.inf  # entropies 0 0 0 h
    logits[1, 1:3, 1:] = -math.inf  # h 0 0 h: a tie, which goes to the left
    logits[2, 2, 1:] = -math.inf  # h g 0 h with g < h
    logits[2, 1, 0] = 2.0
    reveal = EntropyBound(0)(logits, torch.ones(3, 4, dtype=torch.bool))
    assert reveal.int().tolist() == [[1, 1, 1, 1], [1, 1, 1, 0], [0, 1, 1, 0]]


def test_entropies_in_float32_without_nan():
    logits = random_logits(vocabulary=500)
    logits[..., ::2] = -math.inf
    values = entropies(logits)
    assert values.dtype == torch.float32
    expected = torch.tensor([[entropy(logits[b, i]) for i in range(8)] for b in range(6)])
    torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-6)
    half = entropies(logits.bfloat16())
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, entropies(logits.bfloat16().float()), rtol=0, atol=0)


def test_chunks_of_rows_change_nothing(monkeypatch):
    logits = random_logits()
    tokens = torch.arange(logits.shape[:2].numel()).view(logits.shape[:2]) % logits.shape[-1]

    def numbers():
        return entropies(logits), confidences(logits), margins(logits), token_probabilities(logits, tokens)

    whole = numbers()
    torch.testing.assert_close(whole[-1], logits.softmax(-1).gather(-1, tokens[..., None])[..., 0])
    monkeypatch.setattr("sbd.samplers._CHUNK_ELEMENTS", 25)
    for chunked, once in zip(numbers(), whole, strict=True):
        torch.testing.assert_close(chunked, once, rtol=0, atol=0)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_no_sampler_waits_for_the_device(sampler):
    """A tensor of the device "meta" has a shape and no values: whatever asks for one raises."""
    logits, masked = torch.empty(3, 5, 900, device="meta"), torch.empty(3, 5, dtype=torch.bool, device="meta")
    reveal = sampler(logits, masked)
    assert (reveal.shape, reveal.dtype) == (masked.shape, torch.bool)
    with pytest.raises((NotImplementedError, RuntimeError)):
        bool(reveal.any())


LARGE = (8, 16, 152_000)
"""Batch, block and vocabulary of Qwen3: 78 MB in float32."""


@pytest.mark.parametrize("sampler", [*SAMPLERS[:3], Factor(1.5)], ids=repr)
def test_at_most_two_tensors_of_a_large_vocabulary_are_alive(sampler):
    """The logits themselves, and all else that is alive at one time."""
    logits = torch.linspace(-4, 4, LARGE[2]).mul(torch.linspace(0.1, 3, 128)[:, None]).view(LARGE)
    with LiveMemory() as memory:
        sampler(logits, torch.ones(LARGE[:2], dtype=torch.bool))
    assert 2**20 < memory.peak <= logits.nbytes


def test_choosing_tokens_of_a_large_vocabulary_is_bounded_too():
    logits = torch.linspace(-4, 4, LARGE[2]).mul(torch.linspace(0.1, 3, 32)[:, None]).view(2, 16, -1)
    sampling = Sampling(temperature=1.0, top_k=50, top_p=0.9)
    with LiveMemory() as memory:
        sampling.choose(logits, torch.arange(2), torch.arange(16).expand(2, -1))
    assert 2**20 < memory.peak <= 4 * LARGE[0] * LARGE[1] * LARGE[2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: EntropyBound(-0.1),
        lambda: EntropyBound(math.nan),
        lambda: EntropyBound(0.1, order="size"),  # type: ignore[arg-type]
        lambda: CumulativeEntropy(math.nan),
        lambda: Factor(-1),
        lambda: Factor(1, form="other"),  # type: ignore[arg-type]
        lambda: ConfidenceThreshold(1.1),
        lambda: ConfidenceThreshold(math.nan),
        lambda: TopK(0),
        lambda: TopK(True),
        lambda: TopK(1.5),  # type: ignore[arg-type]
    ],
)
def test_bad_settings_are_refused_in_one_line(make):
    with pytest.raises(UserError) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_agrees_with_the_entropy_bound_of_diffusers():
    """Their acceptance: sorted ascending, cumsum less itself <= bound."""
    from diffusers.schedulers.scheduling_entropy_bound import EntropyBoundScheduler  # slow to import

    logits = random_logits(batch=50)
    for gamma in (0.0, 0.01, 0.1, 0.5, 2.0):
        oracle: Any = EntropyBoundScheduler(entropy_bound=gamma, t_max=1.0, t_min=1.0)
        accepted = oracle.step(logits, 0, torch.zeros(50, 8, dtype=torch.long)).accepted_index
        assert torch.equal(EntropyBound(gamma)(logits, torch.ones(50, 8, dtype=torch.bool)), accepted)
