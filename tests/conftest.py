"""Tiny random models and a tokenizer that the tests share."""

from __future__ import annotations

import copy
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import pytest
import torch
from transformers import LlamaConfig, PreTrainedModel, PreTrainedTokenizerBase

from sbd import data, modeling

torch.set_num_threads(1)

TEXTS = [
    f"{name} has {n} apples and buys {n + 1} more .\nThe answer is {2 * n + 1} ."
    for name in ("Mia", "Tom")
    for n in range(20)
]
ODD_LLAMA = LlamaConfig(
    vocab_size=500,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
)
"""Whose parameters and operations are counted: no two of its sizes are the same."""
CHAT_TEMPLATE = Path(__file__).resolve().parents[1] / "experiments/templates/chat.jinja"
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    # Wide enough that a random model's choices vary from token to token.
    "initializer_range": 0.4,
}


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerBase:
    return data.train_tokenizer(TEXTS, vocab_size=320)


@pytest.fixture
def chatty(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The same with the template of conversations that the paper's scale uses."""
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = CHAT_TEMPLATE.read_text()
    return tokenizer


def random_model(
    architecture: str, tokenizer: PreTrainedTokenizerBase, seed: int = 0, **shape: object
) -> PreTrainedModel:
    extra = {"head_dim": 8} if architecture == "qwen3" else {}
    model = modeling.create(architecture, {**SHAPE, **extra, **shape}, tokenizer, seed).eval()
    model.config.sbd_objective = "sbd"  # so that no decoder but the one of SDLM warns
    return model


@pytest.fixture(scope="session", params=["llama", "qwen3"])
def model(request: pytest.FixtureRequest, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """A random float32 model of each architecture; tests must not change its weights."""
    return random_model(request.param, tokenizer)
