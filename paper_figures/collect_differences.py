"""Paired differences between arms on the same problems, from the generations of each, as one CSV file.

A row for each pair that a table, figure or claim of the experiment needs: the arm minus its baseline in points, with a
95% bootstrap interval over problems and an exact McNemar test, and the interval of the arm's tokens per forward pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from paper_figures import command, inputs
from paper_figures.selection import Figures, load
from sbd import statistics
from sbd.config import Arm, Experiment
from sbd.errors import UserError
from sbd.files import write_text

KEY = ["model", "benchmark", "run", "decoder", "baseline_run", "baseline_decoder"]
NUMBERS = ["n", "difference", "low", "high", "p_value", "only_baseline", "only_arm"]
SPEED = ["tokens_per_forward", "tokens_per_forward_low", "tokens_per_forward_high"]


def pairs(experiment: Experiment, figures: Figures) -> list[tuple[Arm, Arm]]:
    """(arm, baseline) of table 1, the curves, table 2, the ablations and the claims, each once."""
    found = []
    first, *others = experiment.table1.rows
    found += [(arm, first) for arm in others]
    found += [(arm, first) for grid in experiment.pareto.curves.values() for arm in grid]
    if figures.table2:
        baseline, *runs = (Arm(run=run, decoder=figures.table2.decoder) for run in figures.table2.runs)
        found += [(arm, baseline) for arm in runs]
    if figures.figure5:
        for length in figures.figure5.lengths:
            twin = Arm(run=length.baseline, decoder=figures.figure5.baseline_decoder)
            found += [(Arm(run=length.run, decoder=name), twin) for name in figures.figure5.decoders]
    if figures.ablations:
        found += [(arm, arms[0]) for arms in figures.ablations.groups.values() for arm in arms[1:]]
    if figures.claims:
        baseline = figures.claims.baseline
        arms = [figures.claims.sbd_ntp, figures.claims.gamma_low, figures.claims.gamma_high]
        arms += [*figures.claims.factor, *figures.claims.entropy_bound]
        found += [(arm, baseline) for arm in arms if arm]
        if figures.claims.without_ntp_loss and figures.claims.sbd_ntp:
            found.append((figures.claims.without_ntp_loss, figures.claims.sbd_ntp))
    unique = {((a.run, a.decoder), (b.run, b.decoder)): (a, b) for a, b in found}
    return [pair for (one, two), pair in unique.items() if one != two]


def collect(experiment: Experiment, wanted: Iterable[tuple[Arm, Arm]], seed: int = 0) -> pd.DataFrame:
    """A row per model, benchmark and pair that the experiment evaluates on both sides. Raises UserError."""
    asked = set(experiment.jobs())
    known: dict[tuple[str, str, str, str], dict[str, dict[str, Any]]] = {}

    def problems(model: str, arm: Arm, benchmark: str) -> dict[str, dict[str, Any]]:
        key = (model, arm.run, arm.decoder, benchmark)
        if key not in known:
            known[key] = read_generations(experiment.record_folder(*key) / "generations.jsonl")
        return known[key]

    rows = []
    for model in experiment.models:
        for benchmark in experiment.benchmarks:
            for arm, baseline in wanted:
                sides = (model, arm.run, arm.decoder, benchmark), (model, baseline.run, baseline.decoder, benchmark)
                if not asked.issuperset(sides):
                    continue
                ours, theirs = problems(model, arm, benchmark), problems(model, baseline, benchmark)
                if ours.keys() != theirs.keys():
                    raise UserError(
                        f"{'/'.join(sides[0])} and {'/'.join(sides[1])} were evaluated on different problems; "
                        "evaluate both again"
                    )
                ids = sorted(ours)
                paired = statistics.paired_difference(
                    [float(theirs[i]["correct"]) for i in ids], [float(ours[i]["correct"]) for i in ids], seed
                )
                rows.append(
                    [model, benchmark, arm.run, arm.decoder, baseline.run, baseline.decoder, paired.n]
                    + [100 * x for x in (paired.difference.estimate, paired.difference.low, paired.difference.high)]
                    + [paired.p_value, paired.only_a, paired.only_b, *_speed(ours, ids, seed)]
                )
    return pd.DataFrame(rows, columns=pd.Index([*KEY, *NUMBERS, *SPEED]))


def _speed(problems: dict[str, dict[str, Any]], ids: Sequence[str], seed: int) -> list[float | None]:
    passes = [problems[i]["forward_passes"] for i in ids]
    if not all(passes):
        return [None, None, None]
    ratio = statistics.ratio_of_sums([problems[i]["tokens"] for i in ids], passes, seed)
    return [ratio.estimate, ratio.low, ratio.high]


def read_generations(path: Path) -> dict[str, dict[str, Any]]:
    """The lines of a ``generations.jsonl`` by problem. Raises UserError."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        found = {str(line["id"]): line for line in lines}
    except FileNotFoundError:
        raise UserError(f"no such file: {path}; evaluate that job") from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a file of generations ({error!r}); evaluate that job again") from None
    if len(found) != len(lines) or not found:
        raise UserError(f"{path}: {len(lines)} lines of {len(found)} problems; evaluate that job again")
    return found


def read_differences(path: str | Path) -> pd.DataFrame:
    """The file that this module writes, indexed by KEY. Raises UserError."""
    how = "run `python -m paper_figures.collect_differences`"
    frame = inputs.read_csv(path, [*KEY, *NUMBERS, *SPEED], KEY, how, empty=[*SPEED, "p_value"])
    if frame.duplicated(KEY).any():
        raise UserError(f"{path}: two rows of one pair; {how}")
    return frame.set_index(KEY)


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: the experiment's generations -> differences.csv. ``--output`` is that file."""
    parser = command.parser(__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap")
    options = parser.parse_args(arguments)
    experiment, figures = load(options.experiment)
    frame = collect(experiment, pairs(experiment, figures), options.seed)
    write_text(options.output, frame.to_csv(index=False, lineterminator="\n", float_format="%.6g"))
    return [options.output]


if __name__ == "__main__":
    command.run(main)
