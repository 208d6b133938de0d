"""``collect``: the records of all evaluations of an experiment as one CSV file, a row for each."""

from __future__ import annotations

from sbd.config import Experiment
from sbd.records import Key, collect, write_csv


def run(experiment: Experiment) -> None:
    """Write ``records.csv``; a record that is missing, damaged or of another evaluation is refused."""
    keys = [
        Key(scale=experiment.scale, model=model, run=run, decoder=decoder, benchmark=benchmark, seed=experiment.seed)
        for model, run, decoder, benchmark in experiment.jobs()
    ]
    rows = collect([key.path() for key in keys], keys)
    path = experiment.folder / "records.csv"
    write_csv(rows, path)
    print(f"{path}: {len(rows)} evaluations")
