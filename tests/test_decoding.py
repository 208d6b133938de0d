import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from sbd.cache import SlotCache
from sbd.decoding import Autoregressive, LongestPrefix, SelfSpeculative, SetBlock, generate
from sbd.decoding.engine import Engine
from sbd.decoding.randomness import random_integers
from sbd.decoding.request import margin
from sbd.errors import UserError
from sbd.evaluation.decoders import make_decoder
from sbd.samplers import ConfidenceThreshold, CumulativeEntropy, EntropyBound, Factor, TopK
from tests.decoding_helpers import (
    BOS,
    EOS,
    FORBIDDEN,
    MASK,
    PAD,
    left_padded,
    logits_of,
    plain_rule,
    prompts,
    reference_autoregressive,
    reference_longest_prefix,
    reference_self_speculative,
    reference_set_block,
    tiny_model,
)

pytestmark = pytest.mark.filterwarnings("ignore:LongestPrefix is for models")

LENGTHS = (5, 9, 2, 6)
ENDS = (EOS, 5, 9, 11, 14)
DECODERS = [
    Autoregressive(),
    SetBlock(4, EntropyBound(0.8)),
    SetBlock(4, EntropyBound(0.8), first_token="next_token"),
    SetBlock(4, EntropyBound(0.8), commit="separate"),
    SetBlock((2, 5), EntropyBound(0.8)),
    LongestPrefix(4, 0.4),
    SelfSpeculative(4, 2),
    SelfSpeculative(4, 0),
]


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def model(request):
    return tiny_model(request.param)


def by_row(out):
    return list(zip(out.tokens, out.forward_passes, out.revealed_at, out.finish_reasons, out.block_starts, strict=True))


# ------------------------------------------------------------------------------------------ against plain references


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
def test_every_sampler_and_ranges_of_block_sizes_equal_recomputing_everything(
    model, sampler, commit, first_token, block_size
):
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
    assert by_row(generate(model, prompts(LENGTHS), decoder, **options)) == by_row(direct)
    assert by_row(generate(model, prompts([5]), decoder, **options)) == by_row(direct)[:1]


# ---------------------------------------------------------------------------------------- batches, passes and options


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


# ---------------------------------------------------------------------------------------------------------- sampling


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


# --------------------------------------------------------------------------------------------------------- bad input


def nothing(logits, masked):
    return torch.zeros_like(masked)


def all_but_late(logits, masked):
    """Reveals something of a full block, and then nothing."""
    return masked & masked.all(1, keepdim=True) & (torch.arange(masked.shape[1]) == 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": None}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": "0.5"}, "top_p"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"seed": 0.5}, "seed"),
        ({"cache_length": "long"}, "cache_length"),
        ({"sample_ids": [0.5]}, "sample_ids"),
        ({"sample_ids": 3}, "sample_ids"),
        ({"eos_token_id": "2"}, "eos_token_id"),
        ({"eos_token_id": [2.0]}, "eos_token_id"),
        ({"input_ids": [1, 5, 6]}, "list of prompts.*entry 0 is of type int"),
        ({"input_ids": [[1, 5], [1.0, 5.0]]}, "list of prompts.*entry 1 is of type list"),
        ({"input_ids": "Mia"}, "list of prompts"),
        ({"input_ids": ["Mia"]}, "list of prompts"),
        ({"input_ids": {"input_ids": [[1, 5]]}}, "list of prompts"),
        ({"input_ids": None}, "list of prompts"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"num_samples": 0}, "num_samples"),
        ({"sample_ids": [1, 2]}, "sample_ids"),
        ({"input_ids": [[]]}, "empty"),
        ({"input_ids": []}, "empty"),
        ({"input_ids": [[1, 99]]}, "vocabulary"),
        ({"input_ids": [[1, MASK]]}, "mask token"),
        ({"input_ids": torch.tensor([[PAD, 1, 5], [1, 6, 7]])}, "attention_mask"),
        ({"input_ids": torch.tensor([[1, 5]]), "attention_mask": torch.ones(1, 3)}, "attention_mask"),
        ({"input_ids": torch.tensor([[1.0, 5.0]])}, "integers"),
        ({"max_new_tokens": 600}, "positions"),
        ({"cache_length": 20}, "cache"),
        ({"decoder": SetBlock(600, EntropyBound(0.1)), "cache_length": 600}, "cache"),
        ({"decoder": "fast"}, "decoder"),
        ({"decoder": SetBlock(4, nothing)}, "reveals nothing"),
        ({"decoder": SetBlock(4, lambda logits, masked: masked[0])}, "bool"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["a"]}, "tokenizer"),
        ({"eos_token_id": MASK}, "mask token"),
    ],
)
def test_bad_input_is_one_line_before_any_pass(options, words, monkeypatch):
    model = tiny_model()
    monkeypatch.setattr(model.model, "forward", lambda *a, **k: pytest.fail("a pass was run"))
    with pytest.raises(UserError, match=words) as caught:
        generate(**{"model": model, "input_ids": [[1, 5, 6]], "max_new_tokens": 8, **options})
    assert "\n" not in str(caught.value)


PADDED = [
    [[EOS, EOS, EOS, BOS, 5], [BOS, 6, 7, 8, 9]],
    [[BOS, 5, EOS, EOS, EOS], [BOS, 6, 7, 8, 9]],
    [[BOS, 5, EOS, EOS, EOS], [BOS, 6, 7, EOS, EOS]],
    [[BOS, BOS, BOS, 5, 6], [BOS, 6, 7, 8, 9]],
    [[EOS, EOS, EOS, EOS, 5], [EOS, 6, 7, 8, 9]],
    [[5, 6, 7, 8, 9], [6, 9, 9, EOS, EOS], [6, 9, 9, 9, 9]],
]
TEXT = [
    [[BOS, 5, 6], [BOS, 6, 7]],
    [[BOS, BOS, 5, 6], [BOS, BOS, 6, 7]],
    [[BOS, 5, EOS], [BOS, 6, 7]],
    [[EOS, 5, 6], [7, 6, 7]],
    [[BOS, 5, EOS, EOS], [BOS, 6, EOS, EOS]],
    [[EOS, EOS, EOS, BOS, 5]],
    [[9, 9, 9, 5, 6], [9, 5, 6, 7, 8]],
    [[5, EOS, EOS, EOS, 6], [5, 6, 7, 8, 9]],
]


@pytest.mark.parametrize("pad", [None, EOS, BOS])
@pytest.mark.parametrize("given", ["int", "list", "argument"])
@pytest.mark.parametrize(("rows", "refused"), [*((rows, True) for rows in PADDED), *((rows, False) for rows in TEXT)])
def test_padding_that_may_be_text_is_refused_where_it_is_plain(rows, refused, pad, given):
    model, ids = tiny_model(), torch.tensor(rows)
    model.config.pad_token_id = pad
    model.config.eos_token_id = {"int": EOS, "list": [EOS, 14], "argument": None}[given]
    options = {"max_new_tokens": 2, "eos_token_id": EOS if given == "argument" else None}
    if refused:
        with pytest.raises(UserError, match="attention_mask") as caught:
            generate(model, ids, Autoregressive(), **options)
        assert "\n" not in str(caught.value)
    else:
        generate(model, ids, Autoregressive(), **options)
    generate(model, ids, Autoregressive(), attention_mask=torch.ones_like(ids), **options)


def test_a_padding_token_that_is_one_of_the_end_tokens_may_end_a_prompt():
    model, ids = tiny_model(), torch.tensor([[BOS, 5, 14], [BOS, 6, 7]])
    model.config.pad_token_id = 14
    with pytest.raises(UserError, match="attention_mask"):
        generate(model, ids, Autoregressive(), max_new_tokens=2)
    model.config.eos_token_id = [EOS, 14]
    generate(model, ids, Autoregressive(), max_new_tokens=2)


def test_a_sampler_is_tried_on_what_a_pass_would_give_it():
    seen = []

    def sampler(logits, masked):
        seen.append((logits.shape, logits.dtype, (logits == -math.inf).any(0).any(0).nonzero()[:, 0].tolist()))
        return masked

    generate(tiny_model().bfloat16(), [[1, 5, 6]], SetBlock((2, 5), sampler), max_new_tokens=2, eos_token_id=EOS)
    assert len(seen) > 1
    assert set(map(repr, seen)) == {repr((torch.Size([1, 5, 24]), torch.bfloat16, sorted(FORBIDDEN)))}


@pytest.mark.parametrize(
    "make",
    [
        lambda: SetBlock(0),
        lambda: SetBlock((3, 2)),
        lambda: SetBlock((0, 2)),
        lambda: SetBlock((1, 2, 3)),  # type: ignore[arg-type]
        lambda: SetBlock(4.0),  # type: ignore[arg-type]
        lambda: SetBlock(4, "eb"),  # type: ignore[arg-type]
        lambda: SetBlock(4, first_token="free"),  # type: ignore[arg-type]
        lambda: SetBlock(4, commit="never"),  # type: ignore[arg-type]
        lambda: LongestPrefix(0),
        lambda: LongestPrefix(4, math.nan),
        lambda: LongestPrefix(4, rule="sum"),  # type: ignore[arg-type]
        lambda: LongestPrefix(4, confidence="margin"),  # type: ignore[arg-type]
        lambda: SelfSpeculative(0),
        lambda: SelfSpeculative(4, 5),
        lambda: SelfSpeculative(1, 2),
        lambda: SelfSpeculative(4, 1.0),  # type: ignore[arg-type]
        lambda: SelfSpeculative(4, -1),
    ],
)
def test_bad_settings_are_one_line(make):
    with pytest.raises(UserError) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_branches_are_two_where_the_block_has_as_many():
    assert [SelfSpeculative(k).branches for k in (1, 2, 16)] == [1, 2, 2]
    assert make_decoder({"kind": "self_speculative", "block_size": 1}) == SelfSpeculative(1, 1)
    model, rows = tiny_model(), prompts(LENGTHS)
    assert generate(model, rows, SelfSpeculative(1), 9).tokens == generate(model, rows, Autoregressive(), 9).tokens


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_token_ids_may_come_from_arrays(kind):
    model, row = tiny_model(), [1, 5, 6]
    expected = generate(model, [row, row[:2]], max_new_tokens=6, temperature=1.0, seed=3, sample_ids=[4, 5])
    given = [kind(row), kind(row[:2])]
    out = generate(model, given, max_new_tokens=6, temperature=np.float32(1.0), seed=3, sample_ids=kind([4, 5]))  # type: ignore[arg-type]
    assert out.tokens == expected.tokens


def test_a_sampler_that_stops_revealing_is_found():
    with pytest.raises(UserError, match="revealed nothing"):
        generate(tiny_model(), prompts([5, 6]), SetBlock(4, all_but_late), max_new_tokens=8)


def test_a_model_without_mask_token_decodes_autoregressively_only():
    model = tiny_model()
    model.config.mask_token_id = None
    assert len(generate(model, prompts([5]), Autoregressive(), max_new_tokens=8).tokens[0]) == 8
    with pytest.raises(UserError, match="mask token"):
        generate(model, prompts([5]), SetBlock(4), max_new_tokens=8)


def test_a_model_trained_for_something_else_is_warned_of(recwarn):
    model = tiny_model()
    model.config.sbd_objective = "ntp"
    with pytest.warns(UserWarning, match="trained with ntp"):
        generate(model, prompts([5]), SetBlock(4), max_new_tokens=2)
    del model.config.sbd_objective
    for decoder in (SetBlock(4), LongestPrefix(4), SelfSpeculative(4)):
        with pytest.warns(UserWarning, match="nothing says") as said:
            generate(model, prompts([5]), decoder, max_new_tokens=2)
        assert len(said) == 1
    recwarn.clear()
    generate(model, prompts([5]), Autoregressive(), max_new_tokens=2)
    model.config.sbd_objective = "ntp"
    generate(model, prompts([5]), Autoregressive(), max_new_tokens=2)
    assert not recwarn
