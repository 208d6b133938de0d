"""Every decoder gives what recomputing everything gives, by plain Python rules."""

import math

import pytest
import torch

from sbd.decoding import Autoregressive, LongestPrefix, SelfSpeculative, SetBlock, engine, generate
from sbd.decoding.engine import Engine
from sbd.decoding.randomness import random_integers
from sbd.samplers import ConfidenceThreshold, CumulativeEntropy, EntropyBound, Factor, TopK
from tests.decoding.helpers import (
    DECODERS,
    ENDS,
    EOS,
    FORBIDDEN,
    LENGTHS,
    by_row,
    left_padded,
    plain_rule,
    prompts,
    reference_autoregressive,
    reference_longest_prefix,
    reference_self_speculative,
    reference_set_block,
    tiny_model,
)

pytestmark = pytest.mark.filterwarnings("ignore:LongestPrefix is for models")


@pytest.mark.parametrize("commit", ["fused", "separate"])
@pytest.mark.parametrize("first_token", ["masked", "next_token"])
@pytest.mark.parametrize("gamma", [0.0, 0.8, math.inf])
def test_set_block_equals_recomputing_everything(model, gamma, first_token, commit):
    rows = prompts(LENGTHS)
    decoder = SetBlock(4, EntropyBound(gamma), first_token=first_token, commit=commit)
    out = generate(model, rows, decoder, max_new_tokens=14, eos_token_id=ENDS)
    for row, prompt in enumerate(rows):
        expected = reference_set_block(model, prompt, 4, gamma, 14, ENDS, first_token, commit)
        assert (out.tokens[row], out.forward_passes[row], out.revealed_at[row]) == expected
    assert len(set(map(len, out.tokens))) > 1  # the rows did end at different times


@pytest.mark.parametrize(
    ("sampler", "commit", "first_token"),
    [
        (EntropyBound(0.8, "confidence"), "separate", "masked"),
        (EntropyBound(0.8, "margin"), "fused", "next_token"),
        (CumulativeEntropy(1.5), "separate", "next_token"),
        (Factor(1.2), "fused", "masked"),
        (ConfidenceThreshold(0.6), "fused", "next_token"),
        (ConfidenceThreshold(0.4), "separate", "masked"),
        (TopK(1), "fused", "masked"),
        (TopK(3), "separate", "next_token"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("block_size", [4, (2, 5)], ids=repr)
@pytest.mark.parametrize("above", [0, 10**9], ids=["open slots", "all slots"])
def test_every_sampler_and_ranges_of_block_sizes_equal_recomputing_everything(
    model, sampler, commit, first_token, block_size, above, monkeypatch
):
    monkeypatch.setattr(engine, "_PICK_ABOVE", above)
    rows = prompts(LENGTHS)
    decoder = SetBlock(block_size, sampler, first_token, commit)
    out = generate(model, rows, decoder, max_new_tokens=14, eos_token_id=ENDS, seed=3, sample_ids=[7, 8, 9, 10])
    drawn = torch.arange(20)
    for row, prompt in enumerate(rows):
        sizes = random_integers(3, torch.full_like(drawn, 7 + row), drawn, *decoder.sizes).tolist()
        expected = reference_set_block(model, prompt, sizes, plain_rule(sampler), 14, ENDS, first_token, commit)
        assert (out.tokens[row], out.forward_passes[row], out.revealed_at[row]) == expected


@pytest.mark.parametrize(
    ("confidence", "rule", "threshold"),
    [
        ("probability", "each", 0.4),
        ("probability", "product", 0.2),
        ("entropy", "each", 0.6),
        ("entropy", "product", 0.4),
    ],
)
def test_longest_prefix_equals_recomputing_everything(model, confidence, rule, threshold):
    def keep(probabilities, entropies):
        values = probabilities if confidence == "probability" else [1 - h / math.log(24) for h in entropies]
        count, product = 0, 1.0
        for value in values:
            product *= value
            if not (value > threshold if rule == "each" else product >= threshold):
                break
            count += 1
        return max(1, count)

    rows = prompts(LENGTHS)
    out = generate(model, rows, LongestPrefix(4, threshold, confidence, rule), max_new_tokens=14, eos_token_id=ENDS)
    for row, prompt in enumerate(rows):
        expected = reference_longest_prefix(model, prompt, 4, 14, keep, ENDS)
        assert (out.tokens[row], out.forward_passes[row], out.revealed_at[row]) == expected
    assert sum(map(len, out.tokens)) > sum(out.forward_passes)  # some prefix was longer than one


@pytest.mark.parametrize("branches", [0, 1, 2, 5])
def test_self_speculative_equals_recomputing_everything(branches):
    model = tiny_model(vocabulary=8)  # few tokens, so that drafts are accepted now and then
    rows = prompts(LENGTHS, vocabulary=8)
    out = generate(model, rows, SelfSpeculative(5, branches), max_new_tokens=30, eos_token_id=7)
    for row, prompt in enumerate(rows):
        expected = reference_self_speculative(model, prompt, 5, branches, 30, (7,))
        assert (out.tokens[row], out.forward_passes[row]) == expected
    assert sum(map(len, out.tokens)) > sum(out.forward_passes)


def test_autoregressive_equals_hugging_face(model):
    rows = prompts(LENGTHS)
    ids, mask = left_padded(rows)
    theirs = model.generate(
        ids, attention_mask=mask, max_new_tokens=20, do_sample=False, suppress_tokens=list(FORBIDDEN), eos_token_id=EOS
    )[:, ids.shape[1] :].tolist()
    ours = generate(model, ids, Autoregressive(), max_new_tokens=20, eos_token_id=EOS, attention_mask=mask)
    for row, prompt in enumerate(rows):
        end = theirs[row].index(EOS) + 1 if EOS in theirs[row] else 20
        assert ours.tokens[row] == theirs[row][:end] == reference_autoregressive(model, prompt, 20, (EOS,))
        assert ours.forward_passes[row] == end
        assert ours.revealed_at[row] == list(range(1, end + 1))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("branches", [0, 2, 8])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_self_speculative_equals_autoregressive(seed, branches, temperature):
    model = tiny_model("qwen3" if seed % 2 else "llama", vocabulary=9, seed=seed)
    rows = prompts([3, 7, 12, 4, 4, 8], vocabulary=9, seed=seed)
    options = {"max_new_tokens": 40, "eos_token_id": EOS, "temperature": temperature, "seed": 3}
    plain = generate(model, rows, Autoregressive(), **options)
    speculative = generate(model, rows, SelfSpeculative(8, branches), **options)
    assert speculative.tokens == plain.tokens
    assert sum(speculative.forward_passes) < sum(plain.forward_passes)


@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
def test_layers_written_out_decode_like_the_forward_of_the_model(model, decoder, monkeypatch):
    options = {"max_new_tokens": 15, "eos_token_id": ENDS}
    direct = generate(model, prompts(LENGTHS), decoder, **options)
    monkeypatch.setattr(Engine, "direct", False)
    theirs = generate(model, prompts(LENGTHS), decoder, **options)
    if isinstance(decoder, SelfSpeculative):  # the prefill drafts nothing there, so the second pass does
        assert theirs.tokens == direct.tokens
        assert all(at[1:2] in ([2], []) for at in theirs.revealed_at)
    else:
        assert by_row(theirs) == by_row(direct)
    assert by_row(generate(model, prompts([5]), decoder, **options)) == by_row(theirs)[:1]
