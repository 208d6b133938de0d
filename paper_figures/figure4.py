"""Figure 4 of the paper: next-token loss during training, with and without the masked-token loss and the NTP loss."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from paper_figures import command, inputs, style
from paper_figures.collect_metrics import COLUMNS
from paper_figures.labels import model_label, run_label
from paper_figures.selection import Figure4, load, required
from sbd.config import Experiment
from sbd.errors import UserError

WINDOWS = 40
"""A line is a running mean over one fortieth of the logged steps."""


def draw(experiment: Experiment, metrics: pd.DataFrame, chosen: Figure4, partial: bool = False) -> Figure:
    """One panel per model, one line per run."""
    looks = style.looks(chosen.runs)
    figure, panels = plt.subplots(1, len(experiment.models), figsize=(style.PAGE, 2.9), squeeze=False, sharey=True)
    missing, window = [], 1
    for axes, model in zip(panels.flat, experiment.models, strict=True):
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
    if missing and not partial:
        raise UserError(
            f"no training losses of {missing[0]}; train it and run `python -m paper_figures.collect_metrics`"
        )
    panels[0, 0].set_ylabel("next-token loss (nats per token)")
    handles = next(axes.get_legend_handles_labels() for axes in panels.flat if axes.lines)
    figure.legend(*handles, loc="outside upper center", ncols=min(4, len(chosen.runs)))
    text = (
        f"scale {experiment.scale}; loss on the training data, running mean over {window} logged steps; one seed a run"
    )
    style.note(figure, text, command.partial_warning(missing))
    return figure


def _smooth(values: np.ndarray, window: int) -> np.ndarray:
    return np.convolve(values, np.full(window, 1 / window), mode="valid")


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: metrics.csv -> figure4.pdf and .png."""
    parser = command.parser(__doc__, metrics="CSV of `python -m paper_figures.collect_metrics`")
    options = parser.parse_args(arguments)
    experiment, figures = load(options.experiment)
    how = "run `python -m paper_figures.collect_metrics`"
    metrics = inputs.read_csv(options.metrics, COLUMNS, ["model", "run"], how, empty=["block_loss"])
    with style.house_style():
        chosen = required(figures.figure4, "figure4", options.experiment)
        return style.save(draw(experiment, metrics, chosen, options.partial), options.output, "figure4")


if __name__ == "__main__":
    command.run(main)
