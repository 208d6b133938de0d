"""What all figures share: the style file, widths, one look per name, the note below, and files without a date."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from sbd.errors import UserError
from sbd.files import replacing

STYLE = Path(__file__).with_name("sbd-style.mplstyle")
COLUMN = 3.4
"""Width in inches of one column of a two-column page."""
PAGE = 6.8
"""Width in inches of the text of a page."""


@contextmanager
def house_style() -> Iterator[None]:
    """Draw with the style file of this folder and nothing of the user's own settings."""
    with plt.rc_context():
        matplotlib.rcdefaults()
        plt.style.use(STYLE)
        yield
    plt.close("all")


def looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour, marker and dash for each name, in their order; equal names get one look, others never.

    After one round of colours each comes again with the marker and dash of its neighbour, then of the next one.
    """
    cycle = list(matplotlib.rcParams["axes.prop_cycle"])
    unique, size = list(dict.fromkeys(names)), len(cycle)
    if len(unique) > size**2:
        raise UserError(f"{len(unique)} curves cannot be told apart, {size**2} can; show fewer of them")
    found = {}
    for index, name in enumerate(unique):
        other = cycle[(index + index // size) % size]
        found[name] = {**other, "color": cycle[index % size]["color"]}
    return found


def crossed(colours: Iterable[str], shapes: Iterable[str]) -> dict[str, dict[str, Any]]:
    """A look for each ``colour/shape``: one colour name, one colour; one shape name, one marker and dash."""
    cycle = list(matplotlib.rcParams["axes.prop_cycle"])
    first, second = list(dict.fromkeys(colours)), list(dict.fromkeys(shapes))
    if max(len(first), len(second)) > len(cycle):
        raise UserError(f"{len(first)} x {len(second)} curves cannot be told apart; show fewer of them")
    return {
        f"{one}/{other}": {**form, "color": colour["color"]}
        for one, colour in zip(first, cycle, strict=False)
        for other, form in zip(second, cycle, strict=False)
    }


def note(figure: Figure, text: str, warning: str | None = None) -> None:
    """A line below the figure: scale, counts, what the bars mean; and, in bold, what is missing from it."""
    # A character of this size is about a twentieth of an inch wide.
    width = int(figure.get_figwidth() * 21)
    text = "\n".join(line for part in (text, warning) if part for line in textwrap.wrap(part, width))
    figure.supxlabel(text, fontsize=6, color="#A00000" if warning else "#606060", x=0.995, ha="right")


def save(figure: Figure, folder: str | Path, name: str) -> list[Path]:
    """Write ``folder/name.pdf`` and ``.png``, atomically; the same data give the same bytes (no dates inside)."""
    paths = []
    for suffix, metadata in ((".pdf", {"CreationDate": None, "ModDate": None}), (".png", {"Software": None})):
        path = Path(folder) / f"{name}{suffix}"
        with replacing(path) as temporary:
            figure.savefig(temporary, metadata=metadata)
        paths.append(path)
    return paths
