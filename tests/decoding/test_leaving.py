"""On a CPU rows that are done leave the batch, and nothing changes for the others."""

import pytest
import torch

from sbd.decoding import Autoregressive, LongestPrefix, SelfSpeculative, SetBlock, generate
from sbd.decoding.engine import Engine
from sbd.samplers import EntropyBound
from tests.decoding.helpers import ENDS, LENGTHS, by_row, prompts, tiny_model

DECODERS = [
    Autoregressive(),
    SetBlock(4, EntropyBound(0.8)),
    SetBlock((2, 5), EntropyBound(0.8), first_token="next_token", commit="separate"),
    LongestPrefix(4, 0.4),
    SelfSpeculative(4, 2),
    SelfSpeculative(4, 0),
]


@pytest.fixture
def batches(monkeypatch):
    """How many rows each pass was for."""
    seen, in_line = [], Engine.line

    def of_rows(run):
        def forward(engine, tokens, *inputs, **named):
            seen.append(len(tokens))
            return run(engine, tokens, *inputs, **named)

        return forward

    def line(engine, tokens, positions, places, limit, widths, *inputs):
        seen.append(len(widths))
        return in_line(engine, tokens, positions, places, limit, widths, *inputs)

    monkeypatch.setattr(Engine, "prefill", of_rows(Engine.prefill))
    monkeypatch.setattr(Engine, "forward", of_rows(Engine.forward))
    monkeypatch.setattr(Engine, "line", line)
    return seen


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "theirs"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
@pytest.mark.filterwarnings("ignore:LongestPrefix is for models")
def test_a_text_is_that_of_a_batch_that_stays(decoder, temperature, direct, batches, monkeypatch):
    monkeypatch.setattr(Engine, "direct", direct)
    model, rows, handed = tiny_model(), prompts(LENGTHS), []
    options = {"eos_token_id": ENDS, "temperature": temperature, "seed": 3, "num_samples": 2, "record_entropy": True}
    options |= {
        "stop": lambda tokens: len(tokens) > 9,
        "on_tokens": lambda row, tokens: handed[-1].append((row, tokens)),
    }
    handed.append([])
    out = generate(model, rows, decoder, 12, **options)
    most = 2 * len(rows)
    assert batches[0] == most
    assert batches == sorted(batches, reverse=True)
    assert len(set(batches)) > 2
    batches.clear()
    monkeypatch.setattr(Engine, "leave_done", lambda engine, is_running: None)
    handed.append([])
    stayed = generate(model, rows, decoder, 12, **options)
    assert set(batches) == {most}
    assert by_row(out) == by_row(stayed)
    assert (out.finish_reasons, out.block_starts) == (stayed.finish_reasons, stayed.block_starts)
    assert sorted(handed[0], key=lambda part: part[0]) == sorted(handed[1], key=lambda part: part[0])
    for ours, theirs in zip(out.entropies or [], stayed.entropies or [], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)


def test_the_last_rows_take_the_places_of_those_that_leave():
    engine = Engine(tiny_model(), 5, 6, [])
    with torch.inference_mode():
        engine.prefill(torch.arange(15).view(5, 3) + 1)
        before = [engine.cache.committed(1, row, 3) for row in range(5)]
        before = [(keys.clone(), values.clone()) for keys, values in before]
        assert engine.leave_done([True] * 5) is None
        assert engine.leave_done([True, False, True, False, True]) == [0, 4, 2]
        for place, row in enumerate([0, 4, 2]):
            for ours, theirs in zip(engine.cache.committed(1, place, 3), before[row], strict=True):
                assert torch.equal(ours, theirs)
        assert engine.leave_done([False, False, True]) == [2]
        assert torch.equal(engine.cache.committed(1, 0, 3)[0], before[2][0])
