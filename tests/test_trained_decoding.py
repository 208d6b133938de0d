"""Decoders with models that were trained for them, on a few texts learnt by heart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sbd
from sbd import data
from sbd.batching import Noise
from sbd.training import TrainingSettings, train
from tests.conftest import random_model
from tests.test_data import write

PROBLEMS = [
    {"prompt": f"Mia has {n} apples .\n", "solution": f"The answer is {9 - n} ." + " So it is ." * (1 + n % 3)}
    for n in range(10)
]
STEPS = 150


@pytest.fixture(scope="module")
def rows(tokenizer, tmp_path_factory: pytest.TempPathFactory) -> data.PackedRows:
    folder = tmp_path_factory.mktemp("data")
    data.prepare([write(folder / "train.jsonl", PROBLEMS)], folder / "packed", tokenizer, 64, seed=0)
    return data.PackedRows(folder / "packed")


def trained(architecture: str, rows: data.PackedRows, tokenizer: Any, folder: Path, noise: Noise) -> Any:
    model = random_model(architecture, tokenizer, initializer_range=0.2)
    model.config.sbd_objective = noise.kind
    settings = TrainingSettings(
        steps=STEPS, batch_rows=4, micro_rows=4, learning_rate=1e-2, warmup_steps=10, precision="fp32"
    )
    train(model, tokenizer, rows, folder, settings, noise)
    return model.eval()


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def sbd_model(request: pytest.FixtureRequest, rows, tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return trained(request.param, rows, tokenizer, tmp_path_factory.mktemp("sbd"), Noise("sbd", (2, 8)))


@pytest.fixture(scope="module")
def sdlm_model(rows, tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return trained("llama", rows, tokenizer, tmp_path_factory.mktemp("sdlm"), Noise("sdlm", (4, 4)))


def decode(model: Any, tokenizer: Any, decoder: Any, batch: int = 10) -> tuple[list[list[int]], float, float]:
    """Tokens of all problems, the share of right solutions, and tokens per forward pass."""
    ids = [data.encode_prompt(tokenizer, problem["prompt"]) for problem in PROBLEMS]
    outs = [
        sbd.generate(model, ids[start : start + batch], decoder, 40, eos_token_id=tokenizer.eos_token_id)
        for start in range(0, len(ids), batch)
    ]
    tokens = [row for out in outs for row in out.tokens]
    texts = [tokenizer.decode(row, skip_special_tokens=True) for row in tokens]
    right = sum(text == problem["solution"] for text, problem in zip(texts, PROBLEMS, strict=True)) / len(PROBLEMS)
    return tokens, right, sum(map(len, tokens)) / sum(sum(out.forward_passes) for out in outs)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_self_speculative_gives_the_text_of_a_trained_model_in_fewer_passes(
    sbd_model, tokenizer, temperature: float
) -> None:
    ids = [data.encode_prompt(tokenizer, problem["prompt"]) for problem in PROBLEMS]
    options = {"max_new_tokens": 40, "eos_token_id": tokenizer.eos_token_id, "temperature": temperature, "seed": 5}
    plain = sbd.generate(sbd_model, ids, sbd.Autoregressive(), **options)
    for size in (1, 8):
        for branches in (2, 8):
            outs = [
                sbd.generate(
                    sbd_model,
                    ids[start : start + size],
                    sbd.SelfSpeculative(8, branches),
                    sample_ids=range(start, min(start + size, len(ids))),
                    **options,
                )
                for start in range(0, len(ids), size)
            ]
            tokens = [row for out in outs for row in out.tokens]
            assert tokens == plain.tokens
            if temperature == 0 and branches == 8:
                assert sum(map(len, tokens)) > 2 * sum(sum(out.forward_passes) for out in outs)


def test_set_block_decodes_a_trained_model(sbd_model, tokenizer) -> None:
    assert decode(sbd_model, tokenizer, sbd.Autoregressive())[1] >= 0.9
    _, right, speed = decode(sbd_model, tokenizer, sbd.SetBlock(8, sbd.EntropyBound(0.1)))
    assert right >= 0.4
    assert speed > 1.5


@pytest.mark.parametrize(
    ("confidence", "rule"), [("probability", "each"), ("probability", "product"), ("entropy", "each")]
)
def test_longest_prefix_decodes_a_model_trained_for_it(sdlm_model, sbd_model, tokenizer, confidence, rule) -> None:
    decoder = sbd.LongestPrefix(4, 0.9, confidence, rule)
    _, right, speed = decode(sdlm_model, tokenizer, decoder)
    assert right >= 0.9
    assert speed > 2
    with pytest.warns(UserWarning, match="trained with sbd"):
        assert decode(sbd_model, tokenizer, decoder)[1] < 0.5  # its masks predict their own place, not the next


def test_longest_prefix_of_one_is_next_token_decoding(sdlm_model, tokenizer) -> None:
    one = decode(sdlm_model, tokenizer, sbd.LongestPrefix(1, 0.0))
    four_but_none_is_sure = decode(sdlm_model, tokenizer, sbd.LongestPrefix(4, 1.0))
    with pytest.warns(UserWarning, match="trained with sdlm"):
        assert one[0] == decode(sdlm_model, tokenizer, sbd.Autoregressive())[0]
    assert one[2] == four_but_none_is_sure[2] == 1
