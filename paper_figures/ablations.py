"""Ablations that the paper has not: score and tokens per forward of each arm beside the one it differs from.

A table with the paired difference to the first arm of each group, and a figure with one row of panels per benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from paper_figures import command, inputs, style, tables
from paper_figures.labels import ABSENT, TIMES, benchmark_label, mathtext, model_label, run_label, sampling_label
from sbd.config import Experiment
from sbd.experiment_files import load_experiment
from sbd.selection import Ablations, Arm


def arm_label(experiment: Experiment, arm: Arm) -> str:
    """What an arm is called in its group."""
    return arm.label or f"{run_label(experiment, arm.run)}, {sampling_label(experiment, arm)}"


def build(
    experiment: Experiment,
    records: pd.DataFrame,
    chosen: Ablations,
    differences: pd.DataFrame | None = None,
    partial: bool = False,
) -> tuple[pd.DataFrame, tables.Layout]:
    """A row per group, arm and model; a column per benchmark."""
    rows, missing = inputs.rows_of(records, experiment, _arms(chosen), partial, chosen.benchmarks)
    found = rows.set_index(inputs.KEY)
    counts = {name: int(part["n"].iloc[0]) for name, part in rows.groupby("benchmark", sort=False)}
    lines, groups = [], []
    asked = set(experiment.jobs())
    for group, arms in chosen.groups.items():
        before = len(lines)
        for arm in arms:
            for model in inputs.unique(rows, "model"):
                if not any(_compared(asked, model, str(benchmark), arm, arms) for benchmark in counts):
                    continue
                cells = []
                for benchmark in counts:
                    key = (model, arm.run, arm.decoder, str(benchmark))
                    if not _compared(asked, model, str(benchmark), arm, arms):
                        cells.append(ABSENT)
                        continue
                    if key not in found.index:
                        cells.append("missing")
                        continue
                    row = inputs.row_at(found, key)
                    score = f"{row['score']:.1f} [{row['score_low']:.1f}, {row['score_high']:.1f}]"
                    if differences is not None and (arm.run, arm.decoder) != (arms[0].run, arms[0].decoder):
                        pair = (model, str(benchmark), arm.run, arm.decoder, arms[0].run, arms[0].decoder)
                        score += _change(differences, experiment, pair, missing if partial else None)
                    cells.append(f"{score} ({row['tokens_per_forward']:.2f}{TIMES})")
                lines.append([group, arm_label(experiment, arm), model_label(experiment, model), *cells])
        groups.append(len(lines) - before)
    header = ["ablation", "arm", "model"]
    header += [benchmark_label(experiment, str(name), n) for name, n in counts.items()]
    caption = (
        f"Scale {experiment.scale}. Score in percent with its 95% interval over the n problems"
        + (", difference to the first arm of the group with its interval" if differences is not None else "")
        + f", tokens per forward pass ({TIMES})."
    )
    if warning := command.partial_warning(missing):
        caption += f" {warning}."
    return rows.loc[:, inputs.COLUMNS], tables.Layout(header, lines, caption, left=3, groups=groups)


def draw(experiment: Experiment, records: pd.DataFrame, chosen: Ablations, partial: bool = False) -> Figure:
    """Score (left) and tokens per forward (right) of every arm; a mark per model."""
    rows, missing = inputs.rows_of(records, experiment, _arms(chosen), partial, chosen.benchmarks)
    benchmarks, asked = inputs.unique(rows, "benchmark"), set(experiment.jobs())
    groups = [(arm, group) for group in chosen.groups.values() for arm in group]
    models = [
        model
        for model in inputs.unique(rows, "model")
        if any(_compared(asked, model, name, arm, group) for name in benchmarks for arm, group in groups)
    ]
    looks = style.looks(models)
    places: list[tuple[float, Arm, Sequence[Arm]]] = []
    labels, heads = [], []
    height = 0.0
    for group, arms in chosen.groups.items():
        heads.append((height, group))
        for arm in arms:
            height += 1
            places.append((height, arm, arms))
            labels.append(mathtext(arm_label(experiment, arm)))
        height += 1.4
    size = (style.PAGE, 0.25 * (height + 1) * len(benchmarks) + 0.9)
    figure, panels = plt.subplots(len(benchmarks), 2, figsize=size, squeeze=False, sharey=True, width_ratios=[3, 2])
    for (left, right), benchmark in zip(panels, benchmarks, strict=True):
        part = inputs.where(rows, benchmark=benchmark).set_index(["model", "run", "decoder"])
        for index, model in enumerate(models):
            shift = 0.3 * (index - (len(models) - 1) / 2)
            look = {**looks[model], "linestyle": ""}
            for place, arm, group in places:
                known = (model, arm.run, arm.decoder) in part.index
                if not (known and _compared(asked, model, benchmark, arm, group)):
                    continue
                row = inputs.row_at(part, (model, arm.run, arm.decoder))
                score, y = float(row["score"]), [place + shift]
                error = np.array([[score - row["score_low"]], [row["score_high"] - score]], dtype=float)
                left.errorbar([score], y, xerr=error, **look, elinewidth=0.8)
                right.plot([float(row["tokens_per_forward"])], y, **look)
        for place, name in heads:
            left.text(
                0.0, place, mathtext(name), transform=left.get_yaxis_transform(), fontsize=7, weight="bold", va="center"
            )
        left.set_yticks([place for place, _, _ in places], labels)
        left.set_ylim(height - 0.6, -0.6)
        left.set_title(benchmark_label(experiment, benchmark, int(part["n"].iloc[0])))
        for axes in (left, right):
            axes.grid(visible=False, axis="y")
    panels[-1, 0].set_xlabel("score (%)")
    panels[-1, 1].set_xlabel("tokens per forward pass")
    handles = [
        Line2D([], [], **{**looks[model], "linestyle": ""}, label=model_label(experiment, model)) for model in models
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4)
    text = f"scale {experiment.scale}; bars: 95% intervals over problems; one seed a run"
    style.note(figure, text, command.partial_warning(missing))
    return figure


def _change(differences: pd.DataFrame, experiment: Experiment, pair: inputs.Pair, missing: list[str] | None) -> str:
    """The difference to the first arm of a group; nothing where that was not evaluated."""
    known = 0 if missing is None else len(missing)
    row = inputs.difference(differences, experiment, pair, missing)
    if row is None:
        return "" if missing is None or len(missing) == known else " missing"
    return f" {row['difference']:+.1f} [{row['low']:+.1f}, {row['high']:+.1f}]"


def _compared(
    asked: set[tuple[str, str, str, str]], model: str, benchmark: str, arm: Arm, group: Sequence[Arm]
) -> bool:
    """Whether an arm is to be evaluated there with another of its group: one alone is no comparison."""
    here = [one for one in group if (model, one.run, one.decoder, benchmark) in asked]
    return arm in here and len(here) >= min(2, len(group))


def _arms(chosen: Ablations) -> list[Arm]:
    return [arm for arms in chosen.groups.values() for arm in arms]


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: records.csv (and differences.csv) -> ablations.csv, .md, .tex, and .pdf and .png in --figures."""
    parser = command.parser(__doc__, records="records.csv of `python -m sbd collect`")
    parser.add_argument("--differences", type=Path, help="differences.csv of `python -m sbd collect`")
    parser.add_argument("--figures", type=Path, help="folder of the figure; default: --output")
    options = parser.parse_args(arguments)
    experiment = load_experiment(options.experiment)
    chosen = command.required(experiment.figures.ablations, "ablations", options.experiment)
    records = inputs.read_records(options.records, experiment)
    differences = inputs.read_differences(options.differences, experiment) if options.differences else None
    table = build(experiment, records, chosen, differences, options.partial)
    paths = tables.write(options.output, "ablations", *table)
    with style.house_style():
        figure = draw(experiment, records, chosen, options.partial)
        return paths + style.save(figure, options.figures or options.output, "ablations")


if __name__ == "__main__":
    command.run(main)
