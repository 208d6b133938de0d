"""Streamed text: never taken back, no half character, and in sum the text of the tokens."""

from __future__ import annotations

import pytest

import sbd
from sbd.decoding.text import TextStream
from sbd.errors import UserError
from tests.conftest import random_model


def test_pieces_add_up_to_the_text(model, tokenizer) -> None:
    """A random model over bytes writes broken characters too."""
    ids = [[tokenizer.bos_token_id, *tokenizer(text)["input_ids"]] for text in ("Mia has", "Tom has 3 apples")]
    for decoder in (sbd.Autoregressive(), sbd.SetBlock(4, sbd.EntropyBound(2.0)), sbd.SelfSpeculative(4)):
        pieces: list[list[str]] = [[], []]
        tokens: list[list[int]] = [[], []]
        out = sbd.generate(
            model,
            ids,
            decoder,
            30,
            eos_token_id=tokenizer.eos_token_id,
            tokenizer=tokenizer,
            on_text=lambda row, text, pieces=pieces: pieces[row].append(text),
            on_tokens=lambda row, new, tokens=tokens: tokens[row].extend(new),
        )
        assert tokens == out.tokens
        assert ["".join(row) for row in pieces] == [tokenizer.decode(t, skip_special_tokens=True) for t in out.tokens]
        assert all(len(row) > 3 for row in pieces)


def test_a_character_of_several_tokens_comes_whole(tokenizer) -> None:
    ids = tokenizer("né 🙂!")["input_ids"]
    pieces: list[str] = []
    stream = TextStream(lambda row, text: pieces.append(text), None, tokenizer)
    for token in ids:
        stream(0, [token])
    stream.end()
    assert "".join(pieces) == "né 🙂!"
    assert len(ids) > len(pieces)  # some tokens gave no text yet
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)


def test_text_needs_the_tokenizer(tokenizer) -> None:
    with pytest.raises(UserError, match="tokenizer"):
        sbd.generate(random_model("llama", tokenizer), [[1]], on_text=lambda row, text: None)
