"""Properties of every decoder over block size, prompts, end tokens, bound and batch, on one tiny model."""

import math
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from sbd.decoding import Autoregressive, LongestPrefix, SelfSpeculative, SetBlock, generate
from sbd.samplers import ConfidenceThreshold, CumulativeEntropy, EntropyBound, Factor, TopK
from tests.decoding.helpers import (
    FORBIDDEN,
    left_padded,
    prompts,
    reference_autoregressive,
    reference_self_speculative,
    reference_set_block,
    tiny_model,
)

VOCABULARY = 10
MODEL = tiny_model(vocabulary=VOCABULARY)
FEW = settings(max_examples=20, deadline=None, derandomize=True)

batches = st.builds(
    prompts, st.lists(st.integers(1, 9), min_size=1, max_size=4), st.just(VOCABULARY), st.integers(0, 99)
)
ends = st.sets(st.integers(4, VOCABULARY - 1), max_size=2).map(tuple)
gammas = st.one_of(st.sampled_from([0.0, math.inf]), st.floats(0.01, 3))
block_sizes = st.integers(1, 7)
lengths = st.integers(1, 13)
first_tokens = st.sampled_from(["masked", "next_token"])
commits = st.sampled_from(["fused", "separate"])
samplers = st.one_of(
    st.builds(EntropyBound, gammas, st.sampled_from(["entropy", "confidence", "margin"])),
    st.builds(CumulativeEntropy, gammas),
    st.builds(Factor, st.floats(0, 3)),
    st.builds(ConfidenceThreshold, st.floats(0, 1)),
    st.builds(TopK, st.integers(1, 4)),
)
decoders = st.one_of(
    st.just(Autoregressive()),
    st.builds(SetBlock, block_sizes, samplers, first_tokens, commits),
    st.builds(SetBlock, st.tuples(st.integers(1, 3), st.integers(3, 6)), samplers, first_tokens, commits),
    st.builds(LongestPrefix, block_sizes, st.floats(0, 1), st.sampled_from(["probability", "entropy"])),
    block_sizes.flatmap(lambda k: st.builds(SelfSpeculative, st.just(k), st.integers(0, k))),
)


@FEW
@given(batches, block_sizes, gammas, lengths, ends, first_tokens, commits)
def test_set_block_equals_recomputing_everything(rows, k, gamma, most, end, first_token, commit):
    out = generate(MODEL, rows, SetBlock(k, EntropyBound(gamma), first_token, commit), most, eos_token_id=end)
    for row, prompt in enumerate(rows):
        expected = reference_set_block(MODEL, prompt, k, gamma, most, end, first_token, commit)
        assert (out.tokens[row], out.forward_passes[row], out.revealed_at[row]) == expected


@FEW
@given(batches, block_sizes, st.data(), lengths, ends)
def test_self_speculative_equals_recomputing_everything(rows, k, data, most, end):
    branches = data.draw(st.integers(0, k))
    out = generate(MODEL, rows, SelfSpeculative(k, branches), most, eos_token_id=end)
    for row, prompt in enumerate(rows):
        assert out.tokens[row] == reference_autoregressive(MODEL, prompt, most, end)
        assert out.forward_passes[row] == reference_self_speculative(MODEL, prompt, k, branches, most, end)[1]


@settings(FEW, max_examples=40)
@given(batches, decoders, lengths, ends, st.sampled_from([0.0, 1.0]), st.integers(0, 2**40))
def test_any_decoder_in_any_batch(rows, decoder, most, end, temperature, seed):
    ids, mask = left_padded(rows)
    options = {"max_new_tokens": most, "eos_token_id": end, "temperature": temperature, "seed": seed}
    got = [[] for _ in rows]
    out = generate(
        MODEL, ids, decoder, attention_mask=mask, on_tokens=lambda row, tokens: got[row].extend(tokens), **options
    )
    assert got == out.tokens
    for row, tokens in enumerate(out.tokens):
        alone = generate(MODEL, [rows[row]], decoder, sample_ids=[row], **options)
        assert (alone.tokens[0], alone.forward_passes[0]) == (tokens, out.forward_passes[row])
        assert alone.revealed_at[0] == out.revealed_at[row]
        assert 1 <= len(tokens) <= most
        assert not set(FORBIDDEN) & set(tokens)
        assert not set(end) & set(tokens[:-1])
        assert len(tokens) == most or tokens[-1] in end
        assert max(out.revealed_at[row]) == out.forward_passes[row]
        assert min(out.revealed_at[row]) >= 1
        assert all(a < b for a, b in pairwise(out.block_starts[row]))
