"""The text of tokens while they come, without decoding all of them every time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer shows for the first bytes of a character whose others are in tokens to come."""

_CONTEXT = 8
"""Tokens, at least, that are decoded before new ones: a tokenizer treats the beginning of a text in its own way."""
_WINDOW = 32
"""From so many on, the tokens decoded again and again are cut down to the context."""


class RunningText:
    """The text of a growing list of tokens, always as ``decode`` of all of them gives it.

    Text is settled once it does not end in a character that may be incomplete. From then on only some tokens before its
    end are decoded with the new ones, and what they gave before is taken off. Should they now give something else there
    (byte tokens are one character or none, a space before a comma may go), all is decoded anew. reach: characters of
    settled text to remember.
    """

    def __init__(self, decode: Callable[[list[int]], object], reach: int = 0):
        self.tokens: list[int] = []
        self._decode, self._reach = decode, reach
        self._marks = [0]
        """Where text was settled: the first is where decoding starts, the last the number of tokens settled."""
        self._head = ""
        """What the tokens from the first mark to the last one give."""
        self._length, self._before = 0, ""

    def add(self, tokens: Sequence[int]) -> tuple[int, str, str]:
        """Take in further tokens. Returns (n, before, text): the text is now the first n characters of what was last
        settled and then ``text``; ``before`` are the last of these n characters, ``reach`` of them at most.
        """
        self.tokens += tokens
        window = str(self._decode(self.tokens[self._marks[0] :]))
        if window.startswith(self._head):
            found = self._length, self._before, window[len(self._head) :]
        else:
            found = 0, "", str(self._decode(self.tokens))
        if not found[2].endswith(INCOMPLETE):
            self._settle(window, *found)
        return found

    def _settle(self, window: str, length: int, before: str, text: str) -> None:
        self._length = length + len(text)
        shown = before + text
        self._before = shown[max(0, len(shown) - self._reach) :]
        self._marks.append(len(self.tokens))
        self._head = window
        if len(self.tokens) - self._marks[0] > _WINDOW:
            marks = self._marks
            while len(self.tokens) - marks[1] >= _CONTEXT:
                marks = marks[1:]
            head = str(self._decode(self.tokens[marks[0] :]))
            if head.strip():  # else the tokens of the context are special ones, or spaces, and no beginning
                self._marks, self._head = marks, head
