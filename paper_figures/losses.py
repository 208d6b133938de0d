"""Loss of both predictions on held-out text, for every run: a table the paper lacks.

Next-token loss over all tokens that a run is trained to predict, masked-token loss over the masked ones, each in nats
per token. Runs that predict prompts too are averaged over other tokens than those that do not; the counts tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from paper_figures import command, inputs, tables
from paper_figures.labels import ABSENT, model_label, run_label
from sbd import columns
from sbd.config import Experiment
from sbd.experiment_files import load_experiment


def build(experiment: Experiment, losses: pd.DataFrame) -> tables.Layout:
    """A row per model and run; a run without a loss has a dash there."""

    def loss(row: dict[str, Any], name: str) -> str:
        value = row[f"{name}_loss"]
        return ABSENT if pd.isna(value) else f"{value:.3f} (n = {int(row[f'{name}_tokens'])})"

    rows: list[dict[str, Any]] = losses.to_dict("records")  # type: ignore[assignment]
    lines = [
        [
            model_label(experiment, row["model"]),
            run_label(experiment, row["run"]),
            f"{row['parameters'] / 1e6:.2f}M",
            str(row["steps"]),
            loss(row, "ntp"),
            loss(row, "block"),
        ]
        for row in rows
    ]
    header = ["model", "training loss", "parameters", "steps", "next-token loss", "masked-token loss"]
    caption = (
        f"Scale {experiment.scale}. Losses on held-out text in nats per token; n counts the predicted tokens. A run "
        "that predicts prompts too (the base) is averaged over them as well; masked tokens are drawn as in the "
        "training of each run, so where n differs they are others."
    )
    groups = [int(count) for count in losses.groupby("model", sort=False).size()]
    return tables.Layout(header, lines, caption, left=2, groups=groups)


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: losses.csv -> tables/losses.csv, .md and .tex."""
    options = command.parser(__doc__, losses="losses.csv of `python -m sbd collect`").parse_args(arguments)
    experiment = load_experiment(options.experiment)
    text, empty = ["model", "run"], columns.LOSSES[4:]
    losses = inputs.read_csv(options.losses, columns.LOSSES, text, inputs.collect(experiment), empty)
    return tables.write(options.output, "losses", losses, build(experiment, losses))


if __name__ == "__main__":
    command.run(main)
