"""Put small labels beside points so that they hide neither each other nor the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox


@dataclass(frozen=True)
class Label:
    """Text for the point (x, y) in data coordinates; side +1 prefers to stand above it, -1 below, 0 anywhere."""

    x: float
    y: float
    text: str
    color: str
    side: int = 0


def place_labels(
    axes: Axes,
    labels: Sequence[Label],
    lines: Sequence[np.ndarray] = (),
    marks: Sequence[tuple[float, float]] = (),
    size: float = 6,
) -> None:
    """Annotate each label at the free place nearest to its point; a far one gets a thin line.

    lines: polylines ``[points, 2]`` in data coordinates that labels should not lie on (curves, error bars).
    marks: larger marks to keep off; the labelled points always are. The layout of the figure is fixed by this call,
    so draw everything else before.
    """
    figure = axes.figure
    if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):  # type: ignore[union-attr]
        FigureCanvasAgg(figure).draw()  # type: ignore[arg-type]
        figure.set_layout_engine("none")  # type: ignore[union-attr]
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    pixel = figure.dpi / 72  # type: ignore[operator]
    inside = axes.get_window_extent(renderer).padded(2 * pixel)
    points = axes.transData.transform([(label.x, label.y) for label in labels]) if labels else np.empty((0, 2))
    path = np.concatenate([_dense(axes.transData.transform(line), pixel) for line in lines] or [np.empty((0, 2))])
    stars = axes.transData.transform(marks) if len(marks) else np.empty((0, 2))
    legend = axes.get_legend()
    taken: list[Bbox] = [legend.get_window_extent(renderer)] if legend else []
    crowd = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1)) < 20 * pixel
    for index in np.argsort(-crowd.sum(axis=1), kind="stable"):
        label, point = labels[index], points[index]
        artist = axes.annotate(
            label.text,
            (label.x, label.y),
            (0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=size,
            color=tuple(0.7 * part for part in to_rgb(label.color)),
            path_effects=[withStroke(linewidth=1.2, foreground="white")],
            annotation_clip=False,
        )
        box = artist.get_window_extent(renderer)
        half = np.array([box.width, box.height]) / 2
        best, best_cost = (0.0, 0.0), math.inf
        for gap in (3.5, 8.0, 13.0, 18.0, 24.0):
            if best_cost <= gap:
                break  # no place at this distance or farther can cost less
            for step in range(24):
                direction = np.array([math.cos(step * math.pi / 12), math.sin(step * math.pi / 12)])
                # The centre for which the box just touches a circle of radius `gap` around the point.
                offset = direction * gap * pixel + direction * half
                low, high = point + offset - half, point + offset + half
                here = Bbox([low, high])
                cost = gap + 6 * max(0.0, 0.3 - label.side * direction[1]) * abs(label.side)
                cost += sum(400 for other in taken if here.overlaps(other))
                cost += 0 if inside.containsx(low[0]) and inside.containsx(high[0]) else 1000
                cost += 0 if inside.containsy(low[1]) and inside.containsy(high[1]) else 1000
                cost += 60 * _inside(points, low - 2 * pixel, high + 2 * pixel)
                cost += 60 * _inside(stars, low - 4 * pixel, high + 4 * pixel)
                cost += 1.5 * _inside(path, low, high)
                if cost < best_cost:
                    best, best_cost = tuple(offset / pixel), cost
        artist.set_position(best)
        taken.append(Bbox([point + np.array(best) * pixel - half, point + np.array(best) * pixel + half]))
        if math.hypot(*np.maximum(np.abs(best) - half / pixel, 0)) > 6:
            axes.plot(
                *np.stack([point, point + np.array(best) * pixel * 0.75]).T,
                transform=None,
                color=label.color,
                linewidth=0.4,
                linestyle="-",
                marker="",
                zorder=1.5,
                scalex=False,
                scaley=False,
            )


def _inside(points: np.ndarray, low: np.ndarray, high: np.ndarray) -> int:
    return int(np.sum(np.all((points > low) & (points < high), axis=1)))


def _dense(line: np.ndarray, pixel: float) -> np.ndarray:
    """Points along a polyline in pixels, two typographic points apart."""
    parts = [line]
    for start, end in pairwise(line):
        count = max(2, int(np.hypot(*(end - start)) / (2 * pixel)))
        parts.append(start + (end - start) * np.linspace(0, 1, count)[:, None])
    return np.concatenate(parts)
