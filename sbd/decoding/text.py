"""Text as it becomes final: what the tokens so far decode to, given out piece by piece and never taken back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from transformers import PreTrainedTokenizerBase

from sbd.decoding.request import TokenCallback
from sbd.errors import UserError

TextCallback = Callable[[int, str], None]

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer shows for the first bytes of a character whose others are in tokens to come."""


class TextStream:
    """A callback for tokens that hands text to ``on_text``. The pieces of a row add up to its text without specials."""

    def __init__(
        self, on_text: TextCallback, on_tokens: TokenCallback | None, tokenizer: PreTrainedTokenizerBase | None
    ):
        if tokenizer is None:
            raise UserError("on_text needs the tokenizer; pass tokenizer=..., or take tokens with on_tokens")
        self.on_text, self.on_tokens, self.tokenizer = on_text, on_tokens, tokenizer
        self._tokens: dict[int, list[int]] = defaultdict(list)
        self._given: dict[int, int] = defaultdict(int)

    def __call__(self, row: int, tokens: list[int]) -> None:
        """Tokens of a row that became final."""
        if self.on_tokens is not None:
            self.on_tokens(row, tokens)
        self._tokens[row] += tokens
        self._give(row, self._text(row).rstrip(_INCOMPLETE))

    def end(self) -> None:
        """All rows are done: what was held back is final too."""
        for row in self._tokens:
            self._give(row, self._text(row))

    def _text(self, row: int) -> str:
        return str(self.tokenizer.decode(self._tokens[row], skip_special_tokens=True))

    def _give(self, row: int, text: str) -> None:
        piece = text[self._given[row] :]
        if piece:
            self._given[row] += len(piece)
            self.on_text(row, piece)
