"""Figure 1 of the paper: accuracy against speed-up on one benchmark, measured here beside what the paper reports.

A ring marks the fastest point whose 95% interval still reaches the score of next-token decoding (the star). The
points of the paper come without intervals, so none of them is marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from paper_figures import command, inputs, pareto, style
from paper_figures.curves import star_look
from paper_figures.labels import TIMES, benchmark_label, model_label
from sbd.config import Experiment
from sbd.experiment_files import load_experiment
from sbd.selection import Arm

REPORTED_NAMES = {"llama-3.1-8b": "Llama-3.1 8B", "qwen-3-8b": "Qwen-3 8B"}


def draw(
    experiment: Experiment, records: pd.DataFrame, reported: pd.DataFrame, benchmark: str, partial: bool = False
) -> Figure:
    """Two panels: this run on ``benchmark``, and the paper's figure 1."""
    rows, missing = inputs.rows_of(records, experiment, pareto.arms(experiment), partial, [benchmark])
    indexed = rows.set_index(inputs.KEY[:3])
    looks = pareto.curve_looks(experiment)
    figure, (left, right) = plt.subplots(1, 2, figsize=(style.PAGE, 3.4))
    pareto.panel(left, experiment, indexed, looks)
    handles = []
    for name, grid in experiment.pareto.curves.items():
        for model in experiment.models:
            look, label = looks[f"{model}/{name}"], model_label(experiment, model)
            label += f", {name}" if len(experiment.pareto.curves) > 1 else ""
            best = _fastest(indexed, experiment, model, grid)
            if best is not None:
                x, y = best["tokens_per_forward"], best["score"]
                left.plot([x], [y], "o", markersize=9, color="none", markeredgecolor=look["color"], zorder=5)
                label += f": {x:.1f}{TIMES}"
            handles.append(Line2D([], [], **look, label=label))
    figure.legend(handles=handles, loc="outside upper left", ncols=3)
    left.set_title(f"measured: {benchmark_label(experiment, benchmark, int(rows['n'].iloc[0]))}")
    left.set_ylabel("score (%)")
    first = [looks[f"{model}/{next(iter(experiment.pareto.curves))}"] for model in experiment.models]
    for index, (name, points) in enumerate(reported.groupby("model", sort=False)):
        look = first[index % len(first)] if len(first) > index else style.looks(map(str, range(index + 1)))[str(index)]
        blocks, free = points[points["training_loss"] == "sbd"], points[points["speedup_nfe"] == 1]
        blocks = blocks[blocks["speedup_nfe"] > 1]
        label = REPORTED_NAMES.get(str(name), str(name))
        right.plot(blocks["speedup_nfe"], blocks["accuracy_percent"], **{**look, "linestyle": ""}, label=label)
        right.plot(free["speedup_nfe"], free["accuracy_percent"], **star_look(look["color"]))
    right.set_title("reported by the paper: LiveCodeBench v6")
    right.legend(loc="lower left")
    for axes in (left, right):
        axes.set_xlabel("speed-up in forward passes")
    style.note(
        figure,
        f"scale {experiment.scale}; stars: next-token decoding; bars: 95% intervals over problems; ringed, and "
        "its speed-up in the legend: the fastest point whose interval reaches the score of the star",
        command.partial_warning(missing),
    )
    return figure


def _fastest(rows: pd.DataFrame, experiment: Experiment, model: str, grid: Sequence[Arm]) -> pd.Series | None:
    """The fastest point whose interval reaches the score of the first reference; None without any."""
    if not experiment.pareto.references:
        return None
    baseline = experiment.pareto.references[0]
    if (model, baseline.run, baseline.decoder) not in rows.index:
        return None
    score = rows.loc[(model, baseline.run, baseline.decoder)]["score"]
    points = [rows.loc[(model, a.run, a.decoder)] for a in grid if (model, a.run, a.decoder) in rows.index]
    good = [point for point in points if score <= point["score_high"]]
    return max(good, key=lambda point: point["tokens_per_forward"], default=None)


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: records.csv and the reported points -> figure1.pdf and .png."""
    parser = command.parser(
        __doc__, records="records.csv of `python -m sbd collect`", reported="folder of the paper's numbers"
    )
    parser.add_argument("--benchmark", help="the benchmark to show; default: figures.figure1, or the first one")
    options = parser.parse_args(arguments)
    experiment = load_experiment(options.experiment)
    section = experiment.figures.figure1
    chosen = section.benchmark if section else next(iter(experiment.benchmarks))
    reported = inputs.read_csv(
        options.reported / "figure1.csv",
        ["model", "training_loss", "sampling", "speedup_nfe", "accuracy_percent"],
        ["model", "training_loss", "sampling"],
        "take it from experiments/reported/",
    )
    with style.house_style():
        records = inputs.read_records(options.records)
        figure = draw(experiment, records, reported, options.benchmark or chosen, options.partial)
        return style.save(figure, options.output, "figure1")


if __name__ == "__main__":
    command.run(main)
