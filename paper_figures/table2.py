"""Table 2 of the paper: likelihood tasks through next-token prediction, for runs with and without each loss.

In parentheses the difference to the first run, as in the paper; with differences.csv also its 95% interval over the
same problems. Below stand the rows of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from paper_figures import command, inputs, reported, tables
from paper_figures.labels import ABSENT, benchmark_label, model_label, run_label
from sbd.config import Experiment
from sbd.experiment_files import load_experiment
from sbd.selection import Arm, Table2


def build(
    experiment: Experiment,
    records: pd.DataFrame,
    chosen: Table2,
    differences: pd.DataFrame | None = None,
    partial: bool = False,
    below: tables.Layout | None = None,
) -> tuple[pd.DataFrame, tables.Layout, tables.Layout]:
    """Numbers, text with intervals, and the layout of the paper. below: the rows that the paper reports."""
    arms = [Arm(run=run, decoder=chosen.decoder) for run in chosen.runs]
    rows, missing = inputs.rows_of(records, experiment, arms, partial, chosen.benchmarks, speed=False)
    found = rows.set_index(["model", "run", "benchmark"])
    counts = rows.groupby("benchmark")["n"].first()
    benchmarks = [name for name in chosen.benchmarks if name in counts.index]
    header = ["model", "training loss"]
    header += [benchmark_label(experiment, name, int(counts.loc[name])) for name in benchmarks]
    long, short, groups = [], [], []
    for model in inputs.unique(rows, "model"):
        for index, run in enumerate(chosen.runs):
            full, brief = [], []
            for benchmark in benchmarks:
                if (model, run, benchmark) not in found.index:
                    full.append("missing" if missing else ABSENT)
                    brief.append(full[-1])
                    continue
                row = found.loc[(model, run, benchmark)]
                change = _change(found, (model, run, benchmark), chosen.runs[0]) if index else None
                pair = (model, benchmark, run, chosen.decoder, chosen.runs[0], chosen.decoder)
                between = ""
                if index and differences is not None:
                    found_pair = inputs.difference(differences, experiment, pair, missing if partial else None)
                    between = f" [{found_pair['low']:+.1f}, {found_pair['high']:+.1f}]" if found_pair else " [missing]"
                tail = "" if change is None else f" ({change:+.1f}{between})"
                full.append(f"{row['score']:.1f} [{row['score_low']:.1f}, {row['score_high']:.1f}]{tail}")
                brief.append(f"{row['score']:.1f}" + ("" if change is None else f" ({change:+.1f})"))
            long.append([model_label(experiment, model), run_label(experiment, run), *full])
            short.append(["" if index else model_label(experiment, model), run_label(experiment, run), *brief])
        groups.append(len(chosen.runs))
    caption = (
        f"Scale {experiment.scale}. Accuracy in percent by likelihood under next-token prediction, with its 95% "
        f"interval over the n problems; in parentheses the points above {run_label(experiment, chosen.runs[0])}"
        + (" with its 95% interval over the same problems." if differences is not None else ".")
    )
    if warning := command.partial_warning(missing):
        caption += f" {warning}."
    text = tables.Layout(header, long, caption, left=2, groups=groups, below=below)
    paper_caption = caption.replace(", with its 95% interval over the n problems", "").replace(
        " with its 95% interval over the same problems", ""
    )
    return rows, text, tables.Layout(header, short, paper_caption, left=2, groups=groups, below=below)


def _change(found: pd.DataFrame, key: tuple[str, str, str], first: str) -> float | None:
    model, _, benchmark = key
    if (model, first, benchmark) not in found.index:
        return None
    return float(found.loc[key]["score"] - found.loc[(model, first, benchmark)]["score"])


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: records.csv, the reported rows (and differences.csv) -> table2.csv (measured), .md and .tex."""
    parser = command.parser(
        __doc__, records="records.csv of `python -m sbd collect`", reported="folder of the paper's numbers"
    )
    parser.add_argument("--differences", type=Path, help="differences.csv of `python -m sbd collect`")
    options = parser.parse_args(arguments)
    experiment = load_experiment(options.experiment)
    chosen = command.required(experiment.figures.table2, "table2", options.experiment)
    differences = inputs.read_differences(options.differences, experiment) if options.differences else None
    records = inputs.read_records(options.records, experiment)
    below = reported.table2(options.reported)
    frame, text, paper = build(experiment, records, chosen, differences, options.partial, below)
    return tables.write(options.output, "table2", frame.loc[:, inputs.COLUMNS], text, paper)


if __name__ == "__main__":
    command.run(main)
