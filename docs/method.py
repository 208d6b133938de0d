"""Draw docs/method.svg: the same eight tokens by next-token prediction and by Set Block Decoding.

``python docs/method.py`` writes the picture beside this file.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

TOKENS = ["Ben", "has", "4", "+", "3", "=", "7", "eggs"]
REVEALED = [1, 1, 2, 1, 2, 1, 3, 1]
"""The pass of set block decoding that reveals each token: sure words first, the result last."""

WIDTH, HEIGHT, GAP, BREAK = 62, 34, 6, 20
LEFT, TOP = 150, 40
INK, FRESH, KNOWN, MASK = "#1f2933", "#2a78b5", "#d7e6f3", "#eceff1"


def cell(column: int, y: int, text: str, fill: str, color: str) -> str:
    """A slot of the text."""
    x = LEFT + column * (WIDTH + GAP)
    return (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="{fill}"/>'
        f'<text x="{x + WIDTH / 2}" y="{y + 22}" text-anchor="middle" fill="{color}">{escape(text)}</text>'
    )


def row(y: int, number: int, passes: list[int], unknown: str | None) -> str:
    """The text after forward pass ``number``; a token of a later pass is shown as ``unknown`` or left out."""
    parts = [f'<text x="{LEFT - 14}" y="{y + 22}" text-anchor="end" fill="{INK}">forward pass {number}</text>']
    for column, (token, revealed) in enumerate(zip(TOKENS, passes, strict=True)):
        if revealed == number:
            parts.append(cell(column, y, token, FRESH, "#ffffff"))
        elif revealed < number:
            parts.append(cell(column, y, token, KNOWN, INK))
        elif unknown is not None:
            parts.append(cell(column, y, unknown, MASK, "#9aa5b1"))
    return "\n".join(parts)


def picture() -> str:
    """The SVG as text."""
    one_by_one = list(range(1, len(TOKENS) + 1))
    parts, y = [], TOP
    panels = [
        ("Next-token prediction: one token in a forward pass, eight passes", one_by_one, (1, 2, 8), None),
        ("Set Block Decoding: a block of masks, several tokens in a pass, three passes", REVEALED, (1, 2, 3), "mask"),
    ]
    for title, passes, shown, unknown in panels:
        parts.append(f'<text x="16" y="{y - 14}" font-weight="bold" fill="{INK}">{title}</text>')
        for before, number in zip((0, *shown), shown, strict=False):
            if number > before + 1:  # passes that are left out
                parts.append(f'<text x="{LEFT - 14}" y="{y + 8}" text-anchor="end" fill="{INK}">…</text>')
                y += BREAK
            parts.append(row(y, number, passes, unknown))
            y += HEIGHT + GAP
        y += 46
    width, height = LEFT + len(TOKENS) * (WIDTH + GAP) + 12, y - 40
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="14">\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(picture(), encoding="utf-8")
