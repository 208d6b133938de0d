"""Text as it becomes final: what the tokens so far decode to, given out piece by piece and never taken back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial

from transformers import PreTrainedTokenizerBase

from sbd.decoding.request import TokenCallback
from sbd.decoding.running_text import INCOMPLETE, RunningText
from sbd.errors import UserError

TextCallback = Callable[[int, str], None]


class TextStream:
    """A callback for tokens that hands text to ``on_text``. The pieces of a row add up to its text without specials."""

    def __init__(
        self, on_text: TextCallback, on_tokens: TokenCallback | None, tokenizer: PreTrainedTokenizerBase | None
    ):
        if tokenizer is None:
            raise UserError("on_text needs the tokenizer; pass tokenizer=..., or take tokens with on_tokens")
        self.on_text, self.on_tokens = on_text, on_tokens
        decode = partial(tokenizer.decode, skip_special_tokens=True)
        self._texts: dict[int, RunningText] = defaultdict(lambda: RunningText(decode))
        self._held: dict[int, tuple[int, str]] = {}
        """Of each row, where the part of its text that may still change starts, and that part."""
        self._given: dict[int, int] = defaultdict(int)

    def __call__(self, row: int, tokens: list[int]) -> None:
        """Tokens of a row that became final."""
        if self.on_tokens is not None:
            self.on_tokens(row, tokens)
        start, _, text = self._texts[row].add(tokens)
        self._held[row] = start, text
        self._give(row, start, text.rstrip(INCOMPLETE))

    def end(self) -> None:
        """All rows are done: what was held back is final too."""
        for row, (start, text) in self._held.items():
            self._give(row, start, text)

    def _give(self, row: int, start: int, text: str) -> None:
        """``text`` is what stands at character ``start``, at or before the end of what was given."""
        piece = text[self._given[row] - start :]
        if piece:
            self._given[row] += len(piece)
            self.on_text(row, piece)
