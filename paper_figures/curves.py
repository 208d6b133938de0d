"""One curve of points with intervals, as several figures draw it, and what its labels need to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from paper_figures.placement import Label, place_labels


@dataclass
class Marks:
    """What stands in a panel: labels to place last, and lines and large marks that they keep off."""

    labels: list[Label] = field(default_factory=list)
    lines: list[np.ndarray] = field(default_factory=list)
    stars: list[tuple[float, float]] = field(default_factory=list)
    heights: dict[str, float] = field(default_factory=dict)

    def place(self, axes: Axes) -> None:
        """Put the labels: of the upper curves above them, of the lower below, so that they do not meet between."""
        labels = self.labels
        if len(self.heights) > 1:
            middle = float(np.median(list(self.heights.values())))
            labels = [replace(label, side=1 if self.heights[label.color] > middle else -1) for label in labels]
        place_labels(axes, labels, self.lines, self.stars)


def curve(
    axes: Axes,
    marks: Marks,
    x: np.ndarray,
    y: np.ndarray,
    look: dict[str, Any],
    texts: Sequence[str | None] = (),
    low: np.ndarray | None = None,
    high: np.ndarray | None = None,
) -> None:
    """Draw points joined by a line, with vertical intervals where given, and note the labels of the points."""
    axes.plot(x, y, **look)
    marks.lines.append(np.stack([x, y], axis=1).astype(float))
    if low is not None and high is not None:
        error = np.stack([y - low, high - y])
        axes.errorbar(x, y, yerr=error, fmt="none", ecolor=look["color"], elinewidth=0.6, alpha=0.6)
        marks.lines += [np.array([[a, b], [a, c]], dtype=float) for a, b, c in zip(x, low, high, strict=True)]
    for text, a, b in zip(texts, x, y, strict=False):
        if text is not None:
            marks.labels.append(Label(float(a), float(b), text, look["color"]))
    marks.heights[look["color"]] = float(np.median(y))


def star(
    axes: Axes, marks: Marks, row: Mapping[str, Any], x: float, color: str, filled: bool = True, ring: int = 0
) -> None:
    """A reference point with the interval of its score; open ones are larger (by ``ring``): both show on one place."""
    y, low, high = (float(row[name]) for name in ("score", "score_low", "score_high"))
    axes.errorbar([x], [y], yerr=[[y - low], [high - y]], fmt="none", ecolor=color, elinewidth=0.6, alpha=0.6)
    axes.plot([x], [y], **star_look(color, filled, ring))
    marks.stars.append((x, y))
    marks.lines.append(np.array([[x, low], [x, high]]))


def star_look(color: str, filled: bool = True, ring: int = 0) -> dict[str, Any]:
    """Of a star, for the plot and its legend."""
    size = 8 if filled else 10 + 2 * ring
    return {
        "marker": "*",
        "markersize": size,
        "color": color if filled else "none",
        "markeredgecolor": "#202020" if filled else color,
        "markeredgewidth": 0.5 if filled else 0.8,
        "linestyle": "",
        "zorder": 4 + ring,
    }
