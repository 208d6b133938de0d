"""Collect the training losses of all runs, ``metrics.jsonl`` of each, into one CSV file for the figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from paper_figures import command
from paper_figures.selection import load
from sbd.config import Experiment
from sbd.errors import UserError
from sbd.files import write_text

COLUMNS = ["model", "run", "step", "ntp_loss", "block_loss"]


def collect(experiment: Experiment, runs: Sequence[str]) -> pd.DataFrame:
    """A row per model, run and logged step; losses in nats per predicted token, block_loss NaN without such a term."""
    rows = []
    for model in experiment.models:
        for run in runs:
            path = experiment.run_folder(model, run) / "metrics.jsonl"
            try:
                lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            except FileNotFoundError:
                raise UserError(
                    f"no such file: {path}; run `python -m sbd train --model {model} --run {run}`"
                ) from None
            except json.JSONDecodeError:
                raise UserError(
                    f"{path} is not a file of JSON lines; delete the run's folder and train again"
                ) from None
            if not lines:
                raise UserError(f"{path} is empty; delete the run's folder and train again")
            rows += [[model, run, *(line[name] for name in COLUMNS[2:])] for line in lines]
    return pd.DataFrame(rows, columns=pd.Index(COLUMNS))


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: the experiment -> a CSV file. ``--output`` is that file."""
    parser = command.parser(__doc__)
    parser.add_argument("--runs", nargs="+", help="default: those of figures.figure4, or all")
    options = parser.parse_args(arguments)
    experiment, figures = load(options.experiment)
    chosen = figures.figure4.runs if figures.figure4 else list(experiment.runs)
    frame = collect(experiment, options.runs or chosen)
    write_text(options.output, frame.to_csv(index=False, lineterminator="\n"))
    return [options.output]


if __name__ == "__main__":
    command.run(main)
