"""The main comparison under every seed, a table that the paper lacks: it trained each model once.

A row for each comparison, model and benchmark. Each seed has its paired difference with a 95% interval over problems;
with several seeds follow their mean and the largest distance from it, which is what one seed alone cannot tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from paper_figures import command, inputs, tables
from paper_figures.labels import ABSENT, benchmark_label, model_label, run_label, sampling_label
from sbd.config import Experiment
from sbd.experiment_files import load_experiment
from sbd.selection import Arm, Seeds


def build(
    experiment: Experiment, records: pd.DataFrame, differences: pd.DataFrame, chosen: Seeds
) -> tuple[pd.DataFrame, tables.Layout]:
    """Numbers (a row per seed) and text (a column per seed). Raises UserError for a pair that was not collected."""
    pairs = [experiment.seeds_of(c.arm.run, c.baseline.run) for c in chosen.comparisons]
    width = max(map(len, pairs))
    asked = set(experiment.jobs())
    counts: dict[Any, Any] = records.groupby("benchmark")["n"].first().to_dict()
    numbers, lines = [], []
    for comparison, seeds in zip(chosen.comparisons, pairs, strict=True):
        arm, baseline = comparison.arm, comparison.baseline
        name = arm.label or f"{_name(experiment, arm)} against {_name(experiment, baseline)}"
        for model in experiment.models:
            for benchmark in experiment.benchmarks:
                keys = [
                    (model, benchmark, one, arm.decoder, two, baseline.decoder)
                    for one, two in seeds
                    if asked.issuperset(
                        {(model, one, arm.decoder, benchmark), (model, two, baseline.decoder, benchmark)}
                    )
                ]
                if not keys:
                    continue
                found = [row for key in keys if (row := inputs.difference(differences, experiment, key))]
                values = [float(row["difference"]) for row in found]
                mean = sum(values) / len(values)
                numbers += [
                    [*key, number, row["n"], row["difference"], row["low"], row["high"], row["p_value"]]
                    for number, (key, row) in enumerate(zip(keys, found, strict=True), start=1)
                ]
                cells = [f"{row['difference']:+.1f} [{row['low']:+.1f}, {row['high']:+.1f}]" for row in found]
                spread = f"{mean:+.1f} \N{PLUS-MINUS SIGN} {max(abs(v - mean) for v in values):.1f}"
                labels = [
                    name,
                    model_label(experiment, model),
                    benchmark_label(experiment, benchmark, counts[benchmark]),
                ]
                padding = [ABSENT] * (width - len(cells))
                lines.append([*labels, *cells, *padding, spread if len(values) > 1 else ABSENT])
    columns = ["model", "benchmark", "run", "decoder", "baseline_run", "baseline_decoder"]
    columns += ["seed", "n", "difference", "low", "high", "p_value"]
    header = ["comparison", "model", "benchmark", *(f"seed {index + 1}" for index in range(width)), "mean"]
    caption = (
        f"Scale {experiment.scale}. Points of score above the baseline with the 95% interval over the same n problems. "
        "A seed orders the data and draws block sizes and masks; all runs of a model start from one checkpoint. Mean "
        f"over seeds \N{PLUS-MINUS SIGN} the largest distance from it."
    )
    return pd.DataFrame(numbers, columns=pd.Index(columns)), tables.Layout(header, lines, caption, left=3)


def _name(experiment: Experiment, arm: Arm) -> str:
    sampling = sampling_label(experiment, arm.model_copy(update={"label": None}))
    return f"{run_label(experiment, arm.run)} decoded by {sampling}"


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: records.csv and differences.csv -> seeds.csv, .md and .tex."""
    parser = command.parser(
        __doc__,
        records="records.csv of `python -m sbd collect`",
        differences="differences.csv of `python -m sbd collect`",
    )
    options = parser.parse_args(arguments)
    experiment = load_experiment(options.experiment)
    chosen = command.required(experiment.figures.seeds, "seeds", options.experiment)
    records = inputs.read_records(options.records, experiment)
    differences = inputs.read_differences(options.differences, experiment)
    return tables.write(options.output, "seeds", *build(experiment, records, differences, chosen))


if __name__ == "__main__":
    command.run(main)
