"""Memory while decoding: no growth with the passes, and at most two tensors of logits of a large vocabulary."""

from __future__ import annotations

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from sbd.decoding import Autoregressive, LongestPrefix, SelfSpeculative, SetBlock, generate
from sbd.samplers import EntropyBound, TopK
from tests.decoding.helpers import MASK, prompts, tiny_model
from tests.live_memory import LiveMemory

MODEL = tiny_model()


def peak(decoder, **options) -> tuple[int, int]:
    with LiveMemory() as memory:
        out = generate(MODEL, prompts([5, 9, 2, 6]), decoder, **options)
    return memory.peak, out.model_passes


def test_peak_memory_does_not_grow_with_the_number_of_passes() -> None:
    few, many = (peak(SetBlock(8, EntropyBound(gamma)), max_new_tokens=32) for gamma in (1e9, 0.0))
    assert many[1] > 4 * few[1]
    assert many[0] <= 1.05 * few[0]


@pytest.mark.parametrize(
    "decoder", [Autoregressive(), SetBlock(8, TopK(1)), LongestPrefix(8, 1.0), SelfSpeculative(8, 2)], ids=repr
)
def test_a_longer_text_needs_no_more_than_its_slots(decoder) -> None:
    """Twice the passes in a cache of the same length: only the view, and with it masks and scores, is longer."""
    (short, passes), (long, more) = (peak(decoder, max_new_tokens=most) for most in (24, 48))
    assert more > 1.5 * passes
    # Per slot and row: keys and values of two layers (2 x 2 x 2 heads x 8 x 4 bytes), and a mask and scores of 24
    # queries with some copies. A pass that left a tensor behind would add much more in 24 passes.
    per_slot = 2 * 2 * 16 * 4 + 24 * (4 * 4 + 2) * 4
    assert long - short <= 24 * 4 * per_slot


@pytest.mark.filterwarnings("ignore:LongestPrefix is for models")
@pytest.mark.parametrize(
    ("decoder", "temperature"),
    [
        (SetBlock(16, TopK(8)), 0.0),
        (SetBlock(16, EntropyBound(1e9), first_token="next_token"), 1.0),
        (LongestPrefix(16, 0.0), 0.0),
        (SelfSpeculative(16, 1), 0.0),
    ],
    ids=repr,
)
def test_a_block_of_a_large_vocabulary_needs_two_tensors_of_logits_at_most(decoder, temperature) -> None:
    batch, k, vocabulary = 8, 16, 152_000
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    config.mask_token_id = MASK
    model = LlamaForCausalLM(config).eval()
    with LiveMemory() as memory:
        generate(model, prompts([4] * batch), decoder, k, temperature=temperature, seed=0, record_entropy=True)
    logits = 4 * batch * k * vocabulary
    assert logits < memory.peak <= 2.05 * logits
