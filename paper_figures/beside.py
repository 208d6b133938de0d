"""Accuracy against forward passes, measured above and reported below: the page that figures 5, 12 and 13 share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import command, inputs, style
from paper_figures import reported as of_paper
from paper_figures.labels import benchmark_label, model_label
from sbd.config import Experiment
from sbd.experiment_files import load_experiment

WIDTH = 2
"""Panels in a row."""


@dataclass(frozen=True)
class Page:
    """measured: (panel, rows of one model and benchmark); reported: (panel, points of one benchmark of the paper)."""

    figure: Figure
    measured: list[tuple[Axes, pd.DataFrame]]
    reported: list[tuple[Axes, pd.DataFrame]]


def page(experiment: Experiment, rows: pd.DataFrame, reported: pd.DataFrame, height: float) -> Page:
    """Empty panels with their titles; ``height`` in inches of a row of them. reported: with a column n of problems."""
    found = [
        (model, benchmark, part)
        for benchmark in inputs.unique(rows, "benchmark")
        for model in inputs.unique(rows, "model")
        if not (part := inputs.where(rows, model=model, benchmark=benchmark)).empty
    ]
    names = inputs.unique(reported, "benchmark")
    above = min(WIDTH, len(found))
    lines = -(-len(found) // above)
    figure = plt.figure(figsize=(style.PAGE, height * (lines + 1) + 0.3))
    grid = figure.add_gridspec(lines + 1, above * len(names))
    measured = []
    for index, (model, benchmark, part) in enumerate(found):
        line, column = divmod(index, above)
        axes = figure.add_subplot(grid[line, column * len(names) : (column + 1) * len(names)])
        label = benchmark_label(experiment, benchmark, int(part["n"].iloc[0]))
        axes.set_title(f"{label}, {model_label(experiment, model)}")
        measured.append((axes, part))
    below = []
    for index, name in enumerate(names):
        axes = figure.add_subplot(grid[lines, index * above : (index + 1) * above])
        part = inputs.where(reported, benchmark=name)
        title = of_paper.benchmark(name, {str(b): int(n) for b, n in zip(part["benchmark"], part["n"], strict=True)})
        axes.set_title(f"reported by the paper: {title}, 3B")
        axes.set_xlabel("forward passes per problem")
        below.append((axes, part))
    for axes, _ in (*measured[::above], *below[:1]):
        axes.set_ylabel("score (%)")
    if below:
        # What is measured counts other passes than the paper: its axis needs a name of its own.
        for axes, _ in measured[-above:]:
            axes.set_xlabel("forward passes per problem")
    return Page(figure, measured, below)


def main(
    name: str,
    doc: str | None,
    section: Callable[[Experiment], Any],
    draw: Callable[..., Figure],
    text: Sequence[str],
    empty: Sequence[str],
    arguments: Sequence[str] | None,
) -> list[Path]:
    """Command line of such a figure: records.csv and the reported points -> ``name``.pdf and .png.

    text, empty: columns of the reported points that are text, and that may be empty.
    """
    parser = command.parser(
        doc, records="records.csv of `python -m sbd collect`", reported="folder of the paper's numbers"
    )
    options = parser.parse_args(arguments)
    experiment = load_experiment(options.experiment)
    chosen = command.required(section(experiment), name, options.experiment)
    reported = inputs.read_csv(
        options.reported / f"{name}.csv",
        [*text, "mean_nfe", "accuracy_percent", *empty],
        text,
        of_paper.HOW,
        empty=empty,
    )
    counts = of_paper.problems(options.reported)
    reported["n"] = [counts[str(benchmark)] for benchmark in reported["benchmark"]]
    with style.house_style():
        figure = draw(experiment, inputs.read_records(options.records, experiment), reported, chosen, options.partial)
        return style.save(figure, options.output, name)
