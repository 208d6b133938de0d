from typing import Any

import pytest
import torch
from transformers import DynamicCache

from sbd.cache import SlotCache
from sbd.decoding.engine import Engine
from tests.decoding.helpers import MASK, prompts, tiny_model


def causal_cache(model, tokens):
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=torch.tensor([tokens]), cache=cache, use_cache=True)
    layers: Any = cache.layers
    return [(layer.keys[0], layer.values[0]) for layer in layers]


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_cache_after_blocks_equals_a_causal_prefill(architecture, monkeypatch):
    """Every committed key and value, of unequal rows, after prompts and finished blocks went through the fused pass."""
    from sbd import decoding

    engines = []
    initialise = Engine.__init__
    monkeypatch.setattr(Engine, "__init__", lambda self, *a: (initialise(self, *a), engines.append(self))[0])
    model = tiny_model(architecture)
    rows = prompts([5, 9, 3])
    out = decoding.generate(model, rows, decoding.SetBlock(4), max_new_tokens=16)
    for row, prompt in enumerate(rows):
        text = prompt + out.tokens[row][:12]  # the last block is never committed: nothing follows it
        for layer, (keys, values) in enumerate(causal_cache(model, text)):
            ours = engines[0].cache.committed(layer, row, len(text))
            torch.testing.assert_close(ours[0], keys, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(ours[1], values, rtol=1e-4, atol=1e-5)


def test_a_pass_sees_the_slots_in_view_and_only_those():
    model = tiny_model()
    cache = SlotCache(model.config, batch=2, capacity=10, dtype=torch.float32, device="cpu")
    cache.place(torch.tensor([[0, 1], [4, 5]]), view=6)
    states = torch.randn(2, 2, 2, 8)
    keys, values = cache.update(states, -states, layer_idx=1)
    assert keys.shape == values.shape == (2, 2, 6, 8)
    assert torch.equal(keys[0, :, 0:2], states[0])
    assert torch.equal(keys[1, :, 4:6], states[1])
    assert torch.equal(values, -keys)
    assert keys[0, :, 2:].abs().sum() == keys[1, :, :4].abs().sum() == 0


def test_scratch_is_overwritten_and_nothing_grows():
    model = tiny_model()
    cache = SlotCache(model.config, batch=1, capacity=8, dtype=torch.float32, device="cpu")
    pointers = [layer.stored_keys.data_ptr() for layer in cache.slot_layers]
    for n in range(20):
        cache.place(torch.tensor([[2, 3]]), view=4)
        keys, _ = cache.update(torch.full((1, 2, 2, 8), float(n)), torch.zeros(1, 2, 2, 8), layer_idx=0)
        assert (keys[:, :, 2:] == n).all()
    assert pointers == [layer.stored_keys.data_ptr() for layer in cache.slot_layers]


def test_junk_behind_a_row_does_not_reach_it():
    model = tiny_model()
    hidden = []
    for junk in (MASK, 7):
        engine = Engine(model, 1, 16, [])
        slots = torch.arange(6)[None]
        tokens = torch.tensor([[1, 5, 6, junk, junk, junk]])
        with torch.inference_mode():
            hidden.append(engine.forward(tokens, slots, slots + 1, view=6)[:, :3])
    assert torch.equal(hidden[0], hidden[1])
