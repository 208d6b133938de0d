"""Paired differences between arms on the same problems, from the generations of each.

A row for each pair that a table, figure or claim of the experiment needs, and for the same pair under every seed that
both of its runs were repeated with: the arm minus its baseline in points, with a 95% bootstrap interval over problems
and an exact McNemar test, and the interval of the arm's tokens per forward pass.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sbd import columns, statistics
from sbd.config import Experiment
from sbd.errors import UserError
from sbd.selection import Arm

Problems = dict[str, dict[str, Any]]


def pairs(experiment: Experiment) -> list[tuple[Arm, Arm]]:
    """(arm, baseline) of table 1, the curves, table 2, the ablations, the claims and the seeds, each once."""
    figures = experiment.figures
    first, *others = experiment.table1.rows
    found = [(arm, first) for arm in others]
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
        claims = figures.claims
        arms = [claims.sbd_ntp, claims.gamma_low, *claims.factor, *claims.entropy_bound]
        found += [(arm, claims.baseline) for arm in arms if arm]
        if claims.without_ntp_loss and (reference := claims.with_ntp_loss or claims.sbd_ntp):
            found.append((claims.without_ntp_loss, reference))
    if figures.seeds:
        found += [(comparison.arm, comparison.baseline) for comparison in figures.seeds.comparisons]
    repeated = [
        (Arm(run=one, decoder=arm.decoder), Arm(run=two, decoder=baseline.decoder))
        for arm, baseline in found
        for one, two in experiment.seeds_of(arm.run, baseline.run)
    ]
    unique = {((a.run, a.decoder), (b.run, b.decoder)): (a, b) for a, b in repeated}
    return [pair for (one, two), pair in unique.items() if one != two]


def collect(experiment: Experiment, wanted: Iterable[tuple[Arm, Arm]], seed: int = 0) -> list[dict[str, Any]]:
    """A row per model, benchmark and pair that the experiment evaluates on both sides. Raises UserError."""
    asked = set(experiment.jobs())
    wanted = list(wanted)
    known: dict[tuple[str, str, str, str], Problems] = {}

    def problems(*key: str) -> Problems:
        model, run, decoder, benchmark = key
        if (model, run, decoder, benchmark) not in known:
            folder = experiment.record_folder(model, run, decoder, benchmark)
            known[model, run, decoder, benchmark] = read_generations(folder / "generations.jsonl")
        return known[model, run, decoder, benchmark]

    rows = []
    for model in experiment.models:
        for benchmark in experiment.benchmarks:
            for arm, baseline in wanted:
                sides = (model, arm.run, arm.decoder, benchmark), (model, baseline.run, baseline.decoder, benchmark)
                if not asked.issuperset(sides):
                    continue
                ours, theirs = (problems(*side) for side in sides)
                if ours.keys() != theirs.keys():
                    raise UserError(
                        f"{'/'.join(sides[0])} and {'/'.join(sides[1])} were evaluated on different problems; "
                        "evaluate both again"
                    )
                pair = (model, benchmark, arm.run, arm.decoder, baseline.run, baseline.decoder)
                rows.append(dict(zip(columns.PAIR, pair, strict=True)) | _compared(ours, theirs, seed))
    return rows


def _compared(ours: Problems, theirs: Problems, seed: int) -> dict[str, Any]:
    ids = sorted(ours)
    paired = statistics.paired_difference(
        [float(theirs[i]["correct"]) for i in ids], [float(ours[i]["correct"]) for i in ids], seed
    )
    points = paired.difference.times(100)
    passes = [ours[i]["forward_passes"] for i in ids]
    speed = statistics.ratio_of_sums([ours[i]["tokens"] for i in ids], passes, seed) if all(passes) else None
    return {
        "n": paired.n,
        "difference": points.estimate,
        "low": points.low,
        "high": points.high,
        "p_value": None if math.isnan(paired.p_value) else paired.p_value,
        "only_baseline": paired.only_a,
        "only_arm": paired.only_b,
        "tokens_per_forward": speed and speed.estimate,
        "tokens_per_forward_low": speed and speed.low,
        "tokens_per_forward_high": speed and speed.high,
    }


def read_generations(path: Path) -> Problems:
    """The lines of a ``generations.jsonl`` by problem. Raises UserError."""
    try:
        lines: Sequence[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        found = {str(line["id"]): line for line in lines}
        unscored = [name for name, line in found.items() if not math.isfinite(float(line["correct"]))]
    except FileNotFoundError:
        raise UserError(f"no such file: {path}; evaluate that job") from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a file of generations ({error!r}); evaluate that job again") from None
    if len(found) != len(lines) or not found:
        raise UserError(f"{path}: {len(lines)} lines of {len(found)} problems; evaluate that job again")
    if unscored:
        raise UserError(f"{path}: the score of {unscored[0]} is not a number; evaluate that job again")
    return found
