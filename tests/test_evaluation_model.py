"""The model class of lm-eval, against references that recompute everything."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.api.registry import get_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import sbd
from sbd import evaluation
from sbd.data import encode_prompt
from sbd.errors import UserError
from sbd.evaluation import SBDLM, GenerationSettings
from tests.evaluation_helpers import (
    PROMPTS,
    generating,
    requests,
    scripted,
    tiny_stub,
)


@pytest.fixture
def lm(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> SBDLM:
    return SBDLM(model, tokenizer, batch_size=2)


# ------------------------------------------------------------------------------------------------ log-likelihood


def reference_loglikelihood(model: Any, context: list[int], continuation: list[int]) -> tuple[float, bool]:
    """One unpadded forward per continuation token."""
    total, greedy = 0.0, True
    ids = list(context)
    for token in continuation:
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1].double()
        total += float(logits.log_softmax(-1)[token])
        greedy = greedy and int(logits.argmax()) == token
        ids.append(token)
    return total, greedy


@pytest.mark.parametrize("batch_size", [1, 2, 3, 8])
def test_loglikelihood_is_that_of_unpadded_next_token_prediction(model, tokenizer, batch_size: int) -> None:
    pairs = [(prompt, text) for prompt in PROMPTS for text in ("The answer is 7.", "no")]
    got = SBDLM(model, tokenizer, batch_size=batch_size).loglikelihood(requests("loglikelihood", pairs), True)
    for (prompt, text), (value, greedy) in zip(pairs, got, strict=True):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        expected = reference_loglikelihood(model, encode_prompt(tokenizer, prompt), ids)
        assert value == pytest.approx(expected[0], abs=1e-4)
        assert greedy == expected[1]


def test_greedy_is_true_for_what_greedy_decoding_gives(model, tokenizer, lm: SBDLM) -> None:
    prompt = encode_prompt(tokenizer, PROMPTS[1])
    ids = model.generate(torch.tensor([prompt]), max_new_tokens=4, do_sample=False, eos_token_id=None)
    continuation = ids[0, len(prompt) :].tolist()
    other = [*continuation[:-1], (continuation[-1] + 1) % 300]
    got = lm._loglikelihood_tokens([(None, prompt, continuation), (None, prompt, other)], disable_tqdm=True)
    assert [greedy for _, greedy in got] == [True, False]


def test_an_empty_context_is_the_start_token_alone(model, tokenizer, lm: SBDLM) -> None:
    ids = tokenizer("Mia has 3", add_special_tokens=False)["input_ids"]
    [(value, _)] = lm.loglikelihood(requests("loglikelihood", [("", "Mia has 3")]), True)
    assert value == pytest.approx(reference_loglikelihood(model, [tokenizer.bos_token_id], ids)[0], abs=1e-4)


def test_context_and_continuation_are_cut_into_tokens_as_in_training(lm: SBDLM, tokenizer) -> None:
    context, continuation = lm._encode_pair("Tom has 3 .\n", "The answer is 7 .")
    assert context == encode_prompt(tokenizer, "Tom has 3 .\n")
    assert continuation == tokenizer("The answer is 7 .", add_special_tokens=False)["input_ids"]
    context, continuation = lm._encode_pair("Tom has ", "3 apples")  # lm-eval's way: the space belongs to the "3"
    assert context + continuation == encode_prompt(tokenizer, "Tom has 3 apples")
    assert tokenizer.decode(continuation) == " 3 apples"


def test_rolling_scores_every_token_once_also_beyond_the_length_of_the_model(tokenizer, model) -> None:
    text = "Mia has 3 apples and buys 4 more .\n" * 30
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    lm = SBDLM(model, tokenizer, batch_size=3)
    [short] = lm.loglikelihood_rolling(requests("loglikelihood_rolling", [(text[:60],)]), True)
    expected = reference_loglikelihood(
        model, [tokenizer.bos_token_id], tokenizer(text[:60], add_special_tokens=False)["input_ids"]
    )
    assert short == pytest.approx(expected[0], abs=1e-3)

    limited: Any = type("Limited", (SBDLM,), {"max_length": 100})(model, tokenizer, batch_size=3)
    seen: list[list[int]] = []
    score = limited._loglikelihood_tokens
    limited._loglikelihood_tokens = lambda windows, **k: (seen.extend(w[2] for w in windows), score(windows, **k))[1]
    [value] = limited.loglikelihood_rolling(requests("loglikelihood_rolling", [(text,)]), True)
    assert [token for window in seen for token in window] == ids
    assert len(seen) > 1
    assert math.isfinite(value)


def test_a_text_beyond_the_length_of_the_model_is_refused(lm: SBDLM) -> None:
    with pytest.raises(UserError, match="exceeds the 512 positions"):
        lm.loglikelihood(requests("loglikelihood", [("Mia has 3 apples .\n" * 100, "4")]), True)
    with pytest.raises(UserError, match=r"prompt 2 has \d+ tokens; with 8 new ones that exceeds"):
        lm.generate_until(generating(["Mia\n", "Mia has 3 apples .\n" * 100]), True)


# ------------------------------------------------------------------------------------------------ start tokens


def test_exactly_one_start_token(lm: SBDLM, tokenizer) -> None:
    bos = tokenizer.bos_token
    for text in ("Mia has 3", f"{bos}Mia has 3"):
        ids = lm.tok_encode(text)
        assert ids[0] == tokenizer.bos_token_id
        assert ids.count(tokenizer.bos_token_id) == 1
    assert lm.tok_encode(f"{bos}Mia has 3") == lm.tok_encode("Mia has 3")
    with pytest.raises(UserError, match="holds 2 start tokens"):
        lm.generate_until(generating([f"Mia {bos} has"]), True)
    with pytest.raises(UserError, match="holds 2 start tokens"):
        lm.generate_until(generating([f"{bos}{bos}Mia has"]), True)


# ------------------------------------------------------------------------------------------------ generation


def decoders() -> list[Any]:
    return [
        sbd.Autoregressive(),
        sbd.SetBlock(block_size=4, sampler=sbd.EntropyBound(gamma=0.5)),
        sbd.SetBlock(block_size=3, sampler=sbd.EntropyBound(gamma=0.0), first_token="next_token"),
        sbd.LongestPrefix(block_size=4, threshold=0.5),
    ]


@pytest.mark.filterwarnings("ignore:LongestPrefix is for models trained with sdlm")
@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0, "do_sample": True, "top_p": 0.9}])
def test_the_same_text_at_any_batch_size(model, tokenizer, which: int, settings: dict) -> None:
    texts, statistics = [], []
    for batch_size in (1, 2, 5):
        lm = SBDLM(model, tokenizer, decoders()[which], batch_size=batch_size, seed=3)
        texts.append(lm.generate_until(generating(PROMPTS, until=["9"], **settings), True))
        statistics.append([(s["token_ids"], s["forward_passes"], s["revealed_at"]) for s in lm.statistics])
    assert texts[0] == texts[1] == texts[2]
    assert statistics[0] == statistics[1] == statistics[2]


def test_greedy_text_is_that_of_transformers(model, tokenizer, lm: SBDLM) -> None:
    texts = lm.generate_until(generating(PROMPTS), True)
    forbidden = [[tokenizer.mask_token_id], [tokenizer.pad_token_id], [tokenizer.bos_token_id]]
    for prompt, text, statistic in zip(PROMPTS, texts, lm.statistics, strict=True):
        ids = encode_prompt(tokenizer, prompt)
        out = model.generate(torch.tensor([ids]), max_new_tokens=8, do_sample=False, bad_words_ids=forbidden)
        new = out[0, len(ids) :].tolist()
        assert statistic["token_ids"] == new
        assert text == tokenizer.decode(new, skip_special_tokens=True)
        assert statistic["forward_passes"] == statistic["tokens"] == len(new)
        assert statistic["revealed_at"] == list(range(1, len(new) + 1))


def test_stop_strings_end_the_text_before_them_and_save_passes(model, tokenizer, lm: SBDLM) -> None:
    whole = lm.generate_until(generating(PROMPTS, max_gen_toks=20), True)
    for place, text in enumerate(whole):
        stop = text[6:8]
        [cut] = lm.generate_until(generating([PROMPTS[place]], max_gen_toks=20, until=["not there", stop]), True)
        assert cut == text[: text.index(stop)]
        assert stop in tokenizer.decode(lm.statistics[0]["token_ids"])
        assert lm.statistics[0]["forward_passes"] < 20
        assert not lm.statistics[0]["truncated"]


def test_the_end_token_is_counted_but_not_part_of_the_text(tokenizer) -> None:
    eos = tokenizer.eos_token_id
    answer = tokenizer("yes", add_special_tokens=False)["input_ids"]
    lm = SBDLM(tiny_stub(tokenizer), tokenizer, batch_size=9, generate=scripted({0: [*answer, eos], 1: answer * 12}))
    texts = lm.generate_until(generating(["a\n", "b\n"], max_gen_toks=len(answer) * 12), True)
    assert texts == ["yes", "yes" * 12]
    assert [s["tokens"] for s in lm.statistics] == [len(answer) + 1, len(answer) * 12]
    assert [s["truncated"] for s in lm.statistics] == [False, True]


def test_sampling_depends_on_the_seed_and_the_place(model, tokenizer) -> None:
    sampled = generating(["Mia has\n"] * 4, temperature=1.5, do_sample=True)
    one, again, other = (SBDLM(model, tokenizer, seed=seed).generate_until(sampled, True) for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert len(set(one)) > 1
    by_argument = SBDLM(model, tokenizer).generate_until(
        generating(["Mia has\n"] * 4, temperature=1.5, do_sample=True, seed=2), True
    )
    assert by_argument == other


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, GenerationSettings(max_new_tokens=99)),
        ({"until": "x", "max_gen_toks": 5}, GenerationSettings(("x",), 5)),
        ({"until": ["x", ""], "max_new_tokens": 5}, GenerationSettings(("x",), 5)),
        ({"do_sample": False, "temperature": 0.7, "top_p": 0.5}, GenerationSettings(max_new_tokens=99)),
        ({"do_sample": True, "top_p": 0.5}, GenerationSettings(max_new_tokens=99, temperature=1.0, top_p=0.5)),
        ({"temperature": 0.7, "top_k": 3}, GenerationSettings(max_new_tokens=99, temperature=0.7, top_k=3)),
    ],
)
def test_generation_arguments_are_understood(given: dict, expected: GenerationSettings) -> None:
    assert GenerationSettings.of(given, default_tokens=99, default_seed=0) == expected


def test_an_argument_that_nothing_would_use_is_refused(lm: SBDLM) -> None:
    with pytest.raises(UserError, match="num_beams, which nothing would use; known are do_sample"):
        lm.generate_until(generating(PROMPTS, num_beams=4), True)


def test_it_is_registered_and_opens_a_checkpoint(model, tokenizer, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    made = get_model("sbd").create_from_arg_obj({"pretrained": str(tmp_path)}, {"batch_size": 3, "device": "cpu"})
    assert isinstance(made, SBDLM)
    assert made.batch_size == 3
    expected = SBDLM(model, tokenizer).generate_until(generating(PROMPTS[:2]), True)
    assert made.generate_until(generating(PROMPTS[:2]), True) == expected


# ------------------------------------------------------------------------------------------------ decoders


def test_decoders_from_settings_and_back() -> None:
    made = evaluation.make_decoder(
        {"kind": "set_block", "block_size": 8, "sampler": {"gamma": "unlimited"}, "label": "x", "threshold": None}
    )
    assert made == sbd.SetBlock(block_size=8, sampler=sbd.EntropyBound(gamma=math.inf))
    described = evaluation.describe_decoder(made)
    assert described["kind"] == "SetBlock"
    assert described["block_size"] == 8
    assert described["sampler"] == {"kind": "EntropyBound", "gamma": "unlimited", "order": "entropy"}
    assert {"first_token", "commit"} <= set(described)  # what was not given is there too
    assert evaluation.make_decoder({"kind": "autoregressive", "first_token": "masked"}) == sbd.Autoregressive()
    factor = evaluation.make_decoder({"kind": "set_block", "block_size": 4, "sampler": {"rule": "factor", "factor": 1}})
    assert factor.sampler == sbd.Factor(1)
    printed = {"rule": "factor", "factor": 1, "form": "printed"}
    made = evaluation.make_decoder({"kind": "set_block", "block_size": 4, "sampler": printed})
    assert made.sampler == sbd.Factor(1, "printed")
    with pytest.raises(UserError, match="decoder kind 'beam' is unknown; use one of autoregressive"):
        evaluation.make_decoder({"kind": "beam"})
    with pytest.raises(UserError, match="sampler rule 'best' is unknown; use one of entropy_bound"):
        evaluation.make_decoder({"kind": "set_block", "block_size": 4, "sampler": {"rule": "best"}})


def test_the_log_of_an_evaluation_says_the_end_once(tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    answer = tokenizer("yes", add_special_tokens=False)["input_ids"]
    lm = SBDLM(tiny_stub(tokenizer), tokenizer, generate=scripted(dict.fromkeys(range(4), answer)), label="b")
    lm.generate_until(generating(PROMPTS[:4]))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" [")[0] for line in lines] == ["b: 0/4 problem", "b: 4/4 problem"]
    assert lines[-1].endswith("tokens per forward")
