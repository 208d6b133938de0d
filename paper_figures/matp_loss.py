"""Masked-token loss by position in the block and by mask rate, which the paper does not show.

The CSV has a row per model, run, position (from 1) and bin of the mask rate: the mean loss of its masked tokens in nats
and their number. Each panel averages over the other, weighted by the number of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from paper_figures import command, inputs, style
from paper_figures.labels import model_label, run_label
from sbd import columns
from sbd.config import Experiment
from sbd.errors import UserError
from sbd.experiment_files import load_experiment


def average(frame: pd.DataFrame, by: str) -> tuple[np.ndarray, np.ndarray]:
    """Values of a column and the mean loss at each, over tokens."""
    values, place = np.unique(frame[by].to_numpy(dtype=float), return_inverse=True)
    count, loss = frame["count"].to_numpy(dtype=float), frame["loss"].to_numpy(dtype=float)
    return values, np.bincount(place, count * loss) / np.bincount(place, count)


def draw(experiment: Experiment, losses: pd.DataFrame, partial: bool = False) -> Figure:
    """Two panels, one line per model and run that the experiment asks for. Raises UserError where one is missing."""
    wanted, how = experiment.masked_losses(), inputs.collect(experiment)
    names = [(m, r) for m, r in wanted if not inputs.where(losses, model=m, run=r).empty]
    missing = [f"{model}/{run}" for model, run in wanted if (model, run) not in names]
    if missing and (not partial or not names):
        raise UserError(f"no masked-token losses of {missing[0]}; {how}, or take what there is with --partial")
    losses = losses.loc[[name in names for name in zip(losses["model"], losses["run"], strict=True)]]
    if (losses["count"].to_numpy() <= 0).any():
        raise UserError(f"the masked-token losses have a row of no tokens; {how}")
    looks = style.looks(f"{model}/{run}" for model, run in names)
    figure, panels = plt.subplots(1, 2, figsize=(style.PAGE, 2.9), sharey=True)
    for model, run in names:
        part = inputs.where(losses, model=model, run=run)
        label = f"{model_label(experiment, model)}, {run_label(experiment, run)}"
        for axes, by in zip(panels, ("position", "mask_rate"), strict=True):
            axes.plot(*average(part, by), **looks[f"{model}/{run}"], label=label)
    panels[0].set_xlabel("position in the block")
    panels[1].set_xlabel("share of the block that is masked")
    panels[0].set_ylabel("masked-token loss (nats per token)")
    highest = max(np.max(line.get_ydata()) for axes in panels for line in axes.lines)
    panels[0].set_ylim(0, 1.06 * highest)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=min(3, len(names)))
    counts = [int(inputs.where(losses, model=model, run=run)["count"].to_numpy().sum()) for model, run in names]
    tokens = " to ".join(f"{count:,}" for count in dict.fromkeys((min(counts), max(counts))))
    sizes = ", ".join(inputs.unique(losses, "block_size"))
    text = (
        f"scale {experiment.scale}; held-out text in blocks of {sizes}, n = {tokens} masked tokens a curve; "
        "means over tokens; one seed a run"
    )
    style.note(figure, text, command.partial_warning(missing))
    return figure


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: the losses -> matp_loss.pdf and .png."""
    options = command.parser(__doc__, losses="matp_loss.csv of `python -m sbd collect`").parse_args(arguments)
    experiment = load_experiment(options.experiment)
    command.required(experiment.figures.matp_loss, "matp_loss", options.experiment)
    losses = inputs.read_csv(options.losses, columns.MASKED_LOSS, ["model", "run"], inputs.collect(experiment))
    with style.house_style():
        return style.save(draw(experiment, losses, options.partial), options.output, "matp_loss")


if __name__ == "__main__":
    command.run(main)
