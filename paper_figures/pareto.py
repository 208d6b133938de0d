"""Accuracy against tokens per forward pass, one panel per benchmark, one curve per model over the grid of gamma.

Stars stand at one token per forward pass: next-token decoding of the baseline (filled) and of the other runs (open).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from paper_figures import command, inputs, style
from paper_figures.labels import benchmark_label, mathtext, model_label, number, run_label, strength
from paper_figures.placement import Label, place_labels
from sbd.config import Arm, Experiment, load_experiment


def draw(experiment: Experiment, records: pd.DataFrame, partial: bool = False) -> Figure:
    """The figure from checked records; see ``inputs.rows_of`` for what is refused."""
    arms = [arm for curve in experiment.pareto.curves.values() for arm in curve] + experiment.pareto.references
    rows, missing = inputs.rows_of(records, experiment, arms, partial)
    benchmarks = list(dict.fromkeys(rows["benchmark"]))
    looks = style.looks(f"{model}/{curve}" for curve in experiment.pareto.curves for model in experiment.models)
    columns = min(2, len(benchmarks))
    height = -(-len(benchmarks) // columns)
    figure, panels = plt.subplots(
        height, columns, figsize=(style.PAGE if columns > 1 else style.COLUMN, 2.9 * height + 0.35), squeeze=False
    )
    for panel in panels.flat[len(benchmarks) :]:
        panel.axis("off")
    labels = []
    for panel, benchmark in zip(panels.flat, benchmarks, strict=False):
        of_benchmark = rows[rows["benchmark"] == benchmark].set_index(inputs.KEY[:3])
        labels.append(_panel(panel, experiment, of_benchmark, looks))
        panel.set_title(benchmark_label(experiment, benchmark, int(of_benchmark["n"].iloc[0])))
    for panel in panels[:, 0]:
        panel.set_ylabel("score (%)")
    for panel in panels[-1]:
        panel.set_xlabel("tokens per forward pass")
    handles = _legend(experiment, looks)
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 4 if columns > 1 else 2))
    kinds = {pair[0] for arm in arms if (pair := strength(experiment.decoders[arm.decoder]))}
    style.note(
        figure,
        f"scale {experiment.scale}; bars: 95% intervals over problems; small numbers: "
        + mathtext(", ".join(sorted(kinds))),
        command.partial_warning(missing),
    )
    for panel, (texts, lines, marks) in zip(panels.flat, labels, strict=False):
        place_labels(panel, texts, lines, marks)
    return figure


def _panel(
    axes: Axes, experiment: Experiment, rows: pd.DataFrame, looks: dict[str, dict[str, Any]]
) -> tuple[list[Label], list[np.ndarray], list[tuple[float, float]]]:
    """Draw one benchmark; returns the labels to place, and the lines and marks that they should keep off."""
    labels: list[Label] = []
    lines: list[np.ndarray] = []
    marks: list[tuple[float, float]] = []
    heights: dict[str, float] = {}
    for curve, arms in experiment.pareto.curves.items():
        for model in experiment.models:
            present = [arm for arm in arms if (model, arm.run, arm.decoder) in rows.index]
            if not present:
                continue
            look = looks[f"{model}/{curve}"]
            points = rows.loc[[(model, arm.run, arm.decoder) for arm in present]]
            x, y = points["tokens_per_forward"].to_numpy(), points["score"].to_numpy()
            low, high = points["score_low"].to_numpy(), points["score_high"].to_numpy()
            axes.plot(x, y, **look)
            axes.errorbar(x, y, yerr=[y - low, high - y], fmt="none", ecolor=look["color"], elinewidth=0.6, alpha=0.6)
            lines += [
                np.stack([x, y], axis=1),
                *(np.array([[a, b], [a, c]]) for a, b, c in zip(x, low, high, strict=True)),
            ]
            for arm, a, b in zip(present, x, y, strict=True):
                pair = strength(experiment.decoders[arm.decoder])
                if pair:
                    labels.append(Label(float(a), float(b), number(pair[1]), look["color"]))
            heights[look["color"]] = float(np.median(y))
    for index, arm in enumerate(experiment.pareto.references):
        for model in experiment.models:
            if (model, arm.run, arm.decoder) not in rows.index:
                continue
            row = rows.loc[(model, arm.run, arm.decoder)]
            color = looks[f"{model}/{next(iter(experiment.pareto.curves))}"]["color"]
            x, y = float(row["tokens_per_forward"]), float(row["score"])
            if index == 0:
                axes.axhline(y, color=color, linewidth=0.6, linestyle=(0, (4, 3)), alpha=0.7, marker="", zorder=1)
            axes.plot([x], [y], **_star(index, color))
            marks.append((x, y))
    _speed_axis(axes, rows["tokens_per_forward"].to_numpy())
    if len(heights) > 1:
        # Labels of the upper curve stand above it and of the lower below, so that neighbours do not meet between them.
        middle = float(np.median(list(heights.values())))
        labels = [replace(label, side=1 if heights[label.color] > middle else -1) for label in labels]
    return labels, lines, marks


def _star(index: int, color: str) -> dict[str, Any]:
    """The first reference is filled; the others are open and larger, so that both show where they coincide."""
    face = color if index == 0 else "none"
    size = 6.5 if index == 0 else 8.5 + 2 * index
    return {
        "marker": "*",
        "markersize": size,
        "color": face,
        "markeredgecolor": color,
        "linestyle": "",
        "zorder": 3 + index,
    }


def _speed_axis(axes: Axes, x: np.ndarray) -> None:
    """A logarithmic axis with plain numbers: the points of small gamma lie close together."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 64]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(min(0.88, x.min() * 0.88), x.max() * 1.15)


def _legend(experiment: Experiment, looks: dict[str, dict[str, Any]]) -> list[Line2D]:
    several = len(experiment.pareto.curves) > 1
    handles = [
        Line2D(
            [],
            [],
            **looks[f"{model}/{curve}"],
            label=f"{model_label(experiment, model)}, {curve}" if several else model_label(experiment, model),
        )
        for curve in experiment.pareto.curves
        for model in experiment.models
    ]
    for index, arm in enumerate(experiment.pareto.references):
        handles.append(Line2D([], [], **_star(index, "#404040"), label=_reference(experiment, arm)))
    return handles


def _reference(experiment: Experiment, arm: Arm) -> str:
    decoder = experiment.decoders[arm.decoder]
    return arm.label or f"{run_label(experiment, arm.run)} run, {decoder.label or arm.decoder} decoding"


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: records.csv -> pareto.pdf and .png."""
    options = command.parser(__doc__, records="records.csv of `python -m sbd collect`").parse_args(arguments)
    experiment = load_experiment(options.experiment)
    with style.house_style():
        figure = draw(experiment, inputs.read_records(options.records), options.partial)
        return style.save(figure, options.output, "pareto")


if __name__ == "__main__":
    command.run(main)
