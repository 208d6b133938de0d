"""Table 1 of the paper: score and speed-up of each model, training loss and way of sampling.

Speed-up is tokens per forward pass, which is 1 for next-token decoding; its average is the plain mean over the
benchmarks, as in the paper. Nothing is set in bold: that would need a test. Below stand the rows of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from paper_figures import command, inputs, reported, tables
from paper_figures.labels import ABSENT, TIMES, benchmark_label, model_label, run_label, sampling_label
from sbd.config import Experiment
from sbd.experiment_files import load_experiment


def build(
    experiment: Experiment, records: pd.DataFrame, partial: bool = False, below: tables.Layout | None = None
) -> tuple[pd.DataFrame, tables.Layout, tables.Layout]:
    """The rows of table 1 as numbers, as text with 95% intervals, and in the layout of the paper without them.

    below: the rows that the paper reports.
    """
    arms = experiment.table1.rows
    rows, missing = inputs.rows_of(records, experiment, arms, partial)
    found = rows.set_index(inputs.KEY)
    asked = set(experiment.jobs())
    benchmarks = inputs.unique(rows, "benchmark")
    counts = rows.groupby("benchmark")["n"].first()
    columns = [benchmark_label(experiment, name, int(counts.loc[name])) for name in benchmarks]
    header = ["model", "training loss", "sampling", "average speed-up", *columns]
    lines: list[list[str]] = []
    short_lines: list[list[str]] = []
    groups = []
    for model in inputs.unique(rows, "model"):
        before = len(lines)
        for arm in arms:
            keys = [(model, arm.run, arm.decoder, benchmark) for benchmark in benchmarks]
            if not any(key in asked for key in keys):
                continue
            free = experiment.decoders[arm.decoder].kind == "autoregressive"
            names = [run_label(experiment, arm.run), sampling_label(experiment, arm)]
            cells = [_cell(found, key, free) if key in asked else (ABSENT, ABSENT) for key in keys]
            speed = _average_speed_up(found, keys, free) if asked.issuperset(keys) else ABSENT
            lines.append([model_label(experiment, model), *names, speed, *(cell[0] for cell in cells)])
            first = model_label(experiment, model) if len(lines) == before + 1 else ""
            short_lines.append([first, *names, speed, *(cell[1] for cell in cells)])
        groups.append(len(lines) - before)
    caption = (
        f"Scale {experiment.scale}. Greedy decoding. Score in percent with its 95% interval over the n problems; in "
        f"parentheses the speed-up in tokens per forward pass ({TIMES}), which is not time. The pass over the prompt "
        "counts where it gives a token (NTP, self-speculative). Average speed-up: plain mean over benchmarks."
    )
    if warning := command.partial_warning(missing):
        caption += f" {warning}."
    text = tables.Layout(header, lines, caption, left=3, groups=groups, below=below)
    short = caption.replace(" with its 95% interval", "")
    paper = tables.Layout(header, short_lines, short, left=3, groups=groups, below=below)
    return rows.loc[:, inputs.COLUMNS], text, paper


def _cell(found: pd.DataFrame, key: tuple[str, str, str, str], free: bool) -> tuple[str, str]:
    """With and without the interval."""
    if key not in found.index:
        return "missing", "missing"
    row = found.loc[key]
    interval = f" [{row['score_low']:.1f}, {row['score_high']:.1f}]"
    speed = "" if free else f" ({row['tokens_per_forward']:.2f}{TIMES})"
    return f"{row['score']:.1f}{interval}{speed}", f"{row['score']:.1f}{speed}"


def _average_speed_up(found: pd.DataFrame, keys: Sequence[tuple[str, str, str, str]], free: bool) -> str:
    if free:
        return f"1{TIMES}"
    if any(key not in found.index for key in keys):
        return "missing"
    return f"{found.loc[list(keys), 'tokens_per_forward'].mean():.2f}{TIMES}"


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: records.csv and the reported rows -> table1.csv (what was measured), .md and .tex."""
    parser = command.parser(
        __doc__, records="records.csv of `python -m sbd collect`", reported="folder of the paper's numbers"
    )
    options = parser.parse_args(arguments)
    experiment = load_experiment(options.experiment)
    records = inputs.read_records(options.records, experiment)
    frame, text, paper = build(experiment, records, options.partial, reported.table1(options.reported))
    return tables.write(options.output, "table1", frame, text, paper)


if __name__ == "__main__":
    command.run(main)
