"""Figures 12 and 13 of the paper: the factor rule against the entropy bound, ordered by entropy and by confidence.

The first row is measured here, one panel per model and benchmark, all rules in it; the second is as reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from paper_figures import command, inputs, style
from paper_figures.curves import Marks, curve
from paper_figures.figure5 import REPORTED_NAMES
from paper_figures.labels import benchmark_label, model_label, run_label
from paper_figures.selection import Figures12And13, load, required
from sbd.config import Arm, Experiment

REPORTED_RULES = {"eb_entropy": "EB by entropy", "eb_confidence": "EB by confidence", "factor": "factor"}


def draw(
    experiment: Experiment, records: pd.DataFrame, reported: pd.DataFrame, chosen: Figures12And13, partial: bool = False
) -> Figure:
    """The figure from checked records and the reported points."""
    arms = [Arm(run=chosen.run, decoder=name) for names in chosen.curves.values() for name in names]
    rows, missing = inputs.rows_of(records, experiment, arms, partial)
    measured = [
        (model, benchmark) for benchmark in inputs.unique(rows, "benchmark") for model in inputs.unique(rows, "model")
    ]
    names = inputs.unique(reported, "benchmark")
    columns = max(len(names), min(2, len(measured)))
    height = -(-len(measured) // columns)
    figure, panels = plt.subplots(height + 1, columns, figsize=(style.PAGE, 2.4 * (height + 1) + 0.3), squeeze=False)
    for axes in panels.flat:
        axes.axis("off")
    for axes, (model, benchmark) in zip(panels[:height].flat, measured, strict=False):
        part = inputs.where(rows, model=model, benchmark=benchmark)
        _measured(axes, part.set_index("decoder"), chosen)
        axes.set_title(
            f"{benchmark_label(experiment, benchmark, int(part['n'].iloc[0]))}, {model_label(experiment, model)}"
        )
    for axes, name in zip(panels[height], names, strict=False):
        _reported(axes, inputs.where(reported, benchmark=name), list(chosen.curves))
        axes.set_title(f"reported by the paper: {REPORTED_NAMES.get(name, name)}, 3B")
    for row in panels:
        row[0].set_ylabel("score (%)")
    for axes in panels[height]:
        axes.set_xlabel("forward passes per problem")
    handles = [Line2D([], [], **look, label=name) for name, look in style.looks(chosen.curves).items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)))
    text = f"scale {experiment.scale}, run {run_label(experiment, chosen.run)}; bars: 95% intervals over problems"
    style.note(figure, text, command.partial_warning(missing))
    return figure


def _measured(axes: Axes, rows: pd.DataFrame, chosen: Figures12And13) -> None:
    axes.axis("on")
    looks = style.looks(chosen.curves)
    for name, decoders in chosen.curves.items():
        present = [decoder for decoder in decoders if decoder in rows.index]
        if present:
            part = rows.loc[present]
            x = (part["forward_passes"] / part["n"]).to_numpy()
            low, high = part["score_low"].to_numpy(), part["score_high"].to_numpy()
            curve(axes, Marks(), x, part["score"].to_numpy(), looks[name], (), low, high)


def _reported(axes: Axes, rows: pd.DataFrame, curves: Sequence[str]) -> None:
    """A rule has the look of the curve of that name, where there is one."""
    axes.axis("on")
    names = [REPORTED_RULES.get(rule, rule) for rule in inputs.unique(rows, "sampler")]
    looks = style.looks([*curves, *names])
    for rule in inputs.unique(rows, "sampler"):
        part = inputs.where(rows, sampler=rule).sort_values("mean_nfe")
        x, y = part["mean_nfe"].to_numpy(), part["accuracy_percent"].to_numpy()
        name = REPORTED_RULES.get(rule, rule)
        curve(axes, Marks(), x, y, looks[name])
        axes.lines[-1].set_label(name if name not in curves else "_")
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="lower right")


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: records.csv and the reported points -> figures12_13.pdf and .png."""
    parser = command.parser(
        __doc__, records="records.csv of `python -m sbd collect`", reported="folder of the paper's numbers"
    )
    options = parser.parse_args(arguments)
    experiment, figures = load(options.experiment)
    reported = inputs.read_csv(
        options.reported / "figures12_13.csv",
        ["benchmark", "sampler", "mean_nfe", "accuracy_percent"],
        ["benchmark", "sampler"],
        "take it from experiments/reported/",
    )
    with style.house_style():
        chosen = required(figures.figures12_13, "figures12_13", options.experiment)
        figure = draw(experiment, inputs.read_records(options.records), reported, chosen, options.partial)
        return style.save(figure, options.output, "figures12_13")


if __name__ == "__main__":
    command.run(main)
