"""Figure 1 of the paper: accuracy against speed-up on one benchmark, measured here beside what the paper reports.

A ring marks the fastest point whose difference to next-token decoding (the star), on the same problems, has a 95%
interval that still reaches zero. The points of the paper come without intervals, so none of them is marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from paper_figures import command, inputs, pareto, reported, style
from paper_figures.curves import star_look
from paper_figures.labels import TIMES, benchmark_label
from sbd.config import Experiment
from sbd.experiment_files import load_experiment
from sbd.selection import Arm


def draw(
    experiment: Experiment,
    records: pd.DataFrame,
    differences: pd.DataFrame,
    points_of_paper: pd.DataFrame,
    benchmark: str,
    partial: bool = False,
    paper_title: str = reported.BENCHMARKS["livecodebench_v6"],
) -> Figure:
    """Two panels: this run on ``benchmark``, and the paper's figure 1."""
    rows, missing = inputs.rows_of(records, experiment, pareto.arms(experiment), partial, [benchmark])
    indexed = rows.set_index(inputs.KEY[:3])
    looks = pareto.curve_looks(experiment)
    figure, (left, right) = plt.subplots(1, 2, figsize=(style.PAGE, 3.4))
    pareto.panel(left, experiment, indexed, looks)
    for name, grid in experiment.pareto.curves.items():
        for index, model in enumerate(experiment.models):
            look = looks[f"{model}/{name}"]
            best = _fastest(indexed, differences, experiment, model, benchmark, grid, missing if partial else None)
            if best is not None:
                x, y = best["tokens_per_forward"], best["score"]
                left.plot([x], [y], "o", markersize=9, color="none", markeredgecolor=look["color"], zorder=5)
                left.annotate(
                    f"{x:.1f}{TIMES}",
                    (x, y),
                    (-7, -3) if index % 2 else (7, -3),  # models lie close to each other
                    textcoords="offset points",
                    ha="right" if index % 2 else "left",
                    color=look["color"],
                )
    handles = pareto.legend(experiment, looks)
    figure.legend(handles=handles, loc="outside upper left", ncols=pareto.legend_columns(handles))
    left.set_title(f"measured: {benchmark_label(experiment, benchmark, int(rows['n'].iloc[0]))}")
    left.set_ylabel("score (%)")
    first = [looks[f"{model}/{next(iter(experiment.pareto.curves))}"] for model in experiment.models]
    for index, (name, points) in enumerate(points_of_paper.groupby("model", sort=False)):
        look = first[index % len(first)] if len(first) > index else style.looks(map(str, range(index + 1)))[str(index)]
        blocks, free = points[points["training_loss"] == "sbd"], points[points["speedup_nfe"] == 1]
        blocks = blocks[blocks["speedup_nfe"] > 1]
        label = reported.MODELS.get(str(name), str(name))
        right.plot(blocks["speedup_nfe"], blocks["accuracy_percent"], **{**look, "linestyle": ""}, label=label)
        right.plot(free["speedup_nfe"], free["accuracy_percent"], **star_look(look["color"]))
    right.set_title(f"reported by the paper: {paper_title}")
    right.legend(loc="lower left")
    for axes in (left, right):
        axes.set_xlabel("speed-up in forward passes")
    style.note(
        figure,
        f"scale {experiment.scale}; {pareto.curves_text(experiment)}; stars: next-token decoding; bars: 95% intervals "
        "over problems; ringed, with its speed-up: the fastest point whose difference to the filled star (dashed) on "
        "the same problems has an interval that reaches zero",
        command.partial_warning(missing),
    )
    return figure


def _fastest(
    rows: pd.DataFrame,
    differences: pd.DataFrame,
    experiment: Experiment,
    model: str,
    benchmark: str,
    grid: Sequence[Arm],
    missing: list[str] | None,
) -> pd.Series | None:
    """The fastest point whose paired interval to the first reference reaches zero; None without any."""
    if not experiment.pareto.references:
        return None
    base = experiment.pareto.references[0]
    good = []
    for arm in grid:
        if (model, arm.run, arm.decoder) not in rows.index or (arm.run, arm.decoder) == (base.run, base.decoder):
            continue
        pair = (model, benchmark, arm.run, arm.decoder, base.run, base.decoder)
        row = inputs.difference(differences, experiment, pair, missing)
        if row and row["high"] >= 0:
            good.append(rows.loc[(model, arm.run, arm.decoder)])
    return max(good, key=lambda point: point["tokens_per_forward"], default=None)


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: records.csv, differences.csv and the reported points -> figure1.pdf and .png."""
    parser = command.parser(
        __doc__,
        records="records.csv of `python -m sbd collect`",
        differences="differences.csv of `python -m sbd collect`",
        reported="folder of the paper's numbers",
    )
    parser.add_argument("--benchmark", help="the benchmark to show; default: figures.figure1, or the first one")
    options = parser.parse_args(arguments)
    experiment = load_experiment(options.experiment)
    section = experiment.figures.figure1
    chosen = section.benchmark if section else next(iter(experiment.benchmarks))
    points = inputs.read_csv(
        options.reported / "figure1.csv",
        ["model", "training_loss", "sampling", "speedup_nfe", "accuracy_percent"],
        ["model", "training_loss", "sampling"],
        reported.HOW,
    )
    title = reported.benchmark("livecodebench_v6", reported.problems(options.reported))
    with style.house_style():
        records = inputs.read_records(options.records, experiment)
        differences = inputs.read_differences(options.differences, experiment)
        shown = options.benchmark or chosen
        figure = draw(experiment, records, differences, points, shown, options.partial, title)
        return style.save(figure, options.output, "figure1")


if __name__ == "__main__":
    command.run(main)
