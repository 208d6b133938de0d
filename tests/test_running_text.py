"""Text while it grows: always what decoding all tokens gives, stop strings too, with work that does not grow."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from sbd.decoding import Autoregressive, SelfSpeculative, SetBlock, generate, request
from sbd.decoding.running_text import INCOMPLETE, RunningText
from sbd.decoding.text import TextStream
from sbd.samplers import EntropyBound
from tests.decoding.helpers import prompts, tiny_model

SAMPLES = [
    "Tom has 3 apples , and buys 2 more .\n",
    "né 🙂🙂! ",
    "数は三です。",
    "a\u200d👩‍👩‍👧 ",
    "  don 't  ",
    "\N{REPLACEMENT CHARACTER}x",
]
BYTES = 8


def sentencepiece() -> Any:
    """As Llama 2: a space before a word is part of it, the first one is dropped, and unknown characters are bytes.

    Bytes in a row are decoded together: if any of them is wrong, all of them are.
    """
    pieces = ["<unk>", "<s>", "</s>", "▁", "▁a", "b", ".", "▁,", *(f"<0x{byte:02X}>" for byte in range(256))]
    inner = Tokenizer(
        models.BPE(vocab={piece: n for n, piece in enumerate(pieces)}, merges=[], byte_fallback=True, unk_token="<unk>")
    )
    strip = decoders.Strip(" ", 1, 0)
    inner.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip])
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


class Tidy:
    """Letters; a space before a comma goes, which takes back text that was shown before."""

    def __len__(self) -> int:
        return 5

    def decode(self, tokens: list[int], skip_special_tokens: bool = False) -> str:
        return "".join("ab ,\N{REPLACEMENT CHARACTER}"[token] for token in tokens).replace(" ,", ",")


def streams(name: str, tokenizer: Any) -> tuple[Any, list[list[int]]]:
    """A tokenizer and lists of tokens: text of all kinds, and tokens at random, among them broken characters."""
    draw = random.Random(0)
    if name == "bytes":
        texts = ["".join(draw.choices(SAMPLES, k=12)) for _ in range(6)]
        found = [tokenizer(text)["input_ids"] for text in texts]
    else:
        tokenizer = sentencepiece() if name == "sentencepiece" else Tidy()
        found = []
    if name == "sentencepiece":
        for _ in range(6):
            found.append([])
            for sample in draw.choices(SAMPLES, k=12):
                found[-1] += draw.choices([1, 2, 3, 4, 5, 6, 7], k=5)
                found[-1] += [BYTES + byte for byte in sample.encode()]
    return tokenizer, found + [draw.choices(range(len(tokenizer)), k=150) for _ in range(6)]


NAMES = ["bytes", "sentencepiece", "tidy"]


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_text_is_that_of_all_tokens_at_every_step(name: str, skip: bool, tokenizer: Any) -> None:
    tokenizer, found = streams(name, tokenizer)
    draw, settled = random.Random(1), 0
    for tokens in found:
        for most in (1, 5):
            running, text, at = RunningText(lambda part: tokenizer.decode(part, skip_special_tokens=skip), 4), "", 0
            while at < len(tokens):
                step = draw.randint(1, most)
                kept, before, new = running.add(tokens[at : at + step])
                at += step
                whole = tokenizer.decode(tokens[:at], skip_special_tokens=skip)
                assert text[:kept] + new == whole
                assert before == text[max(0, kept - 4) : kept]
                settled += kept > 0
                if not new.endswith(INCOMPLETE):
                    text = whole
    assert settled > 1000


@pytest.mark.parametrize("name", NAMES)
def test_stop_strings_end_a_row_where_the_whole_text_first_holds_one(name: str, tokenizer: Any) -> None:
    """The rule by decoding every beginning anew."""
    tokenizer, found = streams(name, tokenizer)
    draw, ended = random.Random(2), 0
    for tokens in found:
        texts = [tokenizer.decode(tokens[:n]) for n in range(1, len(tokens) + 1)]
        for _ in range(8):
            places = [draw.randrange(len(texts[-1])) for _ in range(2)]
            strings = [texts[-1][place : place + draw.randint(1, 6)] for place in places]
            expected = next((n for n, text in enumerate(texts, 1) if any(s in text for s in strings)), None)
            make = request.stop_test(strings, tokenizer)
            assert make is not None
            holds, other = make(), make()
            other(tokens[5:6])  # another row, which must not matter
            assert next((n for n in range(1, len(tokens) + 1) if holds(tokens[:n])), None) == expected
            ended += expected is not None and expected > 20
    assert ended > 10


@pytest.mark.parametrize("name", NAMES)
def test_pieces_are_those_of_the_whole_text(name: str, tokenizer: Any) -> None:
    """As by the rule: what is new of the text of all tokens, but for characters at its end that may be incomplete."""
    tokenizer, found = streams(name, tokenizer)
    draw = random.Random(3)
    for tokens in found:
        pieces: list[str] = []
        stream = TextStream(lambda row, text, pieces=pieces: pieces.append(text), None, tokenizer)
        expected: list[str] = []
        at = given = 0
        while at < len(tokens):
            step = draw.randint(1, 4)
            stream(0, tokens[at : at + step])
            at += step
            text = tokenizer.decode(tokens[:at], skip_special_tokens=True)
            closed = [text.rstrip(INCOMPLETE)]
            for whole in closed if at < len(tokens) else [*closed, text]:
                if piece := whole[given:]:
                    expected.append(piece)
                    given += len(piece)
        stream.end()
        assert pieces == expected


def test_the_work_per_token_does_not_grow(tokenizer: Any) -> None:
    ids = tokenizer("".join(SAMPLES) * 40)["input_ids"]
    assert len(ids) > 2000
    decoded = 0

    class Counting:
        def decode(self, tokens: list[int], **options: Any) -> str:
            nonlocal decoded
            decoded += len(tokens)
            return tokenizer.decode(tokens, **options)

    counting: Any = Counting()
    make = request.stop_test(["never"], counting)
    assert make is not None
    holds, grown = make(), []
    for token in ids:
        grown.append(token)
        assert not holds(grown)
    assert decoded < 40 * len(ids)
    decoded = 0
    stream = TextStream(lambda row, text: None, None, counting)
    for token in ids:
        stream(0, [token])
    assert decoded < 40 * len(ids)


@pytest.mark.parametrize(
    "decoder", [Autoregressive(), SetBlock(4, EntropyBound(0.8)), SelfSpeculative(4)], ids=["ar", "set", "self"]
)
def test_only_new_tokens_are_read_to_the_host(decoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read, tolist, cpu = 0, torch.Tensor.tolist, torch.Tensor.cpu

    def count(plain: Any) -> Any:
        def counted(tensor: torch.Tensor) -> Any:
            nonlocal read
            read += tensor.numel()
            return plain(tensor)

        return counted

    model, amounts = tiny_model(), []
    monkeypatch.setattr(torch.Tensor, "tolist", count(tolist))
    monkeypatch.setattr(torch.Tensor, "cpu", count(cpu))
    for on_tokens in (None, lambda row, tokens: None):
        read = 0
        out = generate(model, prompts([5, 9]), decoder, 60, on_tokens=on_tokens)
        amounts.append(read)
    assert amounts[1] - amounts[0] <= 2 * (1 + 4) * out.model_passes


def test_a_test_of_tokens_may_keep_what_it_is_given() -> None:
    kept: list[list[int]] = []

    def stop(tokens: list[int]) -> bool:
        kept.append(tokens)
        return len(tokens) == 7

    out = generate(tiny_model(), prompts([5]), SetBlock(4, EntropyBound(0.8)), 20, stop=stop)
    assert kept == [out.tokens[0][:n] for n in range(1, 8)]
