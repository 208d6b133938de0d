"""Only the slots that a pass may reveal go through the LM head on a CPU, and the text is that of all of them."""

import pytest
import torch

from sbd.decoding import SetBlock, engine, generate
from sbd.decoding.blocks import Look
from sbd.decoding.engine import Engine
from sbd.samplers import ConfidenceThreshold, EntropyBound, TopK
from tests.decoding.helpers import EOS, LENGTHS, by_row, prompts, tiny_model


@pytest.fixture(autouse=True)
def pays_at_any_size(monkeypatch):
    monkeypatch.setattr(engine, "_PICK_ABOVE", 0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "decoder",
    [
        SetBlock(4, EntropyBound(0.8)),
        SetBlock(4, EntropyBound(0.8, "margin"), first_token="next_token"),
        SetBlock(6, ConfidenceThreshold(0.9), first_token="next_token", commit="separate"),
        SetBlock((2, 5), TopK(2), commit="separate"),
    ],
    ids=repr,
)
def test_a_text_is_that_of_all_slots(decoder, temperature, monkeypatch):
    model, rows, picked = tiny_model(), prompts(LENGTHS), []
    options = {"eos_token_id": EOS, "temperature": temperature, "seed": 5, "num_samples": 2, "record_entropy": True}
    plain = Look.states
    monkeypatch.setattr(Look, "states", lambda look, hidden: picked.append(look.positions()[0]) or plain(look, hidden))
    out = generate(model, rows, decoder, 14, **options)
    assert any(len(positions) > 1 and {len(of_row) for of_row in positions} == {1} for positions in picked)
    monkeypatch.setattr(Engine, "picks", lambda *_: False)
    every = generate(model, rows, decoder, 14, **options)
    assert by_row(out) == by_row(every)
    for ours, theirs in zip(out.entropies or [], every.entropies or [], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)


def test_no_other_slot_goes_through_the_head(monkeypatch):
    model, rows = tiny_model(), prompts([5, 9])
    plain, seen = torch.nn.Linear.forward, []

    def counted(layer, x):
        seen.append(x.shape[:-1].numel())
        return plain(layer, x)

    monkeypatch.setattr(torch.nn.Linear, "forward", counted)  # of the head: the layers are written out
    generate(model, rows, SetBlock(8, TopK(2)), max_new_tokens=16, eos_token_id=None)
    assert seen == 2 * [2 * 8, 2 * 6, 2 * 4, 2 * 2]  # of 8 slots of two rows, two revealed in each pass
    seen.clear()
    # A function of one's own is given the whole block.
    generate(model, rows, SetBlock(8, lambda logits, masked: TopK(2)(logits, masked)), 16, eos_token_id=EOS)
    assert set(seen) == {2 * 8}
    seen.clear()
    generate(model, rows, SetBlock(8, TopK(4), commit="separate"), max_new_tokens=16, eos_token_id=None)
    assert seen == 2 * [2 * 8, 2 * 4]  # nothing in the pass between, which only commits
