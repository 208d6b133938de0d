import pytest
import torch

from sbd.decoding.engine import Engine
from sbd.decoding.forward import is_supported
from tests.decoding_helpers import tiny_model


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
        slots = torch.arange(6).expand(2, -1)
        tokens = torch.tensor([[1, 5, 6, 7, 8, 9], [1, 9, 4, 9, 4, 9]])
        more = torch.tensor([[6, 7, 12, 13], [4, 5, 12, 13]])
        limit = torch.tensor([[7, 8, 6, 6], [5, 6, 4, 4]])
        low = torch.tensor([[0, 0, 12, 12]] * 2)
        high = torch.tensor([[0, 0, 14, 14]] * 2)
        positions = torch.tensor([[6, 7, 6, 7], [4, 5, 4, 5]])
        with torch.inference_mode():
            first = engine.forward(tokens, slots, "causal", view=6)
            second = engine.forward(tokens[:, :4], more, limit, 14, positions, (low, high))
            third = engine.forward(tokens[:, :2], more[:, :2], "all", 8)
        states.append((first, second, third))
    for ours, theirs in zip(*states, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_leaving_out_queries_changes_nothing_for_the_others(architecture):
    """Rows of different width, one of them done: hidden states, and keys and values, of the needed queries only."""
    model, states, needed = tiny_model(architecture), [], torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [0] * 4]).bool()
    for given in (None, needed):
        engine = Engine(model, 3, 16, [])
        slots = torch.arange(4).expand(3, -1)
        tokens = torch.tensor([[1, 5, 6, 7], [1, 9, 4, 9], [1, 4, 4, 4]])
        with torch.inference_mode():
            engine.forward(tokens, slots, "causal", 4)
            hidden = engine.forward(tokens + 1, slots + 4, slots.new_tensor([[5, 8, 8, 8]] * 3), 8, needed=given)
        states.append((hidden, engine.cache.committed(1, 0, 8)[0], engine.cache.committed(1, 1, 5)[1]))
    torch.testing.assert_close(states[1][0][needed], states[0][0][needed], rtol=1e-4, atol=1e-5)
    assert (states[1][0][~needed] == 0).all()
    torch.testing.assert_close(states[1][1:], states[0][1:], rtol=1e-4, atol=1e-5)


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
    sliding = tiny_model("qwen3")
    sliding.config.layer_types = ["sliding_attention", "full_attention"]
    assert not is_supported(sliding)
