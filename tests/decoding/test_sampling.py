"""Sampled text: its distribution, its seeds, and what restricts the choice."""

import math

import pytest
import torch

from sbd.decoding import Autoregressive, SelfSpeculative, SetBlock, generate
from tests.decoding.helpers import FORBIDDEN, LENGTHS, logits_of, prompts, tiny_model


def test_samples_differ_and_do_not_depend_on_the_batch(model):
    rows = prompts(LENGTHS)
    options = {"max_new_tokens": 10, "temperature": 1.0, "seed": 11}
    out = generate(model, rows, SetBlock(4), num_samples=3, **options)
    assert len(out.tokens) == 12
    assert len(set(map(tuple, out.tokens))) == 12
    last = generate(model, rows[3:], SetBlock(4), num_samples=3, sample_ids=[3], **options)
    assert last.tokens == out.tokens[9:]
    assert generate(model, rows, SetBlock(4), num_samples=3, **{**options, "seed": 12}).tokens != out.tokens


@pytest.mark.parametrize("decoder", [Autoregressive(), SelfSpeculative(4, 2)], ids=repr)
def test_sampled_triples_have_the_probabilities_of_the_model(decoder):
    """Chi-square of 2,500 samples of three tokens against p(x1) p(x2 | x1) p(x3 | x1, x2), at 4 standard deviations.

    The third token is the first that self-speculative decoding can take from a draft.
    """
    model, row, n, temperature = tiny_model(vocabulary=9), prompts([5], vocabulary=9), 2500, 3.0
    out = generate(model, row, decoder, max_new_tokens=3, temperature=temperature, seed=2, num_samples=n)
    allowed = [token for token in range(9) if token not in FORBIDDEN]
    counts = torch.zeros(9, 9, 9)
    for triple in out.tokens:
        counts[tuple(triple)] += 1
    if isinstance(decoder, SelfSpeculative):
        assert sum(out.forward_passes) < 0.97 * 3 * n  # drafts were accepted

    def after(*tokens):
        return (logits_of(model, [*row[0], *tokens])[-1] / temperature).softmax(-1)

    statistic, cells, rest = 0.0, 0, [0.0, 0]
    first = after()
    for a in allowed:
        second = after(a)
        for b in allowed:
            third = after(a, b)
            for c in allowed:
                expected, seen = n * float(first[a] * second[b] * third[c]), float(counts[a, b, c])
                if expected < 5:
                    rest = [rest[0] + expected, rest[1] + seen]
                else:
                    statistic, cells = statistic + (seen - expected) ** 2 / expected, cells + 1
    if rest[0] > 0:
        statistic, cells = statistic + (rest[1] - rest[0]) ** 2 / max(rest[0], 1.0), cells + 1
    freedom = cells - 1
    assert freedom > 50
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)


def test_top_k_and_top_p_restrict_the_choice():
    model, row = tiny_model(scale=0.2), prompts([5])
    probabilities = (logits_of(model, row[0])[-1] / 2.0).softmax(-1)
    ranked = probabilities.argsort(descending=True).tolist()
    options = {"max_new_tokens": 1, "temperature": 2.0, "seed": 2, "num_samples": 500}
    seen = {tokens[0] for tokens in generate(model, row, Autoregressive(), top_k=3, **options).tokens}
    assert seen == set(ranked[:3])
    nucleus = next(n for n in range(1, 25) if probabilities[ranked[:n]].sum() >= 0.6)
    seen = {tokens[0] for tokens in generate(model, row, Autoregressive(), top_p=0.6, **options).tokens}
    assert seen == set(ranked[:nucleus])
    assert generate(model, row, Autoregressive(), top_k=1, **options).tokens[0] == [ranked[0]]
