"""Figure 5 of the paper: accuracy against forward passes for several lengths of training; stars: next-token twins.

The first row is measured here, one panel per model and benchmark; the second is what the paper reports. It counts
passes over a canvas of 1024 tokens without an early stop; here they are counted to the end of each solution.
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
from paper_figures.curves import Marks, curve, star, star_look
from paper_figures.labels import benchmark_label, model_label, number, strength
from paper_figures.selection import Figure5, load, required
from sbd.config import Arm, Experiment

REPORTED_NAMES = {"humaneval": "HumanEval", "gsm8k": "GSM8K"}


def draw(
    experiment: Experiment, records: pd.DataFrame, reported: pd.DataFrame, chosen: Figure5, partial: bool = False
) -> Figure:
    """The figure from checked records and the reported points."""
    arms = [Arm(run=length.baseline, decoder=chosen.baseline_decoder) for length in chosen.lengths]
    arms += [Arm(run=length.run, decoder=name) for length in chosen.lengths for name in chosen.decoders]
    rows, missing = inputs.rows_of(records, experiment, arms, partial)
    benchmarks = inputs.unique(rows, "benchmark")
    models = inputs.unique(rows, "model")
    names = inputs.unique(reported, "benchmark")
    measured = [(model, benchmark) for benchmark in benchmarks for model in models]
    columns = max(len(names), min(2, len(measured)))
    height = -(-len(measured) // columns)
    figure, panels = plt.subplots(height + 1, columns, figsize=(style.PAGE, 2.6 * (height + 1) + 0.3), squeeze=False)
    every = []
    for axes, (model, benchmark) in zip(panels[:height].flat, measured, strict=False):
        part = inputs.where(rows, model=model, benchmark=benchmark)
        every.append((axes, _measured(axes, experiment, part.set_index(["run", "decoder"]), chosen)))
        title = f"{benchmark_label(experiment, benchmark, int(part['n'].iloc[0]))}, {model_label(experiment, model)}"
        axes.set_title(title)
    for axes in panels[:height].flat[len(measured) :]:
        axes.axis("off")
    for axes, name in zip(panels[height], names, strict=False):
        every.append((axes, _reported(axes, inputs.where(reported, benchmark=name))))
        axes.legend(loc="lower right", title="its training steps", title_fontsize=7)
        axes.set_title(f"reported by the paper: {REPORTED_NAMES.get(name, name)}, 3B")
    for axes in panels[height][len(names) :]:
        axes.axis("off")
    for axes in panels[:, 0]:
        axes.set_ylabel("score (%)")
    for axes, _ in every:
        axes.set_xlabel("forward passes per problem" if axes in panels[height] else "")
    looks = style.looks(length.label for length in chosen.lengths)
    handles = [Line2D([], [], **look, label=f"{label} steps") for label, look in looks.items()]
    handles.append(Line2D([], [], **star_look("#404040"), label="next-token twin, decoded one by one"))
    figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)))
    style.note(
        figure,
        f"scale {experiment.scale}; bars: 95% intervals over problems; small numbers: "
        r"$\gamma$. The paper counts passes over 1024 tokens without early stop, we count to the end of each solution",
        command.partial_warning(missing),
    )
    for axes, marks in every:
        marks.place(axes)
    return figure


def _measured(axes: Axes, experiment: Experiment, rows: pd.DataFrame, chosen: Figure5) -> Marks:
    looks = style.looks(length.label for length in chosen.lengths)
    marks = Marks()
    for length in chosen.lengths:
        look = looks[length.label]
        present = [name for name in chosen.decoders if (length.run, name) in rows.index]
        if present:
            points = rows.loc[[(length.run, name) for name in present]]
            pairs = [strength(experiment.decoders[name]) for name in present]
            curve(
                axes,
                marks,
                (points["forward_passes"] / points["n"]).to_numpy(),
                points["score"].to_numpy(),
                look,
                [number(pair[1]) if pair else None for pair in pairs],
                points["score_low"].to_numpy(),
                points["score_high"].to_numpy(),
            )
        if (length.baseline, chosen.baseline_decoder) in rows.index:
            row = rows.loc[(length.baseline, chosen.baseline_decoder)]
            star(axes, marks, float(row["forward_passes"] / row["n"]), float(row["score"]), look["color"])
    return marks


def _reported(axes: Axes, reported: pd.DataFrame) -> Marks:
    lengths = inputs.unique(reported, "iterations")
    looks = style.looks(lengths)
    marks = Marks()
    for length in lengths:
        part = inputs.where(reported, iterations=length)
        free = inputs.where(part, sampler="ntp_autoregressive")
        blocks = part.drop(free.index)
        x, y = blocks["mean_nfe"].to_numpy(), blocks["accuracy_percent"].to_numpy()
        curve(axes, marks, x, y, {**looks[length], "label": length})
        for x, y in zip(free["mean_nfe"], free["accuracy_percent"], strict=True):
            star(axes, marks, float(x), float(y), looks[length]["color"])
    return marks


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: records.csv and the reported points -> figure5.pdf and .png."""
    parser = command.parser(
        __doc__, records="records.csv of `python -m sbd collect`", reported="folder of the paper's numbers"
    )
    options = parser.parse_args(arguments)
    experiment, figures = load(options.experiment)
    reported = inputs.read_csv(
        options.reported / "figure5.csv",
        ["benchmark", "iterations", "sampler", "gamma", "mean_nfe", "accuracy_percent"],
        ["benchmark", "iterations", "sampler"],
        "take it from experiments/reported/",
        empty=["gamma"],
    )
    with style.house_style():
        chosen = required(figures.figure5, "figure5", options.experiment)
        figure = draw(experiment, inputs.read_records(options.records), reported, chosen, options.partial)
        return style.save(figure, options.output, "figure5")


if __name__ == "__main__":
    command.run(main)
