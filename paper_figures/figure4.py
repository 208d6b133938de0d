"""Figure 4 of the paper: next-token loss during training, with and without the masked-token loss and the NTP loss."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from paper_figures import command, inputs, style
from paper_figures.labels import model_label, run_label
from sbd import columns
from sbd.config import Experiment
from sbd.errors import UserError
from sbd.experiment_files import load_experiment
from sbd.selection import Figure4

WINDOWS = 40
"""A line is a running mean over one fortieth of the logged steps."""


def draw(experiment: Experiment, metrics: pd.DataFrame, chosen: Figure4, partial: bool = False) -> Figure:
    """One panel per model, one line per run."""
    looks = style.looks(chosen.runs)
    # A model that only some of the runs are trained for would show half of the comparison.
    models = [m for m in experiment.models if all(m in experiment.models_of(run) for run in chosen.runs)]
    if not models:
        raise UserError("no model is trained in all runs of figures.figure4; see `models` of those runs")
    size = (style.PAGE if len(models) > 1 else style.COLUMN, 2.9)
    figure, panels = plt.subplots(1, len(models), figsize=size, squeeze=False, sharey=True)
    missing, window = [], 1
    for axes, model in zip(panels.flat, models, strict=True):
        for run in chosen.runs:
            part = inputs.where(metrics, model=model, run=run)
            if part.empty:
                missing.append(f"{model}/{run}")
                continue
            window = max(1, len(part) // WINDOWS)
            steps, loss = _smooth(part["step"].to_numpy(), window), _smooth(part["ntp_loss"].to_numpy(), window)
            look = {**looks[run], "markevery": max(1, len(steps) // 8)}
            axes.plot(steps, loss, **look, label=run_label(experiment, run))
        axes.set_title(model_label(experiment, model))
        axes.set_xlabel("training step")
        # The loss that is not trained grows far past the two whose small distance is the other half of the figure.
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    if missing and (not partial or not any(axes.lines for axes in panels.flat)):
        raise UserError(f"no training losses of {missing[0]}; train it and {inputs.collect(experiment)}")
    panels[0, 0].set_ylabel("next-token loss (nats per token)")
    handles = next(axes.get_legend_handles_labels() for axes in panels.flat if axes.lines)
    figure.legend(*handles, loc="outside upper center", ncols=min(4 if len(models) > 1 else 2, len(chosen.runs)))
    text = (
        f"scale {experiment.scale}; loss on the training data, running mean over {window} logged steps; one seed a run"
    )
    style.note(figure, text, command.partial_warning(missing))
    return figure


def _smooth(values: np.ndarray, window: int) -> np.ndarray:
    return np.convolve(values, np.full(window, 1 / window), mode="valid")


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: metrics.csv -> figure4.pdf and .png."""
    parser = command.parser(__doc__, metrics="metrics.csv of `python -m sbd collect`")
    options = parser.parse_args(arguments)
    experiment = load_experiment(options.experiment)
    how = inputs.collect(experiment)
    metrics = inputs.read_csv(options.metrics, columns.METRICS, ["model", "run"], how, empty=["block_loss"])
    with style.house_style():
        chosen = command.required(experiment.figures.figure4, "figure4", options.experiment)
        return style.save(draw(experiment, metrics, chosen, options.partial), options.output, "figure4")


if __name__ == "__main__":
    command.run(main)
