import sys
from importlib.util import find_spec

import pytest
import torch
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear as Dynamic

from sbd.decoding import Autoregressive, LongestPrefix, SelfSpeculative, SetBlock, flash, generate
from sbd.decoding.engine import Engine
from sbd.decoding.forward import is_supported
from sbd.samplers import EntropyBound
from tests.decoding.helpers import FORBIDDEN, MASK, logits_of, prompts, tiny_model


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("rotation", ["default", "llama3"])
def test_layers_written_out_give_the_hidden_states_of_the_model(architecture, rotation, monkeypatch):
    """A causal prefill, then a pass with its own positions, limits and intervals, over what the prefill stored."""
    model = tiny_model(architecture)
    if rotation == "llama3":
        model.config.rope_parameters = {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        }
        model.model.rotary_emb = type(model.model.rotary_emb)(config=model.config)
    states = []
    for direct in (True, False):
        monkeypatch.setattr(Engine, "direct", direct)
        engine = Engine(model, 2, 24, [])
        assert (engine.run is not None) == direct
        tokens = torch.tensor([[1, 5, 6, 7, 8, 9], [1, 9, 4, 9, 4, 9]])
        more = torch.tensor([[6, 7, 12, 13], [4, 5, 12, 13]])
        limit = torch.tensor([[7, 8, 6, 6], [5, 6, 4, 4]])
        low = torch.tensor([[0, 0, 12, 12]] * 2)
        high = torch.tensor([[0, 0, 14, 14]] * 2)
        positions = torch.tensor([[6, 7, 6, 7], [4, 5, 4, 5]])
        with torch.inference_mode():
            first = engine.prefill(tokens)
            second = engine.forward(tokens[:, :4], more, limit, 14, positions, (low, high))
            third = engine.forward(tokens[:, :2], more[:, :2], "all", 8)
        states.append((first, second, third))
    for ours, theirs in zip(*states, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_group_behind_unequal_prompts_sees_its_prompt_and_itself(architecture):
    model, rows = tiny_model(architecture), prompts([5, 2, 7])
    engine = Engine(model, 3, 10, list(FORBIDDEN))
    tokens = torch.tensor([row + [MASK] * (10 - len(row)) for row in rows])
    lengths = torch.tensor([[len(row)] for row in rows])
    with torch.inference_mode():
        hidden = engine.prefill(tokens, 3, lengths)
        logits = engine.logits(hidden)
    for row, ours in zip(rows, logits, strict=True):
        together = torch.cat((ours[: len(row)], ours[-3:]))
        expected = logits_of(model, [*row, *[MASK] * 3], bidirectional_from=len(row))
        torch.testing.assert_close(together, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("widths", "groups"), [((4, 2), (3, 2)), ((4, 1), (2, 4))])
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_leaving_out_queries_changes_nothing_for_the_others(architecture, widths, groups, monkeypatch):
    """Rows of different width in one line: hidden states, and keys and values, are those of equally wide rows."""
    attended, sdpa = [], torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda q, *given, **named: attended.append((q.shape[0], q.shape[2])) or sdpa(q, *given, **named),
    )
    model, states = tiny_model(architecture), []
    needed = torch.arange(4) < torch.tensor(widths)[:, None]
    slots = torch.arange(4).expand(2, -1)
    tokens = torch.tensor([[1, 5, 6, 7], [1, 9, 4, 9]])
    limit = torch.tensor([[5, 8, 8, 8], [5, 6, 6, 6]])  # none sees what is left out
    for is_line in (False, True):
        engine = Engine(model, 2, 16, [])
        with torch.inference_mode():
            engine.prefill(tokens)
            if is_line:
                at = (slots + 4)[needed]
                places = torch.from_numpy(engine.places(at.numpy(), widths))
                hidden = engine.line((tokens + 1)[needed], at, places, limit[needed], list(widths), 8)
            else:
                hidden = engine.forward(tokens + 1, slots + 4, limit, 8)[needed]
        kept = [engine.cache.committed(1, row, 4 + width) for row, width in enumerate(widths)]
        states.append((hidden, *kept[0], *kept[1]))
    for ours, theirs in zip(*states, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    layers = model.config.num_hidden_layers
    assert attended == [(2, 4)] * layers * 3 + [groups] * layers


class Plain:
    """What flash-attn computes, in plain steps."""

    def __init__(self):
        self.calls = []

    def flash_attn_func(self, q, k, v, causal=False):
        self.calls.append("causal" if causal else "all")
        assert not causal or q.shape[1] == k.shape[1]
        return self._attend(q, k, v, torch.full((q.shape[0],), k.shape[1]), causal)

    def flash_attn_with_kvcache(self, q, k_cache, v_cache, cache_seqlens):
        self.calls.append("lengths")
        assert cache_seqlens.dtype == torch.int32
        return self._attend(q, k_cache, v_cache, cache_seqlens, False)

    def _attend(self, q, k, v, lengths, causal):
        group = q.shape[2] // k.shape[2]
        k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        visible = torch.arange(k.shape[1]) < lengths[:, None, None, None]
        if causal:
            visible = visible & torch.ones(q.shape[1], k.shape[1]).tril().bool()
        return torch.einsum("bhqk,bkhd->bqhd", scores.masked_fill(~visible, -torch.inf).softmax(-1), v)


@pytest.mark.parametrize(
    ("decoder", "calls"),
    [
        (Autoregressive(), {"causal", "lengths"}),
        (SetBlock(4, EntropyBound(0.8)), {"causal", "lengths"}),
        (SetBlock((2, 5), EntropyBound(0.8)), {"causal", "lengths"}),
        (LongestPrefix(4, 0.4), {"causal"}),
        (SelfSpeculative(4, 2), set()),
    ],
    ids=repr,
)
def test_flash_attention_where_it_fits_gives_the_same_text(decoder, calls, monkeypatch):
    model, rows, plain = tiny_model(), prompts([5, 9, 2, 6]), Plain()
    expected = generate(model, rows, decoder, 15, eos_token_id=[2, 5, 9])
    one = generate(model, rows[:1], decoder, 15)
    monkeypatch.setattr(flash, "_library", lambda: plain)
    assert not flash.fits(model, 8)  # float32 on a CPU
    monkeypatch.setattr(flash, "fits", lambda model, head_dim: True)
    # What a ragged pass does not need would else be left out, which takes a mask.
    monkeypatch.setattr(Engine, "packs", lambda self, widths, width: False)
    out = generate(model, rows, decoder, 15, eos_token_id=[2, 5, 9])
    assert (out.tokens, out.revealed_at) == (expected.tokens, expected.revealed_at)
    assert set(plain.calls) == calls
    assert generate(model, rows[:1], decoder, 15).tokens == one.tokens


@pytest.mark.parametrize(
    ("source", "warns"),
    [
        (None, False),
        ("import no_such_module", True),
        ("raise OSError('undefined symbol:\\n  _ZN3c10')", True),
        ("raise RuntimeError('CUDA')", True),
    ],
)
def test_flash_attention_that_cannot_be_imported_is_left_out(source, warns, tmp_path, monkeypatch, recwarn):
    if source is None:
        monkeypatch.setitem(sys.modules, "flash_attn", None)
    else:
        (tmp_path / "flash_attn.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        assert find_spec("flash_attn") is not None
    flash._library.cache_clear()
    try:
        assert flash._library() is None
        assert flash._library() is None
    finally:
        flash._library.cache_clear()
    said = [str(warning.message) for warning in recwarn]
    assert len(said) == warns
    assert all("cannot be imported" in line and "\n" not in line for line in said)


def test_models_that_are_changed_go_through_their_own_forward():
    assert is_supported(tiny_model())
    hooked = tiny_model()
    hooked.model.layers[0].register_forward_hook(lambda module, args, output: None)
    assert not is_supported(hooked)

    class Adapter(torch.nn.Linear):
        pass

    adapted = tiny_model()
    adapted.model.layers[0].self_attn.q_proj = Adapter(32, 32)
    assert not is_supported(adapted)
    # A linear layer of transformers itself, as its quantisers put it there, and one of torch that is not a plain one.
    for swapped in (type("FP8Linear", (torch.nn.Linear,), {"__module__": "transformers.integrations"}), Dynamic):
        for place in ("lm_head", "model.layers.1.mlp.up_proj", "model.layers.0.self_attn.o_proj"):
            quantised = tiny_model()
            old = quantised.get_submodule(place)
            quantised.set_submodule(place, swapped(old.in_features, old.out_features, bias=False))
            assert not is_supported(quantised)
    sliding = tiny_model("qwen3")
    sliding.config.layer_types = ["sliding_attention", "full_attention"]
    assert not is_supported(sliding)
