"""Accuracy against tokens per forward pass, one panel per benchmark, one curve per model over the grid of gamma.

Stars stand at one token per forward pass: next-token decoding of the baseline (filled) and of the other runs (open).
"""

from __future__ import annotations

from collections.abc import Sequence
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
from paper_figures.curves import Marks, curve, star, star_look
from paper_figures.labels import benchmark_label, blocks_text, mathtext, model_label, number, run_label, strength
from sbd.config import Experiment
from sbd.experiment_files import load_experiment
from sbd.selection import Arm


def draw(experiment: Experiment, records: pd.DataFrame, partial: bool = False) -> Figure:
    """The figure from checked records; see ``inputs.rows_of`` for what is refused."""
    rows, missing = inputs.rows_of(records, experiment, arms(experiment), partial)
    benchmarks = inputs.unique(rows, "benchmark")
    looks = curve_looks(experiment)
    columns = min(2, len(benchmarks))
    height = -(-len(benchmarks) // columns)
    figure, panels = plt.subplots(
        height, columns, figsize=(style.PAGE if columns > 1 else style.COLUMN, 2.9 * height + 0.35), squeeze=False
    )
    for empty in panels.flat[len(benchmarks) :]:
        empty.axis("off")
    marks = []
    for axes, benchmark in zip(panels.flat, benchmarks, strict=False):
        of_benchmark = rows[rows["benchmark"] == benchmark].set_index(inputs.KEY[:3])
        marks.append(panel(axes, experiment, of_benchmark, looks))
        speed_axis(axes, of_benchmark["tokens_per_forward"].to_numpy())
        axes.set_title(benchmark_label(experiment, benchmark, int(of_benchmark["n"].iloc[0])))
    for axes in panels[:, 0]:
        axes.set_ylabel("score (%)")
    for axes in panels[-1]:
        axes.set_xlabel("tokens per forward pass")
    handles = legend(experiment, looks)
    figure.legend(handles=handles, loc="outside upper center", ncols=legend_columns(handles, columns > 1))
    kinds = {pair[0] for arm in arms(experiment) if (pair := strength(experiment.decoders[arm.decoder]))}
    style.note(
        figure,
        f"scale {experiment.scale}; {curves_text(experiment)}; bars: 95% intervals over problems; dashed: score of the "
        "filled star; small numbers: " + mathtext(", ".join(sorted(kinds))),
        command.partial_warning(missing),
    )
    for axes, found in zip(panels.flat, marks, strict=False):
        found.place(axes)
    return figure


def arms(experiment: Experiment) -> list[Arm]:
    """All arms of the curves and the references."""
    return [arm for grid in experiment.pareto.curves.values() for arm in grid] + experiment.pareto.references


def curves_text(experiment: Experiment) -> str:
    """The runs of the curves, and the block size that their names leave out."""
    grids = [arm for grid in experiment.pareto.curves.values() for arm in grid]
    runs = " / ".join(dict.fromkeys(run_label(experiment, arm.run) for arm in grids))
    size = "" if any("block" in name for name in experiment.pareto.curves) else blocks_text(experiment, grids)
    return f"curves: {runs}{size}"


def curve_looks(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """The look of each ``model/curve``: a colour for each model; for each curve, where there is one model alone."""
    models, curves = experiment.models, experiment.pareto.curves
    if len(models) == 1:
        return style.looks(f"{model}/{name}" for name in curves for model in models)
    return style.crossed(models, curves)


def panel(axes: Axes, experiment: Experiment, rows: pd.DataFrame, looks: dict[str, dict[str, Any]]) -> Marks:
    """Draw one benchmark from its rows, indexed by model, run and decoder; returns the labels still to place."""
    marks = Marks()
    for name, grid in experiment.pareto.curves.items():
        for model in experiment.models:
            present = [arm for arm in grid if (model, arm.run, arm.decoder) in rows.index]
            if not present:
                continue
            points = rows.loc[[(model, arm.run, arm.decoder) for arm in present]]
            pairs = [strength(experiment.decoders[arm.decoder]) for arm in present]
            curve(
                axes,
                marks,
                points["tokens_per_forward"].to_numpy(),
                points["score"].to_numpy(),
                looks[f"{model}/{name}"],
                [number(pair[1]) if pair else None for pair in pairs],
                points["score_low"].to_numpy(),
                points["score_high"].to_numpy(),
            )
    first = next(iter(experiment.pareto.curves))
    for index, arm in enumerate(experiment.pareto.references):
        for model in experiment.models:
            if (model, arm.run, arm.decoder) not in rows.index:
                continue
            row = inputs.row_at(rows, (model, arm.run, arm.decoder))
            color = looks[f"{model}/{first}"]["color"]
            if index == 0:
                axes.axhline(
                    row["score"], color=color, linewidth=0.6, linestyle=(0, (4, 3)), alpha=0.7, marker="", zorder=1
                )
            star(axes, marks, row, float(row["tokens_per_forward"]), color, filled=index == 0, ring=index)
    return marks


def speed_axis(axes: Axes, x: np.ndarray) -> None:
    """A logarithmic axis with plain numbers: the points of small gamma lie close together."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 64]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(min(0.85, x.min() * 0.85), x.max() * 1.15)


def curve_handles(experiment: Experiment, looks: dict[str, dict[str, Any]]) -> list[Line2D]:
    """What the curves are: the colours of the models and the shapes of the curves, where there are several of both."""
    models, curves = list(experiment.models), list(experiment.pareto.curves)
    if len(models) == 1 or len(curves) == 1:
        return [
            Line2D(
                [], [], **looks[f"{model}/{name}"], label=name if len(models) == 1 else model_label(experiment, model)
            )
            for name in curves
            for model in models
        ]
    colours = [looks[f"{model}/{curves[0]}"]["color"] for model in models]
    return [
        *(
            Line2D([], [], color=colour, marker="", linewidth=3, label=model_label(experiment, model))
            for model, colour in zip(models, colours, strict=True)
        ),
        *(Line2D([], [], **{**looks[f"{models[0]}/{name}"], "color": "#606060"}, label=name) for name in curves),
    ]


def legend_columns(handles: Sequence[Line2D], page: bool = True) -> int:
    """How many columns of a legend fit the width of a page, or of one column of it."""
    return min(len(handles), (3 if len(handles) > 8 else 4) if page else 2)


def legend(experiment: Experiment, looks: dict[str, dict[str, Any]]) -> list[Line2D]:
    """The curves, then the stars."""
    handles = curve_handles(experiment, looks)
    for index, arm in enumerate(experiment.pareto.references):
        handles.append(Line2D([], [], **star_look("#404040", index == 0, index), label=_reference(experiment, arm)))
    return handles


def _reference(experiment: Experiment, arm: Arm) -> str:
    decoder = experiment.decoders[arm.decoder]
    return arm.label or f"{run_label(experiment, arm.run)} run, {decoder.label or arm.decoder} decoding"


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: records.csv -> pareto.pdf and .png."""
    options = command.parser(__doc__, records="records.csv of `python -m sbd collect`").parse_args(arguments)
    experiment = load_experiment(options.experiment)
    with style.house_style():
        figure = draw(experiment, inputs.read_records(options.records, experiment), options.partial)
        return style.save(figure, options.output, "pareto")


if __name__ == "__main__":
    command.run(main)
