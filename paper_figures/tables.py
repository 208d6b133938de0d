"""Write one table three ways: numbers as CSV, and the same layout as Markdown and as TeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from paper_figures.labels import markdown, tex
from sbd.files import write_text


@dataclass(frozen=True)
class Layout:
    """Cells as text. groups: number of rows between two rules; empty for none. left: how many columns stand left.

    paragraphs: for TeX, by column, the share of the text width that long cells are broken at.
    below: a block with columns of its own that follows, such as the numbers that the paper reports.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    left: int = 1
    groups: Sequence[int] = ()
    below: Layout | None = None
    paragraphs: Mapping[int, float] = field(default_factory=dict)


def to_markdown(layout: Layout) -> str:
    """A pipe table, the caption below it."""
    cells = [[markdown(cell) for cell in row] for row in (layout.header, *layout.rows)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(layout.header))]
    rule = ["-" * width if column < layout.left else "-" * (width - 1) + ":" for column, width in enumerate(widths)]

    def line(row: Sequence[str]) -> str:
        padded = (
            c.ljust(w) if i < layout.left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        return f"| {' | '.join(padded)} |"

    text = "\n".join([line(cells[0]), line(rule), *map(line, cells[1:]), "", markdown(layout.caption), ""])
    return f"{text}\n{to_markdown(layout.below)}" if layout.below else text


def to_tex(layout: Layout) -> str:
    """A tabular (package booktabs); a rule after each group; the caption as a comment."""
    plain = "l" * layout.left + "r" * (len(layout.header) - layout.left)
    shares = layout.paragraphs
    columns = "".join(
        rf"p{{{shares[index]:g}\linewidth}}" if index in shares else one for index, one in enumerate(plain)
    )
    ends = {sum(layout.groups[: i + 1]) for i in range(len(layout.groups) - 1)}
    lines = [f"% {layout.caption}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    lines += [" & ".join(map(tex, layout.header)) + r" \\", r"\midrule"]
    for index, row in enumerate(layout.rows, start=1):
        lines.append(" & ".join(map(tex, row)) + r" \\")
        if index in ends:
            lines.append(r"\midrule")
    text = "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])
    return f"{text}\n{to_tex(layout.below)}" if layout.below else text


def write(folder: str | Path, name: str, frame: pd.DataFrame, text: Layout, paper: Layout | None = None) -> list[Path]:
    """Write ``name.csv`` from ``frame``, ``.md`` from ``text`` and ``.tex`` from ``paper`` (or ``text``)."""
    paths = [Path(folder) / f"{name}{suffix}" for suffix in (".csv", ".md", ".tex")]
    write_text(paths[0], frame.to_csv(index=False, lineterminator="\n"))
    write_text(paths[1], to_markdown(text))
    write_text(paths[2], to_tex(paper or text))
    return paths
