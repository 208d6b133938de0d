"""Rows of a batch, what passes are counted, block sizes, end tokens, stop strings and streaming."""

import math
from itertools import pairwise

import pytest
import torch

from sbd.cache import SlotCache
from sbd.decoding import Autoregressive, SetBlock, generate
from sbd.decoding.randomness import random_integers
from sbd.decoding.request import margin
from sbd.decoding.rows import most_likely
from sbd.samplers import EntropyBound
from tests.decoding.helpers import (
    BOS,
    DECODERS,
    ENDS,
    LENGTHS,
    MASK,
    PAD,
    by_row,
    left_padded,
    logits_of,
    prompts,
    reference_set_block,
    tiny_model,
)

pytestmark = pytest.mark.filterwarnings("ignore:LongestPrefix is for models")


@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_batch_equals_loop_with_left_padding(model, decoder, temperature):
    rows = prompts(LENGTHS)
    ids, mask = left_padded(rows)
    options = {"max_new_tokens": 15, "eos_token_id": ENDS, "temperature": temperature, "seed": 7}
    together = generate(model, ids, decoder, attention_mask=mask, **options)
    alone = [generate(model, [row], decoder, sample_ids=[i], **options) for i, row in enumerate(rows)]
    assert by_row(together) == [by_row(out)[0] for out in alone]
    assert len(set(map(len, together.tokens))) > 1
    assert together.prefill_passes == [out.prefill_passes[0] for out in alone]


@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
def test_mask_padding_and_start_are_never_generated(decoder):
    model = tiny_model()
    model.lm_head.weight.data[[PAD, BOS, MASK]] *= 20  # they would win now and then
    out = generate(model, prompts(LENGTHS), decoder, max_new_tokens=15, temperature=1.5, seed=1)
    assert not {PAD, BOS, MASK} & {token for row in out.tokens for token in row}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_of_equally_likely_tokens_the_first_is_taken(dtype):
    logits = torch.randint(0, 3, (4, 5, 7), generator=torch.Generator().manual_seed(0)).to(dtype)
    logits[..., :2] = -torch.inf
    found = most_likely(logits)
    assert found.dtype == torch.int64
    assert found.tolist() == [[row.index(max(row)) for row in block] for block in logits.tolist()]


@pytest.mark.parametrize("first_token", ["masked", "next_token"])
def test_fused_commit_gives_the_text_of_separate_commit_in_fewer_passes(model, first_token):
    outs = [
        generate(model, prompts(LENGTHS), SetBlock(4, EntropyBound(0.8), first_token, commit), 14, eos_token_id=ENDS)
        for commit in ("fused", "separate")
    ]
    assert outs[0].tokens == outs[1].tokens
    for row, tokens in enumerate(outs[0].tokens):
        blocks = math.ceil(len(tokens) / 4)
        assert outs[1].forward_passes[row] == outs[0].forward_passes[row] + blocks - 1


@pytest.mark.parametrize("k", [1, 3, 4, 16])
def test_gamma_0_is_one_token_per_pass_and_unlimited_one_pass_per_block(model, k):
    for gamma, passes in ((0.0, 12 if 12 % k == 0 else None), (math.inf, math.ceil(12 / k))):
        out = generate(model, prompts(LENGTHS), SetBlock(k, EntropyBound(gamma)), max_new_tokens=12)
        assert [len(row) for row in out.tokens] == [12] * 4
        if passes is not None:
            assert out.forward_passes == [passes] * 4
        assert out.prefill_passes == [1] * 4
        assert out.total_passes == [n + 1 for n in out.forward_passes]
    out = generate(model, prompts(LENGTHS), SetBlock(k, EntropyBound(0.0)), max_new_tokens=12)
    for row in out.revealed_at:
        assert len(set(row)) == len(row)


def test_random_block_sizes_lie_in_their_range_and_follow_the_seed(model):
    decoder = SetBlock((2, 5), EntropyBound(math.inf))
    out = generate(model, prompts(LENGTHS), decoder, max_new_tokens=60, seed=4)
    sizes = {b - a for row in out.block_starts for a, b in pairwise(row)}
    assert sizes == {2, 3, 4, 5}
    assert generate(model, prompts(LENGTHS), decoder, max_new_tokens=60, seed=4).block_starts == out.block_starts
    assert generate(model, prompts(LENGTHS), decoder, max_new_tokens=60, seed=5).block_starts != out.block_starts
    draws = random_integers(1, torch.arange(4000), torch.zeros(4000, dtype=torch.long), 2, 5)
    counts = torch.bincount(draws)[2:]
    assert (counts - 1000).abs().max() < 5 * math.sqrt(4000 * 0.25 * 0.75)


def test_end_tokens_one_several_zero_or_none(model):
    row = prompts([5])
    whole = generate(model, row, Autoregressive(), max_new_tokens=20).tokens[0]
    assert len(whole) == 20
    for ends in ([whole[7]], [whole[7], whole[3]]):
        first = min(whole.index(token) for token in ends)
        for given in (ends, tuple(ends)) + ((ends[0],) if len(ends) == 1 else ()):
            out = generate(model, row, Autoregressive(), max_new_tokens=20, eos_token_id=given)
            assert out.tokens == [whole[: first + 1]]
            assert out.finish_reasons == ["eos"]
    model.config.pad_token_id, pad = None, model.config.pad_token_id
    model.lm_head.weight.data[0], kept = 9 * model.lm_head.weight.data[0], model.lm_head.weight.data[0].clone()
    out = generate(model, row, Autoregressive(), max_new_tokens=20, eos_token_id=0)
    model.config.pad_token_id = pad
    model.lm_head.weight.data[0] = kept
    assert out.tokens[0][-1] == 0
    assert len(out.tokens[0]) < 20


def test_passes_are_counted_to_the_end_of_the_solution():
    """An end token that is revealed before a token left of it does not end the row."""
    model = tiny_model(seed=5)
    ends = tuple(range(10, 24))
    early = 0
    for row in prompts([4, 5, 6, 7, 8, 9], seed=2):
        out = generate(model, [row], SetBlock(6, EntropyBound(0)), max_new_tokens=18, eos_token_id=ends)
        assert out.forward_passes[0] == max(out.revealed_at[0])
        expected = reference_set_block(model, row, 6, 0.0, 18, ends)
        assert (out.tokens[0], out.forward_passes[0], out.revealed_at[0]) == expected
        early += out.revealed_at[0][-1] < out.forward_passes[0]
    assert early > 0


@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
def test_cache_length_is_the_number_of_slots(decoder, monkeypatch):
    class Recorded(SlotCache):
        def __init__(self, config, batch, capacity, *more):
            capacities.append(capacity)
            super().__init__(config, batch, capacity, *more)

    capacities, model = [], tiny_model()
    monkeypatch.setattr("sbd.decoding.engine.SlotCache", Recorded)
    outs = [generate(model, prompts(LENGTHS), decoder, 15, eos_token_id=ENDS, cache_length=n) for n in (None, 100)]
    assert by_row(outs[0]) == by_row(outs[1])
    assert capacities == [9 + 15 + margin(decoder), 100]


@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
def test_streaming_gives_the_same_text_in_order(model, decoder):
    rows, got = prompts(LENGTHS), [[] for _ in LENGTHS]
    options = {"max_new_tokens": 15, "eos_token_id": ENDS}
    streamed = generate(model, rows, decoder, on_tokens=lambda row, tokens: got[row].extend(tokens), **options)
    assert got == streamed.tokens
    assert by_row(streamed) == by_row(generate(model, rows, decoder, **options))


@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
def test_stop_ends_a_row_at_the_shortest_beginning(model, decoder):
    rows, got = prompts(LENGTHS), [[] for _ in LENGTHS]
    whole = generate(model, rows, decoder, max_new_tokens=16)
    pairs = [tuple(tokens[5:7]) for tokens in whole.tokens]

    def stop(tokens):
        return any(tuple(tokens[i : i + 2]) in pairs for i in range(len(tokens) - 1))

    out = generate(
        model, rows, decoder, max_new_tokens=16, stop=stop, on_tokens=lambda row, tokens: got[row].extend(tokens)
    )
    for row, tokens in enumerate(whole.tokens):
        end = next(n for n in range(1, 17) if stop(tokens[:n]))
        assert out.tokens[row] == tokens[:end]
        assert out.finish_reasons[row] == "stop"
        assert out.forward_passes[row] <= whole.forward_passes[row]
        assert out.forward_passes[row] >= max(out.revealed_at[row])
    assert got == out.tokens


def test_stop_strings_use_the_text(model):
    class Letters:
        def decode(self, tokens):
            return "".join(chr(ord("a") + token) for token in tokens)

    row = prompts([5])
    whole = generate(model, row, Autoregressive(), max_new_tokens=16).tokens[0]
    text = Letters().decode(whole)
    out = generate(model, row, Autoregressive(), max_new_tokens=16, stop=["?", text[6:8]], tokenizer=Letters())  # type: ignore[arg-type]
    assert Letters().decode(out.tokens[0]) == text[: text.index(text[6:8]) + 2]


def test_recorded_entropies_are_those_of_the_revealing_pass(model):
    row = prompts([5])
    out = generate(model, row, Autoregressive(), max_new_tokens=10, record_entropy=True)
    logits = logits_of(model, row[0] + out.tokens[0])[4:-1]
    expected = torch.special.entr(logits.softmax(-1)).sum(-1)
    assert out.entropies is not None
    torch.testing.assert_close(torch.tensor(out.entropies[0]), expected, rtol=1e-4, atol=1e-4)
    for decoder in DECODERS[1:]:
        out = generate(model, row, decoder, max_new_tokens=10, record_entropy=True)
        assert out.entropies is not None
        assert all(h > 0 for h in out.entropies[0])
