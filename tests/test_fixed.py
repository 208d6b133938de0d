"""Passes of fixed shapes: the same text as without, few shapes, kept for the next call, one line for what cannot be."""

from __future__ import annotations

import pytest
import torch

from sbd.decoding import Autoregressive, LongestPrefix, SelfSpeculative, SetBlock, fixed, generate
from sbd.errors import UserError
from sbd.samplers import EntropyBound
from tests.decoding.helpers import DECODERS, ENDS, EOS, LENGTHS, by_row, prompts, tiny_model


def replayed(body, buffers):
    """Behaves as a CUDA graph does: reads the buffers where they lie, and overwrites what it returned before."""
    out = body(*buffers)

    def replay():
        out.copy_(body(*buffers))
        return out

    return replay


@pytest.fixture
def captured(monkeypatch):
    """Widths of the passes that were captured, in place of compiling them."""
    widths = []

    def capture(body, buffers):
        widths.append(buffers[0].shape[1])
        return replayed(body, buffers)

    monkeypatch.setattr(fixed, "_compiled", capture)
    return widths


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
def test_text_and_passes_are_those_of_eager_execution(architecture, decoder, captured):
    model = tiny_model(architecture)
    for lengths in (LENGTHS, [5]):
        options = {"max_new_tokens": 15, "eos_token_id": ENDS}
        eager = generate(model, prompts(lengths), decoder, **options)
        assert by_row(generate(model, prompts(lengths), decoder, execution="compile", **options)) == by_row(eager)
    assert captured


@pytest.mark.parametrize(
    ("decoder", "widths"),
    [
        (Autoregressive(), {1}),
        (SetBlock(4, EntropyBound(0.8)), {4, 8}),
        (SetBlock((2, 5), EntropyBound(0.8)), {5, 10}),
        (LongestPrefix(4, 0.4), {4, 8}),
        (SelfSpeculative(4, 2), {12, 5}),
    ],
    ids=repr,
)
def test_shapes_are_few_and_kept_for_the_next_call(decoder, widths, captured):
    model = tiny_model()
    for seed in range(6):
        generate(model, prompts([5, 9, 7], seed=seed), decoder, 40, eos_token_id=EOS, execution="compile")
    assert len(captured) == len(set(captured))
    assert set(captured) <= widths
    model.double()
    before = len(captured)
    generate(model, prompts([5, 9, 7]), decoder, 40, eos_token_id=EOS, execution="compile")
    assert len(captured) > before  # new weights: what was captured reads the old ones


def test_decoders_and_batch_sizes_that_alternate_keep_what_was_captured(captured):
    """Their caches differ in length too, by what a block overhangs: 64 and 128 slots."""
    model = tiny_model()
    calls = [(decoder, size) for decoder in (Autoregressive(), SetBlock(24, EntropyBound(0.8))) for size in (1, 2)]
    counts = []
    for _ in range(3):
        for decoder, size in calls:
            generate(model, prompts([5] * size), decoder, 12, execution="compile")
        counts.append(len(captured))
    assert counts[0] >= len(calls)
    assert counts == [counts[0]] * 3
    generate(model, prompts([5] * 3), Autoregressive(), 12, execution="compile")  # the fifth: one has to go
    assert len(fixed._kept[model]) == len(calls)
    generate(model, prompts([5] * 2), calls[-1][0], 12, execution="compile")
    before = len(captured)
    generate(model, prompts([5]), Autoregressive(), 12, execution="compile")  # that one
    assert len(captured) == before + 1


def test_calls_with_one_cache_length_share_what_was_captured(captured):
    model = tiny_model()
    for most in (8, 80, 150):
        generate(model, prompts([5]), Autoregressive(), most, execution="compile", cache_length=200)
    assert captured == [1]
    generate(model, prompts([5]), Autoregressive(), 8, execution="compile")
    assert captured == [1, 1]


def test_a_callback_may_decode_with_the_same_model(captured):
    model, seen = tiny_model(), []
    rows = prompts([5])

    def on_tokens(row, tokens):
        seen.append(generate(model, rows, Autoregressive(), 6, execution="compile").tokens)

    out = generate(model, rows, Autoregressive(), 6, execution="compile", on_tokens=on_tokens)
    assert seen == [out.tokens] * 6
    assert out.tokens == generate(model, rows, Autoregressive(), 6).tokens


def test_torch_compile_traces_a_pass_whole(monkeypatch):
    """No break of the graph, with the compiler's own back end left out, which takes long."""
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda body, **more: compile(body, backend="eager", fullgraph=True, **more))
    model, decoder = tiny_model(), SetBlock(4, EntropyBound(0.8))
    out = generate(model, prompts(LENGTHS), decoder, 15, eos_token_id=ENDS, execution="compile")
    assert by_row(out) == by_row(generate(model, prompts(LENGTHS), decoder, 15, eos_token_id=ENDS))


def test_what_cannot_be_is_one_line():
    hooked = tiny_model()
    hooked.model.layers[0].register_forward_hook(lambda module, args, output: None)
    for model, execution, words in (
        (tiny_model(), "fast", "execution must be one of eager, compile, graphs"),
        (tiny_model(), "graphs", "need a model on a GPU"),
        (hooked, "compile", "plain Llama and Qwen3"),
    ):
        with pytest.raises(UserError, match=words) as caught:
            generate(model, prompts([5]), Autoregressive(), 4, execution=execution)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
