"""What cannot be decoded is refused in one line, before any pass where that is possible."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

from sbd.decoding import Autoregressive, LongestPrefix, SelfSpeculative, SetBlock, generate
from sbd.errors import UserError
from sbd.evaluation.decoders import make_decoder
from sbd.samplers import ConfidenceThreshold, EntropyBound, Factor, TopK
from tests.decoding.helpers import BOS, EOS, FORBIDDEN, LENGTHS, MASK, PAD, prompts, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore:LongestPrefix is for models")


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
        ({"temperature": 1e-40}, "temperature"),
        ({"temperature": 1e39}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": "0.5"}, "top_p"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"top_k": True}, "top_k"),
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
        ({"max_new_tokens": True}, "max_new_tokens"),
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
        ({"stop": 3}, "stop"),
        ({"eos_token_id": 99}, "vocabulary"),
        ({"input_ids": torch.tensor([[1, 5]]), "attention_mask": [[1, 1]]}, "attention_mask must be a tensor"),
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
        lambda: SetBlock(True),
        lambda: SetBlock((3, 2)),
        lambda: SetBlock((0, 2)),
        lambda: SetBlock((1, 2, 3)),  # type: ignore[arg-type]
        lambda: SetBlock(4.0),  # type: ignore[arg-type]
        lambda: SetBlock(4, "eb"),  # type: ignore[arg-type]
        lambda: SetBlock(4, EntropyBound),  # type: ignore[arg-type]
        lambda: SetBlock(4, first_token="free"),  # type: ignore[arg-type]
        lambda: SetBlock(4, commit="never"),  # type: ignore[arg-type]
        lambda: LongestPrefix(0),
        lambda: LongestPrefix(4, math.nan),
        lambda: LongestPrefix(4, "a"),  # type: ignore[arg-type]
        lambda: SetBlock(4, EntropyBound("0.1")),  # type: ignore[arg-type]
        lambda: SetBlock(4, EntropyBound(torch.tensor(0.8))),  # type: ignore[arg-type]
        lambda: SetBlock(4, Factor("1")),  # type: ignore[arg-type]
        lambda: SetBlock(4, ConfidenceThreshold("x")),  # type: ignore[arg-type]
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
    numbers = {"max_new_tokens": np.int64(6), "seed": np.int32(3), "cache_length": np.int64(128)}
    out = generate(model, given, temperature=1.0, sample_ids=[4 + 2**70, 5 - 2**70], **numbers)
    assert out.tokens == expected.tokens


def test_settings_may_be_numbers_of_numpy():
    four, two = np.int64(4), np.int32(2)
    made = (SetBlock(four), SetBlock((two, four)), LongestPrefix(four), SelfSpeculative(four, two))  # type: ignore[arg-type]
    assert made == (SetBlock(4), SetBlock((2, 4)), LongestPrefix(4), SelfSpeculative(4, 2))
    for decoder in made:
        assert "np" not in repr(decoder)
        generate(tiny_model(), [[1, 5, 6]], decoder, max_new_tokens=6)
    generate(tiny_model(), [[1, 5, 6]], SetBlock(four, TopK(two)), 6, temperature=1.0, top_k=two)  # type: ignore[arg-type]


def test_a_sampler_that_stops_revealing_is_found():
    with pytest.raises(UserError, match="revealed nothing"):
        generate(tiny_model(), prompts([5, 6]), SetBlock(4, all_but_late), max_new_tokens=8)


@pytest.mark.parametrize("first_token", ["masked", "next_token"])
def test_a_row_that_stands_still_is_found_once_the_others_are_done(first_token):
    calls = []

    def all_but_the_last(logits, masked):
        calls.append(len(masked))
        others = torch.arange(len(masked))[:, None] < len(masked) - 1
        return masked if len(calls) == 1 else masked & others  # the first call is the check of the sampler

    with pytest.raises(UserError, match="revealed nothing"):
        generate(tiny_model(), prompts([5, 6, 4]), SetBlock(4, all_but_the_last, first_token), max_new_tokens=8)
    assert calls[-1] == 1


@pytest.mark.parametrize("decoder", [Autoregressive(), SetBlock(4), LongestPrefix(4), SelfSpeculative(4)], ids=repr)
@pytest.mark.filterwarnings("ignore:LongestPrefix")
def test_a_model_of_ruined_weights_is_one_line(decoder):
    def refused(spoil):
        model = tiny_model()
        with torch.no_grad():
            spoil(model)
        with pytest.raises(UserError, match="gives NaN or infinity"):
            generate(model, prompts([5, 6]), decoder, max_new_tokens=8)

    refused(lambda model: model.model.layers[0].mlp.up_proj.weight[0, 0].fill_(math.nan))
    refused(lambda model: model.lm_head.weight[7, 0].fill_(math.nan))
    refused(lambda model: model.lm_head.weight.fill_(1e38))
    for infinity in (math.inf, -math.inf):
        refused(lambda model, infinity=infinity: model.lm_head.weight[7, 0].fill_(infinity))
    given = {token for row in prompts([5, 6]) for token in row}
    text = generate(tiny_model(), prompts([5, 6]), decoder, max_new_tokens=8).tokens[0]
    later = next(token for token in text[1:6] if token not in given)
    refused(lambda model: model.model.embed_tokens.weight[later].fill_(math.nan))


def test_a_sampler_may_reveal_what_is_not_masked_and_nothing_happens():
    model, rows = tiny_model(), prompts([5, 6])

    def left_to_right(logits, masked):
        return (masked.cumsum(-1) == 1) & masked

    expected = generate(model, rows, SetBlock(4, left_to_right), max_new_tokens=8)
    more = SetBlock(4, lambda logits, masked: left_to_right(logits, masked) | ~masked)
    assert generate(model, rows, more, max_new_tokens=8) == expected


@pytest.mark.parametrize(
    "wrong", [lambda masked: masked[0], lambda masked: masked[:, 1:], lambda masked: masked * 1.0], ids=range(3)
)
def test_a_sampler_that_is_wrong_of_several_rows_only_is_one_line(wrong):
    def plain(logits, masked):
        return masked if len(masked) == 1 else wrong(masked)

    with pytest.raises(UserError, match=r"bool tensor of shape \[batch, k\], here \[2, 4\]"):
        generate(tiny_model(), prompts([5, 6]), SetBlock(4, plain), max_new_tokens=8)


@pytest.mark.parametrize("wrong", [lambda scores: scores[0], lambda scores: scores.numpy()], ids=range(2))
def test_a_sampler_in_two_steps_whose_first_is_wrong_of_several_rows_only_is_one_line(wrong):
    class Wrong(TopK):
        def scores(self, logits):
            scores = super().scores(logits)
            return scores if len(logits) == 1 else (wrong(scores[0]),)

    with pytest.raises(UserError, match=r"scores, each a tensor of shape \[batch, k\], here \[2, 4\]"):
        generate(tiny_model(), prompts([5, 6]), SetBlock(4, Wrong(1)), max_new_tokens=8)


def test_a_sampler_is_called_as_it_wants_to_be():
    class Left(EntropyBound):
        def __call__(self, logits, masked):
            return (masked.cumsum(-1) == 1) & masked

    model, rows = tiny_model(), prompts([5, 6])
    assert generate(model, rows, SetBlock(4, Left(math.inf)), max_new_tokens=8).forward_passes == [8, 8]


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


@pytest.mark.parametrize("decoder", [Autoregressive(), SetBlock(4), LongestPrefix(4), SelfSpeculative(4)])
def test_a_model_that_the_engine_would_decode_wrongly_is_one_line(decoder):
    def refused(model: Any, words):
        with pytest.raises(UserError, match=words) as raised:
            generate(model, prompts([5, 6]), decoder, max_new_tokens=8)
        assert "\n" not in str(raised.value)

    refused(tiny_model().model, "LlamaModel cannot be decoded.*AutoModelForCausalLM")
    refused(
        GPT2LMHeadModel(GPT2Config(vocab_size=24, n_embd=8, n_layer=1, n_head=1)), "GPT2LMHeadModel cannot be decoded"
    )
    refused("a path", "str cannot be decoded")
    for name in ("final_logit_softcapping", "logits_scaling", "logit_scale"):
        model = tiny_model()
        setattr(model.config, name, 30.0)
        refused(model, f"{name} \\(30.0\\)")
        setattr(model.config, name, None if name == "final_logit_softcapping" else 1.0)
        assert generate(model, prompts([5, 6]), decoder, max_new_tokens=8).tokens
    texts = []
    for window in (12, 64, None):
        shape = {key: value for key, value in tiny_model().config.to_dict().items() if key != "model_type"}
        model = MistralForCausalLM(MistralConfig(**{**shape, "sliding_window": window})).eval()
        model.load_state_dict(tiny_model().state_dict())
        if window == 12:
            refused(model, "sliding window of 12")
        else:
            texts.append(generate(model, prompts([5, 6]), decoder, max_new_tokens=8).tokens)
    assert texts[0] == texts[1]  # all of it is seen
